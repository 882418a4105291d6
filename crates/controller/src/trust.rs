//! The installation's own certificate authority, kept in a secret: whichever replica comes first makes it, all use it.
//!
//! Members believe a bundle, which can hold more than the authority that signs: the one before it, under [`PREVIOUS`], while
//! certificates of it are about.

use std::collections::BTreeMap;
use std::time::Duration;

use api::names::objects;
use identity::{Authority, Identity};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};

use crate::Error;
use crate::error::named;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Certificate of the authority before this one.
const PREVIOUS: &str = "previous.crt";
/// Ten years: nothing replaces the authority yet.
const VALID_FOR: Duration = Duration::from_hours(10 * 365 * 24);

/// Who signs, and whom members believe.
pub(crate) struct Authorities {
    pub signing: Authority,
    /// Certificates, as PEM.
    pub bundle: String,
}

/// Publishes whom members believe.
pub(crate) async fn publish(client: Client, namespace: &str, bundle: &str) -> Result<(), Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(objects::CA.into()), ..ObjectMeta::default() },
        data: Some([(objects::CA_BUNDLE_KEY.to_owned(), bundle.to_owned())].into()),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply(objects::CONTROLLER).force();
    let applied = maps.patch(objects::CA, &params, &Patch::Apply(&map)).await;
    applied.map(drop).map_err(Error::api("applying", named::<ConfigMap>(Some(namespace), objects::CA)))
}

/// The authority that signs, made if there is none.
pub(crate) async fn authority(client: Client, namespace: &str) -> Result<Authority, Error> {
    Ok(authorities(client, namespace).await?.signing)
}

/// All that are believed; one is made if there is none.
pub(crate) async fn authorities(client: Client, namespace: &str) -> Result<Authorities, Error> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let object = named::<Secret>(Some(namespace), objects::CA_SECRET);
    let read =
        async || secrets.get_opt(objects::CA_SECRET).await.map_err(Error::api("reading", object.as_str()));
    if let Some(secret) = read().await? {
        return of(&secret, &object);
    }
    let authority = Authority::generate(objects::CA, VALID_FOR)?;
    match secrets.create(&PostParams::default(), &kept(&authority)).await {
        Ok(_) => Ok(Authorities { bundle: authority.certificate().to_owned(), signing: authority }),
        Err(kube::Error::Api(status)) if status.is_already_exists() => match read().await? {
            Some(secret) => of(&secret, &object),
            None => Err(Error::Authority { secret: object }),
        },
        Err(source) => Err(Error::api("making", object)(source)),
    }
}

fn kept(authority: &Authority) -> Secret {
    let pem = authority.to_pem();
    let data = [(CERTIFICATE, &pem.certificate), (KEY, &pem.key)];
    let data: BTreeMap<String, ByteString> =
        data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).collect();
    Secret {
        metadata: ObjectMeta { name: Some(objects::CA_SECRET.into()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".into()),
        data: Some(data),
        ..Secret::default()
    }
}

fn of(secret: &Secret, object: &str) -> Result<Authorities, Error> {
    let text = |key: &str| {
        let bytes = secret.data.as_ref()?.get(key)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    let (Some(certificate), Some(key)) = (text(CERTIFICATE), text(KEY)) else {
        return Err(Error::Authority { secret: object.to_owned() });
    };
    let bundle = [certificate.as_str(), text(PREVIOUS).as_deref().unwrap_or_default()].concat();
    Ok(Authorities { signing: Authority::from_pem(Identity { certificate, key }, object)?, bundle })
}
