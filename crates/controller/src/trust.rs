//! The installation's own certificate authority, kept in a secret: whichever replica comes first makes it, all use it, and the leader
//! replaces it in time.
//!
//! ```text
//!  the one that signs ── a fifth of its life is left ──► the next is made, and believed: bundle of both
//!  the next ── everybody has had time to hear of it ──► it signs; the one before is believed until its own end
//! ```
//!
//! Invariant: whoever signs has been in the bundle before, and whoever has signed stays in it until nothing that it signed is valid
//! any more, for nothing outlives its authority. So two members always believe each other, and no transfer is disturbed. The first
//! certificate of the bundle is that of the one who signs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use api::kubevirt::KubeVirt;
use api::names::objects;
use identity::{Authority, Identity, SKEW, validity};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};

use crate::Error;
use crate::error::named;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The authority that will sign.
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
/// Certificate of the authority before this one.
const PREVIOUS: &str = "previous.crt";

/// How long authorities live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    whole: Duration,
    /// The next one is made when this is left.
    last: Duration,
}

impl Default for Life {
    fn default() -> Self {
        let whole = Duration::from_hours(7 * 24);
        Self { whole, last: whole / 5 }
    }
}

impl Life {
    /// As the installation says.
    pub fn of(installation: Option<&KubeVirt>) -> Self {
        let strategy = installation.and_then(|one| one.spec.certificate_rotate_strategy.as_ref());
        let authority = strategy.and_then(|strategy| strategy.self_signed.as_ref()?.ca.as_ref());
        let duration = |given: Option<&kube::core::Duration>| {
            given.filter(|duration| !duration.is_negative()).map(|duration| Duration::from(*duration))
        };
        let whole = duration(authority.and_then(|authority| authority.duration.as_ref()));
        let whole = whole.unwrap_or(Self::default().whole);
        let last = duration(authority.and_then(|authority| authority.renew_before.as_ref()));
        Self { whole, last: last.filter(|last| *last < whole).unwrap_or(whole / 5) }
    }

    /// How long everybody has to hear of the next one. Members follow the bundle: it takes them a moment.
    fn to_hear(self) -> Duration {
        (self.last / 4).min(Duration::from_mins(10))
    }
}

/// Who signs, and whom members believe.
pub(crate) struct Authorities {
    pub signing: Authority,
    /// Certificates, as PEM; the first is that of the one who signs.
    pub bundle: String,
}

/// What is in the secret.
#[derive(Clone)]
struct Kept {
    signing: Identity,
    next: Option<Identity>,
    previous: Option<String>,
}

impl Kept {
    fn new(authority: &Authority) -> Self {
        Self { signing: authority.to_pem().clone(), next: None, previous: None }
    }

    fn of(secret: &Secret) -> Option<Self> {
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone()).ok()
        };
        let pair = |certificate, key| Some(Identity { certificate: text(certificate)?, key: text(key)? });
        let (next, previous) = (pair(NEXT_CERTIFICATE, NEXT_KEY), text(PREVIOUS));
        Some(Self { signing: pair(CERTIFICATE, KEY)?, next, previous })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let next = self.next.as_ref();
        let entries = [
            (CERTIFICATE, Some(&self.signing.certificate)),
            (KEY, Some(&self.signing.key)),
            (NEXT_CERTIFICATE, next.map(|next| &next.certificate)),
            (NEXT_KEY, next.map(|next| &next.key)),
            (PREVIOUS, self.previous.as_ref()),
        ];
        let given = entries.into_iter().filter_map(|(key, text)| Some((key, text?)));
        given.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).collect()
    }

    fn authorities(self, place: &str) -> Result<Authorities, Error> {
        let next = self.next.map(|next| next.certificate);
        let believed = [Some(self.signing.certificate.clone()), next, self.previous];
        let bundle = believed.into_iter().flatten().collect();
        Ok(Authorities { signing: Authority::from_pem(self.signing, place)?, bundle })
    }

    /// What is to be kept at this time, if it is something else.
    fn turned(&self, life: Life, now: SystemTime) -> Result<Option<Self>, Error> {
        let end = validity(&self.signing.certificate)?.1;
        let mut new = self.clone();
        if let Some(next) = &self.next {
            let made = validity(&next.certificate)?.0 + SKEW;
            // One that is over cannot be waited for.
            if now >= made + life.to_hear() || now >= end {
                new.previous = Some(std::mem::replace(&mut new.signing, next.clone()).certificate);
                new.next = None;
                return Ok(Some(new));
            }
        } else if now + life.last >= end {
            let next = Authority::generate_between(objects::CA, now, now + life.whole)?;
            new.next = Some(next.to_pem().clone());
            return Ok(Some(new));
        }
        match &self.previous {
            Some(previous) if now >= validity(previous)?.1 => {
                new.previous = None;
                Ok(Some(new))
            }
            _ => Ok(None),
        }
    }
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

