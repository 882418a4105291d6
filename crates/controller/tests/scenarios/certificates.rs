//! Certificates of handlers: given to handlers for their own node, and to nobody else.

use std::time::{Duration, SystemTime};

use api::names::{labels, objects};
use apiserver::auth::User;
use identity::{Authority, Member, Request};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, INSTALLATION, object};

pub const HANDLER: &str = "system:serviceaccount:kubevirt:virt-handler";

/// A handler's pod on a node.
pub async fn handler(cluster: &Cluster, node: &str) -> Pod {
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(cluster.client.clone(), INSTALLATION);
    // It may be there already.
    let _ = accounts
        .create(&PostParams::default(), &object(json!({ "metadata": { "name": "virt-handler" } })))
        .await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    let pod = json!({
        "metadata": { "generateName": "virt-handler-", "labels": { labels::APP: labels::APP_HANDLER } },
        "spec": { "nodeName": node, "containers": [{ "name": "virt-handler", "image": "i" }] },
    });
    pods.create(&PostParams::default(), &object(pod)).await.unwrap()
}

/// The API as this user of this pod has it.
pub fn client(cluster: &Cluster, name: &str, pod: &Pod) -> Client {
    let extra = [("pod-name", pod.name_any()), ("pod-uid", pod.uid().unwrap())]
        .map(|(key, value)| (format!("authentication.kubernetes.io/{key}"), vec![value]));
    let user = User { name: name.to_owned(), extra: extra.into(), ..User::default() };
    Client::new(cluster.server.service(user), INSTALLATION)
}

/// Asks for the certificate of a node, and waits for what becomes of that.
pub async fn ask(client: Client, request: &Request) -> CertificateSigningRequest {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let body = json!({
        "metadata": { "generateName": "virt-handler-" },
        "spec": { "request": ByteString(request.pem().into()), "signerName": objects::HANDLER_SIGNER,
            "usages": ["digital signature", "server auth", "client auth"], "expirationSeconds": 3600 },
    });
    let asked = requests.create(&PostParams::default(), &object(body)).await.unwrap();
    eventually("an answer", async || {
        let there = requests.get(&asked.name_any()).await.unwrap();
        let status = there.status.as_ref()?;
        let denied = status.conditions.iter().flatten().any(|condition| condition.type_ == "Denied");
        (denied || status.certificate.is_some()).then_some(there)
    })
    .await
}

fn certificate(request: &CertificateSigningRequest) -> Option<String> {
    let bytes = request.status.as_ref()?.certificate.as_ref()?;
    Some(String::from_utf8(bytes.0.clone()).unwrap())
}

#[tokio::test]
async fn a_handler_gets_a_certificate_that_its_peers_believe() {
    let cluster = Cluster::with_controller().await;
    let pod = handler(&cluster, "node01").await;
    let request = Request::new("node01").unwrap();
    let answered = ask(client(&cluster, HANDLER, &pod), &request).await;
    let certificate = certificate(&answered).unwrap();
    let member = Member::of_pem(&certificate).unwrap();
    assert_eq!((member.component(), member.node()), ("virt-handler", "node01"));
    let (_, end) = identity::validity(&certificate).unwrap();
    let hour = SystemTime::now() + Duration::from_mins(61);
    assert!(end < hour, "no longer than was asked for");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    let bundle = maps.get(objects::CA).await.unwrap().data.unwrap()[objects::CA_BUNDLE_KEY].clone();
    tunnel::Credentials::tls(&request.with_certificate(&certificate), &[&bundle]).unwrap();
}

/// An authority that was made so long ago, and is valid for so long from now.
fn authority(age: Duration, left: Duration) -> Authority {
    let now = SystemTime::now();
    Authority::generate_between("kubevirt-ca", now - age, now + left).unwrap()
}

/// Keeps authorities as an earlier controller left them.
pub async fn seed(cluster: &Cluster, signing: &Authority, next: Option<&Authority>) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    let mut data = json!({ "tls.crt": signing.certificate(), "tls.key": signing.to_pem().key });
    if let Some(next) = next {
        data["next.crt"] = json!(next.certificate());
        data["next.key"] = json!(next.to_pem().key);
    }
    let secret = json!({ "metadata": { "name": objects::CA_SECRET }, "stringData": data });
    secrets.create(&PostParams::default(), &object(secret)).await.unwrap();
}

/// An authority in the last fifth of its life.
pub fn old_authority() -> Authority {
    authority(Duration::from_hours(6 * 24), Duration::from_hours(12))
}

/// The bundle, once it is another than this.
async fn bundle(cluster: &Cluster, other_than: &str) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), INSTALLATION);
    eventually("another bundle", async || {
        let map = maps.get_opt(objects::CA).await.unwrap()?;
        let bundle = map.data?.remove(objects::CA_BUNDLE_KEY)?;
        (bundle != other_than).then_some(bundle)
    })
    .await
}

#[tokio::test]
async fn an_authority_near_its_end_gets_a_successor_that_is_believed_before_it_signs() {
    let cluster = Cluster::new().await;
    let old = old_authority();
    seed(&cluster, &old, None).await;
    cluster.start();
    let both = bundle(&cluster, old.certificate()).await;
    assert!(both.starts_with(old.certificate()) && both.len() > old.certificate().len(), "{both}");
    let pod = handler(&cluster, "node01").await;
    let request = Request::new("node01").unwrap();
    let answered = ask(client(&cluster, HANDLER, &pod), &request).await;
    assert!(identity::is_signed_by(&certificate(&answered).unwrap(), old.certificate()).unwrap());
}

#[tokio::test]
async fn a_successor_that_everybody_knows_signs_and_the_one_before_is_still_believed() {
    let cluster = Cluster::new().await;
    let (old, next) = (old_authority(), authority(Duration::from_hours(1), Duration::from_hours(7 * 24)));
    seed(&cluster, &old, Some(&next)).await;
    cluster.start();
    let both = bundle(&cluster, "").await;
    assert_eq!(both, [next.certificate(), old.certificate()].concat());
    let pod = handler(&cluster, "node01").await;
    let request = Request::new("node01").unwrap();
    let answered = ask(client(&cluster, HANDLER, &pod), &request).await;
    let given = certificate(&answered).unwrap();
    assert!(identity::is_signed_by(&given, next.certificate()).unwrap());
    tunnel::Credentials::tls(&request.with_certificate(&given), &[&both]).unwrap();
}

#[tokio::test]
async fn nobody_else_gets_one() {
    let cluster = Cluster::with_controller().await;
    let pod = handler(&cluster, "node01").await;
    let own = Request::new("node01").unwrap();
    let launcher = "system:serviceaccount:default:default";
    let denied = ask(client(&cluster, launcher, &pod), &own).await;
    assert!(certificate(&denied).is_none());
    let denied = ask(client(&cluster, HANDLER, &pod), &Request::new("node02").unwrap()).await;
    let conditions = denied.status.unwrap().conditions.unwrap();
    assert!(conditions[0].message.as_deref().unwrap().contains("asks for \"node02\""), "{conditions:?}");
    // A person with every right is no handler either.
    let admin = ask(cluster.client.clone(), &own).await;
    assert!(certificate(&admin).is_none());
}
