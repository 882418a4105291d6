//! The signer `godwit.dev/handler`: certificates for handlers, each for its own node.
//!
//! A handler makes its key itself and asks with a `CertificateSigningRequest`; the API server stamps it with the pod that asks. What
//! becomes of a request is decided in [`judge`]; here it is approved and answered, or denied, and nothing else is ever signed. It
//! also publishes the authorities that members believe, in the config map `kubevirt-ca`.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use api::names::{objects, reasons};
use futures::StreamExt as _;
use identity::{Asked, Member, Subject};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{Controller, controller::Action, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;

pub use judge::{Verdict, judge};

use crate::error::{describe, named};
use crate::report::Note;
use crate::trust::{Authorities, Life};
use crate::{Context, Error, installation, trust};

/// The longest life of a handler's certificate, unless the installation says otherwise.
const LIFE: Duration = Duration::from_hours(24);
/// How soon the authority is looked for again when it could not be had.
const PAUSE: Duration = Duration::from_secs(2);
/// How often it is looked whether it is time for the next authority.
const LOOK: Duration = Duration::from_mins(1);

/// What signing needs.
struct Signer {
    context: Arc<Context>,
    /// Namespace of the installation.
    namespace: String,
    /// Name of this cluster in certificates.
    cluster: String,
}

/// Answers requests until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let signer = loop {
        match Signer::new(context.clone()).await {
            Ok(signer) => break Arc::new(signer),
            Err(error) => tracing::warn!("{}", error.explain()),
        }
        tokio::time::sleep(PAUSE).await;
    };
    let requests: Api<CertificateSigningRequest> = Api::all(context.client.clone());
    let ours = watcher::Config::default().fields(&format!("spec.signerName={}", objects::HANDLER_SIGNER));
    let answering = Controller::new(requests, ours)
        .run(reconcile, |_, error, _| Action::requeue(error.retry_after()), signer)
        .for_each(async |_| {});
    tokio::join!(answering, keep(context));
}

/// Replaces the authority in time, and publishes whom members believe.
async fn keep(context: Arc<Context>) {
    let mut published = None;
    loop {
        let pause = match turn(&context, &mut published).await {
            Ok(()) => LOOK,
            Err(error) => {
                tracing::warn!("{}", error.explain());
                PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn turn(context: &Context, published: &mut Option<String>) -> Result<(), Error> {
    let life = Life::of(installation::current(&context.installation).as_deref());
    let Authorities { bundle, .. } = trust::keep(context.client.clone(), &context.namespace, life).await?;
    if published.as_ref() != Some(&bundle) {
        trust::publish(context.client.clone(), &context.namespace, &bundle).await?;
        *published = Some(bundle);
    }
    Ok(())
}

async fn reconcile(request: Arc<CertificateSigningRequest>, signer: Arc<Signer>) -> Result<Action, Error> {
    signer.context.report.on(&*request, async |notes| signer.answer(&request, notes).await).await
}

impl Signer {
    async fn new(context: Arc<Context>) -> Result<Self, Error> {
        let (client, namespace) = (context.client.clone(), context.namespace.clone());
        let namespaces: Api<Namespace> = Api::all(client);
        let own = namespaces.get(&namespace).await;
        let own = own.map_err(Error::api("reading", named::<Namespace>(None, &namespace)))?;
        // Unique among clusters that meet, and known without being configured.
        let cluster = own.uid().unwrap_or_default();
        Ok(Self { context, namespace, cluster })
    }

    async fn answer(
        &self,
        request: &CertificateSigningRequest,
        notes: &mut Vec<Note>,
    ) -> Result<Action, Error> {
        if judge::is_answered(request) {
            return Ok(Action::await_change());
        }
        let asked = Asked::from_pem(&String::from_utf8_lossy(&request.spec.request.0));
        let name = asked.as_ref().ok().and_then(Asked::common_name);
        let pod = match judge::pod_of(request) {
            Some((pod, _)) => self.pod(pod).await?,
            None => None,
        };
        match judge(request, name, pod.as_ref(), &self.namespace) {
            Verdict::Deny(why) => {
                self.decide(request, "Denied", reasons::NOT_A_HANDLER, &why).await?;
                notes.push(Note::failed(reasons::NOT_A_HANDLER, why));
            }
            Verdict::Sign { node } => {
                let certificate = self.sign(&asked?, &node, request.spec.expiration_seconds).await?;
                let text = format!("signed for the handler of node {node}");
                let approved = self.decide(request, "Approved", reasons::HANDLER_OF_ITS_NODE, &text).await?;
                self.give(approved, certificate).await?;
                notes.push(Note::done(reasons::HANDLER_OF_ITS_NODE, text));
            }
        }
        Ok(Action::await_change())
    }

    async fn pod(&self, name: &str) -> Result<Option<Pod>, Error> {
        let pods: Api<Pod> = Api::namespaced(self.context.client.clone(), &self.namespace);
        let object = named::<Pod>(Some(&self.namespace), name);
        pods.get_opt(name).await.map_err(Error::api("reading", object))
    }

    async fn sign(&self, asked: &Asked, node: &str, wanted: Option<i32>) -> Result<String, Error> {
        let member = Member::new(&self.cluster, objects::HANDLER, node)?;
        let subject = Subject { common_name: node.to_owned(), member: Some(member), ..Subject::default() };
        let longest = self.longest_life();
        let wanted = wanted.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        let life = wanted.map_or(longest, |wanted| wanted.min(longest));
        // Asked for each time, for it changes: a handler asks once a day.
        let authorities = trust::authorities(self.context.client.clone(), &self.namespace).await?;
        Ok(authorities.signing.sign(asked, &subject, life)?)
    }

    fn longest_life(&self) -> Duration {
        let installation = installation::current(&self.context.installation);
        let strategy = installation.and_then(|one| one.spec.certificate_rotate_strategy.clone());
        let server = strategy.and_then(|strategy| strategy.self_signed).and_then(|signed| signed.server);
        let duration = server.and_then(|server| server.duration);
        duration.filter(|duration| !duration.is_negative()).map_or(LIFE, Duration::from)
    }

    /// Writes the decision, unless it is there: the request may have been decided by one who died before answering.
    async fn decide(
        &self,
        request: &CertificateSigningRequest,
        type_: &str,
        reason: &str,
        message: &str,
    ) -> Result<CertificateSigningRequest, Error> {
        let status = request.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == type_) {
            return Ok(request.clone());
        }
        let now = Some(Time(Timestamp::now()));
        conditions.push(CertificateSigningRequestCondition {
            type_: type_.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_update_time: now.clone(),
            last_transition_time: now,
        });
        let requests: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        let decision = json!({
            "metadata": { "resourceVersion": request.resource_version() },
            "status": { "conditions": conditions },
        });
        requests
            .patch_approval(&request.name_any(), &PatchParams::default(), &Patch::Merge(decision))
            .await
            .map_err(Error::api("deciding on", describe(request)))
    }

    async fn give(&self, mut approved: CertificateSigningRequest, certificate: String) -> Result<(), Error> {
        let status = approved.status.get_or_insert_default();
        status.certificate = Some(ByteString(certificate.into_bytes()));
        let requests: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        let given = requests.replace_status(&approved.name_any(), &PostParams::default(), &approved).await;
        given.map(drop).map_err(Error::api("answering", describe(&approved)))
    }
}
