//! By what right this handler speaks: a key of its own, a certificate that the controller signed for it, and the authorities that it
//! believes.
//!
//! The key is made here and never leaves the process. The certificate is asked for with a `CertificateSigningRequest`, which the
//! API server stamps with who asked: this pod, on this node. It is asked for again when a fifth of its time is left, and when another
//! authority signs, which is the first of the bundle; the one that is held counts until its time is over.

use std::time::{Duration, SystemTime};

use api::names::{labels, objects};
use futures::StreamExt as _;
use identity::{Identity, Member, MemberError, Request, is_signed_by, validity};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec, CertificateSigningRequestStatus,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::error::chain;

/// How long a certificate is asked for. The signer may give less.
const LIFE: Duration = Duration::from_hours(24);
/// How often it is looked whether a request was answered.
const LOOK: Duration = Duration::from_millis(500);
/// How soon a request that failed is made again.
const RETRY: Duration = Duration::from_secs(2);
/// Why there is none, as long as whoever signs is silent.
const UNANSWERED: &str = "no request for one was answered yet; `kubectl get csr` shows them";
/// The longest part of a node's name that the name of a request shows.
const SHOWN: usize = 63;

/// What a handler shows, and whom it believes.
#[derive(Clone)]
pub struct Held {
    pub identity: Identity,
    pub member: Member,
    /// Certificates (PEM) of the authorities.
    pub bundle: String,
}

