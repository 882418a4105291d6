//! The reconciler of `VirtualMachineInstance`: looks, decides, acts, writes the status.
//!
//! It makes claims of addresses, makes and deletes launcher pods, and nothing else. Pods are read from the API server itself, not from a cache: that a pod is
//! not there ends an instance, and a cache may be late.

mod decide;
mod migratable;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::condition;
use api::ipam::IPAMClaim;
use api::kubevirt::{InstancePhase, VirtualMachineInstance};
use api::names::{annotations, conditions, events, finalizers, labels, reasons};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, ResourceExt as _};

pub use decide::{Action, Decision, Situation, decide, ended};
pub(crate) use status::{launcher_container, launcher_image};

use crate::claims::wanted::Plug;
use crate::error::{Error, describe, named};
use crate::report::Note;
use crate::{Context, claims, edit, pod};

/// A handler that has not been heard of for so long is gone.
const HEARTBEAT_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// Reconciles every instance until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let client = context.client.clone();
    let instances: Api<VirtualMachineInstance> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    let launchers = watcher::Config::default().labels(&format!("{}={}", labels::APP, labels::APP_LAUNCHER));
    Controller::new(instances, watcher::Config::default())
        .owns(pods, launchers)
        .watches(Api::<IPAMClaim>::all(client), watcher::Config::default(), |claim| {
            claims::instance_of(&claim)
        })
        .run(reconcile, |_, error, _| controller::Action::requeue(error.retry_after()), context)
        .for_each(async |_| {})
        .await;
}

async fn reconcile(
    vmi: Arc<VirtualMachineInstance>,
    context: Arc<Context>,
) -> Result<controller::Action, Error> {
    context.report.on(&*vmi, async |notes| bring_about(&vmi, &context, notes).await).await
}

async fn bring_about(
    vmi: &VirtualMachineInstance,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let instances: Api<VirtualMachineInstance> =
        Api::namespaced(context.client.clone(), &vmi.namespace().unwrap_or_default());
    let surroundings = Surroundings::of(vmi, context).await?;
    let situation = surroundings.situation(vmi);
    let Decision { actions, mut status, again } = decide(&situation, Timestamp::now());

    let mut current = vmi.clone();
    let mut failure = None;
    for action in &actions {
        match act(action, &mut current, &instances, context, notes).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Err(error),
            Err(error) => {
                // What did not happen is not reported as done.
                status = vmi.status.clone().unwrap_or_default();
                let phase = status.phase.unwrap_or(InstancePhase::Pending);
                decide::enter(&mut status, phase, Timestamp::now());
                status::out_of_sync(&mut status, reasons::FAILED_CREATE, &error.explain(), Timestamp::now());
                failure = Some(error);
                break;
            }
        }
    }
    if !actions.contains(&Action::RemoveFinalizer) && vmi.status.as_ref() != Some(&status) {
        if status.phase == Some(InstancePhase::Failed) && phase(vmi) != Some(InstancePhase::Failed) {
            let why = condition::find(&status.conditions, conditions::SYNCHRONIZED);
            let text = why.and_then(|why| why.message.clone()).unwrap_or_default();
            notes.push(Note::failed(status.reason.clone().unwrap_or_default(), text));
        }
        current.status = Some(status);
        edit::status(&instances, &current).await?;
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(again.map_or_else(controller::Action::await_change, controller::Action::requeue)),
    }
}

async fn act(
    action: &Action,
    current: &mut VirtualMachineInstance,
    instances: &Api<VirtualMachineInstance>,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &current.namespace().unwrap_or_default());
    match action {
        Action::AddFinalizer => {
            *current = edit::finalizer(instances, current, finalizers::INSTANCE, true).await?;
        }
        Action::RemoveFinalizer => {
            *current = edit::finalizer(instances, current, finalizers::INSTANCE, false).await?;
        }
        Action::MakeClaim(claim) => {
            claims::make(claim, context).await?;
            let name = claim.name_any();
            notes.push(Note::done(events::SUCCESSFUL_CREATE, format!("made IPAMClaim {name}")));
        }
        Action::HoldClaim(claim) => claims::hold(claim, context).await?,
        Action::CreatePod { claims } => create_pod((current, claims), &pods, context, notes).await?,
        Action::DeletePod { name, uid } => {
            edit::delete(&pods, name, uid).await?;
            notes.push(Note::done(events::SUCCESSFUL_DELETE, format!("told pod {name} to end")));
        }
        Action::SetNodeLabel { node } => {
            *current = edit::labels(instances, current, &[(labels::NODE_NAME, Some(node))]).await?;
        }
    }
    Ok(())
}