/// All that are believed; one is made if there is none.
pub(crate) async fn authorities(client: Client, namespace: &str) -> Result<Authorities, Error> {
    let (kept, _) = kept(&Api::namespaced(client, namespace), namespace).await?;
    kept.authorities(&place(namespace))
}

/// The same, once what is due has been done. For the leader.
pub(crate) async fn keep(client: Client, namespace: &str, life: Life) -> Result<Authorities, Error> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let (mut kept, mut secret) = kept(&secrets, namespace).await?;
    while let Some(turned) = kept.turned(life, SystemTime::now())? {
        secret.data = Some(turned.data());
        // Valid for the version that was read: whoever else writes is asked anew.
        let written = secrets.replace(objects::CA_SECRET, &PostParams::default(), &secret).await;
        secret = written.map_err(Error::api("replacing", place(namespace)))?;
        tracing::info!("the authorities of the installation have changed");
        kept = turned;
    }
    kept.authorities(&place(namespace))
}

fn place(namespace: &str) -> String {
    named::<Secret>(Some(namespace), objects::CA_SECRET)
}

async fn kept(secrets: &Api<Secret>, namespace: &str) -> Result<(Kept, Secret), Error> {
    let object = place(namespace);
    let read =
        async || secrets.get_opt(objects::CA_SECRET).await.map_err(Error::api("reading", object.as_str()));
    let secret = if let Some(secret) = read().await? {
        secret
    } else {
        let first = Kept::new(&Authority::generate(objects::CA, Life::default().whole)?);
        let secret = Secret {
            metadata: ObjectMeta { name: Some(objects::CA_SECRET.into()), ..ObjectMeta::default() },
            type_: Some("kubernetes.io/tls".into()),
            data: Some(first.data()),
            ..Secret::default()
        };
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(made) => made,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                read().await?.ok_or_else(|| Error::Authority { secret: object.clone() })?
            }
            Err(source) => return Err(Error::api("making", object.as_str())(source)),
        }
    };
    let kept = Kept::of(&secret).ok_or(Error::Authority { secret: object })?;
    Ok((kept, secret))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    #[test]
    fn one_follows_another_and_nobody_is_ever_without_one_that_all_believe() {
        let life = Life { whole: 100 * HOUR, last: 20 * HOUR };
        let begun = SystemTime::now();
        let first = Authority::generate_between("authority", begun, begun + life.whole).unwrap();
        let mut kept = Kept::new(&first);
        let at = |kept: &Kept, hours| kept.turned(life, begun + hours * HOUR).unwrap();
        assert!(at(&kept, 79).is_none(), "it has time");

        let bundle = |kept: &Kept| kept.clone().authorities("test").unwrap().bundle;
        kept = at(&kept, 80).unwrap();
        assert_eq!(kept.signing.certificate, first.certificate(), "nobody has heard of the next one yet");
        let next = kept.next.clone().unwrap().certificate;
        assert_eq!(bundle(&kept), [first.certificate(), &next].concat());
        assert!(kept.turned(life, begun + 80 * HOUR + Duration::from_mins(9)).unwrap().is_none());

        kept = at(&kept, 81).unwrap();
        assert_eq!(bundle(&kept), [&next, first.certificate()].concat(), "the one who signs comes first");
        assert!(at(&kept, 99).is_none(), "certificates of the first are still about");
        kept = at(&kept, 100).unwrap();
        assert_eq!(bundle(&kept), next);
        assert!(at(&kept, 101).is_none());
    }

    #[test]
    fn one_that_is_over_is_replaced_at_once() {
        let life = Life::default();
        let begun = SystemTime::now();
        let first = Authority::generate_between("authority", begun, begun + life.whole).unwrap();
        let late = begun + 2 * life.whole;
        let mut kept = Kept::new(&first);
        while let Some(turned) = kept.turned(life, late).unwrap() {
            kept = turned;
        }
        assert_ne!(kept.signing.certificate, first.certificate());
        assert!(kept.next.is_none() && kept.previous.is_none());
        assert!(validity(&kept.signing.certificate).unwrap().1 > late);
    }

    #[test]
    fn what_is_kept_is_what_is_read() {
        let [one, two] = [1, 2].map(|_| Authority::generate("authority", HOUR).unwrap());
        let kept =
            Kept { next: Some(two.to_pem().clone()), previous: Some("before".into()), ..Kept::new(&one) };
        let secret = Secret { data: Some(kept.data()), ..Secret::default() };
        assert_eq!(Kept::of(&secret).unwrap().data(), kept.data());
        assert!(Kept::of(&Secret::default()).is_none());
    }
}