/// Credentials, or why there are none.
pub type Holding = Result<Held, String>;

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("asking for a certificate failed")]
    Ask(#[source] kube::Error),
    #[error("no request for a certificate could be made")]
    Request(#[source] identity::Error),
    #[error("the request {name} was refused: {message}")]
    Refused { name: String, message: String },
    #[error("the request {name} is gone")]
    Gone { name: String },
    #[error("the certificate that the request {name} was answered with cannot be used")]
    Certificate {
        name: String,
        #[source]
        source: identity::Error,
    },
    #[error("the certificate that the request {name} was answered with names nobody")]
    Nobody {
        name: String,
        #[source]
        source: MemberError,
    },
}

/// A certificate and its key, until its time is over.
#[derive(Clone)]
struct Certified {
    identity: Identity,
    member: Member,
    renew: SystemTime,
    end: SystemTime,
}

/// What is held now; and the work that keeps it current until dropped.
pub fn hold(
    client: Client,
    namespace: &str,
    node: &str,
) -> (watch::Receiver<Holding>, impl Future<Output = ()> + use<>) {
    let (sender, receiver) = watch::channel(Err(UNANSWERED.to_owned()));
    let (bundles, mut bundle) = watch::channel(None);
    let (certificates, mut certified) = watch::channel(Err(UNANSWERED.to_owned()));
    let following = follow_bundle(client.clone(), namespace.to_owned(), bundles);
    let renewing = renew(Api::all(client), node.to_owned(), bundle.clone(), certificates);
    let joining = async move {
        loop {
            let holding = join(certified.borrow_and_update().clone(), bundle.borrow_and_update().clone());
            drop(sender.send_replace(holding));
            let changed = tokio::select! { changed = bundle.changed() => changed, changed = certified.changed() => changed };
            if changed.is_err() {
                return;
            }
        }
    };
    (receiver, async { _ = tokio::join!(following, renewing, joining) })
}

fn join(certified: Result<Certified, String>, bundle: Option<String>) -> Holding {
    let Certified { identity, member, .. } = certified?;
    let missing = || format!("the config map {} has no authorities yet", objects::CA);
    Ok(Held { identity, member, bundle: bundle.ok_or_else(missing)? })
}

/// Asks, holds, and asks again in time.
async fn renew(
    requests: Api<CertificateSigningRequest>,
    node: String,
    mut bundle: watch::Receiver<Option<String>>,
    certificates: watch::Sender<Result<Certified, String>>,
) {
    loop {
        // What changes from here on may be news of another authority.
        bundle.mark_unchanged();
        match obtain_in_time(&requests, &node, &certificates).await {
            Ok(certified) => {
                tracing::info!(node, member = %certified.member, "the handler has a certificate");
                let pause = certified.renew.duration_since(SystemTime::now()).unwrap_or(RETRY);
                let certificate = certified.identity.certificate.clone();
                drop(certificates.send_replace(Ok(certified)));
                tokio::select! {
                    () = sleep(pause) => {}
                    () = superseded(&certificate, &mut bundle) => {
                        tracing::info!(node, "another authority signs now; asking for a new certificate");
                    }
                }
            }
            Err(problem) => {
                let problem = chain(&problem);
                tracing::warn!(node, problem, "the handler has no new certificate; asking again");
                // What is held counts until its time is over.
                certificates.send_if_modified(|held| match held {
                    Ok(held) if SystemTime::now() < held.end => false,
                    held => {
                        *held = Err(problem.clone());
                        true
                    }
                });
                sleep(RETRY).await;
            }
        }
    }
}

/// The same as [`obtain`], which waits for an answer as long as it takes: what is held meanwhile counts no longer than its time.
async fn obtain_in_time(
    requests: &Api<CertificateSigningRequest>,
    node: &str,
    certificates: &watch::Sender<Result<Certified, String>>,
) -> Result<Certified, Problem> {
    let obtaining = obtain(requests, node);
    tokio::pin!(obtaining);
    let end = certificates.borrow().as_ref().ok().map(|held| held.end);
    if let Some(end) = end {
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        if let Ok(answer) = timeout(left, &mut obtaining).await {
            return answer;
        }
        let problem = format!("the last one has expired, and {UNANSWERED}");
        tracing::warn!(node, problem, "the handler has no certificate any more");
        drop(certificates.send_replace(Err(problem)));
    }
    obtaining.await
}

/// Returns when the one who signs is another than the one who signed this.
async fn superseded(certificate: &str, bundle: &mut watch::Receiver<Option<String>>) {
    while bundle.changed().await.is_ok() {
        let now = bundle.borrow_and_update().clone();
        // A bundle that cannot be read is no reason to ask.
        if now.is_some_and(|now| !is_signed_by(certificate, &now).unwrap_or(true)) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// One certificate for a new key. Waits for the answer as long as the request is there.
async fn obtain(requests: &Api<CertificateSigningRequest>, node: &str) -> Result<Certified, Problem> {
    let request = Request::new(node).map_err(Problem::Request)?;
    let asked = requests.create(&PostParams::default(), &ask(&request, node)).await.map_err(Problem::Ask)?;
    let name = asked.name_any();
    let certificate = loop {
        let there = requests.get_opt(&name).await.map_err(Problem::Ask)?;
        let there = there.ok_or_else(|| Problem::Gone { name: name.clone() })?;
        match answer(there.status.as_ref()) {
            Answer::Given(certificate) => break certificate,
            Answer::Refused(message) => return Err(Problem::Refused { name, message }),
            Answer::Pending => sleep(LOOK).await,
        }
    };
    let (from, end) =
        validity(&certificate).map_err(|source| Problem::Certificate { name: name.clone(), source })?;
    let member = Member::of_pem(&certificate).map_err(|source| Problem::Nobody { name, source })?;
    let identity = request.with_certificate(&certificate);
    Ok(Certified { identity, member, renew: renewal(from, end), end })
}

/// When a fifth is left.
fn renewal(from: SystemTime, end: SystemTime) -> SystemTime {
    end - end.duration_since(from).unwrap_or_default() / 5
}

fn ask(request: &Request, node: &str) -> CertificateSigningRequest {
    let shown: String = node.chars().take(SHOWN).collect();
    CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-{shown}-", objects::HANDLER)),
            labels: Some([(labels::APP.to_owned(), labels::APP_HANDLER.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem().as_bytes().to_vec()),
            signer_name: objects::HANDLER_SIGNER.to_owned(),
            usages: Some(["digital signature", "server auth", "client auth"].map(str::to_owned).to_vec()),
            expiration_seconds: i32::try_from(LIFE.as_secs()).ok(),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Pending,
    Given(String),
    Refused(String),
}

fn answer(status: Option<&CertificateSigningRequestStatus>) -> Answer {
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let refusal = conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    if let Some(refusal) = refusal {
        return Answer::Refused(refusal.message.clone().unwrap_or_default());
    }
    let certificate = status.and_then(|status| status.certificate.as_ref());
    match certificate.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()) {
        Some(certificate) if !certificate.is_empty() => Answer::Given(certificate),
        _ => Answer::Pending,
    }
}

/// The authorities of the installation, as the controller publishes them.
async fn follow_bundle(client: Client, namespace: String, bundles: watch::Sender<Option<String>>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let one = watcher::Config::default().fields(&format!("metadata.name={}", objects::CA));
    let changes = watcher(maps, one).default_backoff();
    futures::pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(watcher::Event::InitApply(map) | watcher::Event::Apply(map)) => {
                let bundle = map.data.and_then(|data| data.get(objects::CA_BUNDLE_KEY).cloned());
                let bundle = bundle.filter(|text| !text.trim().is_empty());
                // A map that was emptied takes nobody's trust away.
                if bundle.is_some() {
                    bundles.send_if_modified(|now| std::mem::replace(now, bundle.clone()) != bundle);
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(
                    cause = chain(&error),
                    "the authorities cannot be watched; those known still count"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_answered_by_a_certificate_or_a_refusal_and_by_nothing_else() {
        let read = |status: serde_json::Value| answer(Some(&serde_json::from_value(status).unwrap()));
        let condition = |type_: &str| json!([{ "type": type_, "status": "True", "message": "no" }]);
        assert_eq!(answer(None), Answer::Pending);
        assert_eq!(read(json!({ "conditions": condition("Approved") })), Answer::Pending);
        assert_eq!(read(json!({ "certificate": "" })), Answer::Pending);
        let given = json!({ "conditions": condition("Approved"), "certificate": "UEVN" });
        assert_eq!(read(given), Answer::Given("PEM".into()));
        for refusal in ["Denied", "Failed"] {
            assert_eq!(read(json!({ "conditions": condition(refusal) })), Answer::Refused("no".into()));
        }
    }

    #[test]
    fn it_is_renewed_when_a_fifth_is_left() {
        let from = SystemTime::UNIX_EPOCH;
        let end = from + Duration::from_secs(1000);
        assert_eq!(renewal(from, end), from + Duration::from_secs(800));
    }
}