async fn create_pod(
    (vmi, claims): (&VirtualMachineInstance, &pod::Claims),
    pods: &Api<Pod>,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let pod = pod::render(vmi, claims, &context.launcher);
    let name = pod.name_any();
    match pods.create(&PostParams::default(), &pod).await {
        Ok(_) => {
            notes.push(Note::done(events::SUCCESSFUL_CREATE, format!("made pod {name}")));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            edit::already_made(pods, &pod, labels::CREATED_BY).await
        }
        Err(source) => {
            let error = Error::api("making", describe(&pod))(source);
            notes.push(Note::failed(events::FAILED_CREATE, error.explain()));
            Err(error)
        }
    }
}

fn phase(vmi: &VirtualMachineInstance) -> Option<InstancePhase> {
    vmi.status.as_ref()?.phase
}

/// What the decision looks at, besides the instance.
struct Surroundings {
    pods: Vec<Pod>,
    claims: BTreeMap<String, Option<PersistentVolumeClaim>>,
    plugs: Vec<Plug>,
    node_lost: bool,
    migratable_bindings: Vec<String>,
}

impl Surroundings {
    async fn of(vmi: &VirtualMachineInstance, context: &Context) -> Result<Self, Error> {
        let namespace = vmi.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
        let own = ListParams::default().labels(&format!(
            "{}={}",
            labels::CREATED_BY,
            vmi.uid().unwrap_or_default()
        ));
        let pods = pods.list(&own).await.map_err(Error::api("listing the pods of", describe(vmi)))?.items;

        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        let node_lost = match node {
            // The question comes up only when nothing of the instance runs any more.
            Some(node) if !decide::may_run(vmi.status.as_ref(), &pods) => {
                let nodes: Api<Node> = Api::all(context.client.clone());
                let found =
                    nodes.get_opt(node).await.map_err(Error::api("reading", named::<Node>(None, node)))?;
                found.is_none_or(|node| is_lost(&node, Timestamp::now()))
            }
            _ => false,
        };
        let rules = context.rules();
        let migratable_bindings = rules
            .bindings
            .into_iter()
            .filter(|(_, plugin)| plugin.migration.is_some())
            .map(|(name, _)| name)
            .collect();
        // Of what is given later, nothing is decided here.
        let starts = matches!(phase(vmi), None | Some(InstancePhase::Pending | InstancePhase::Scheduling));
        let starts = starts && vmi.metadata.deletion_timestamp.is_none();
        let plugs = if starts { claims::plugs(vmi, context).await? } else { Vec::new() };
        let claims = volume_claims(vmi, context).await?;
        Ok(Self { pods, claims, plugs, node_lost, migratable_bindings })
    }

    fn situation<'a>(&'a self, vmi: &'a VirtualMachineInstance) -> Situation<'a> {
        Situation {
            vmi,
            pods: &self.pods,
            claims: &self.claims,
            plugs: &self.plugs,
            node_lost: self.node_lost,
            migratable_bindings: &self.migratable_bindings,
        }
    }
}

async fn volume_claims(
    vmi: &VirtualMachineInstance,
    context: &Context,
) -> Result<BTreeMap<String, Option<PersistentVolumeClaim>>, Error> {
    let namespace = vmi.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &namespace);
    let mut found = BTreeMap::new();
    for claim in vmi.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
        let object = named::<PersistentVolumeClaim>(Some(&namespace), &claim.claim_name);
        let there = claims.get_opt(&claim.claim_name).await.map_err(Error::api("reading", object))?;
        found.insert(claim.claim_name.clone(), there);
    }
    Ok(found)
}

/// Whether nobody on the node can say any more how a guest ended: Kubernetes has not heard of the node, or we have not heard of
/// its handler.
fn is_lost(node: &Node, now: Timestamp) -> bool {
    let heartbeat =
        node.annotations().get(annotations::HEARTBEAT).and_then(|text| text.parse::<Timestamp>().ok());
    does_not_answer(node) || heartbeat.is_some_and(|last| now.duration_since(last) > HEARTBEAT_GRACE)
}

/// Whether Kubernetes has not heard of the node.
pub(crate) fn does_not_answer(node: &Node) -> bool {
    let mut conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status != "True")
}
