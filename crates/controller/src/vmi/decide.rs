//! What is to be done for an instance, decided from what is there.
//!
//! ```text
//!              pod made        pod runs on a node        handler: guest runs     handler: guest ended
//!   Pending ──────────► Scheduling ──────────► Scheduled ─ ─ ─ ─ ─ ─ ─ ─► Running ─ ─ ─ ─ ─ ─ ─► Succeeded, Failed
//!                           │                      │                         │
//!                           └─ pod ended or gone ──┴─────────────────────────┴─ pod gone, and nobody left to say why ─► Failed
//! ```
//!
//! Solid lines are the controller's, dashed ones the handler's. A pod that is gone took its guest with it; one that merely
//! does not answer may still run it, so an instance is never called Failed while its pod exists and has not ended: that
//! would start the guest twice. While a guest moves there are two pods, of which one is active and the other may become so: the
//! guest is in one of them, and which is for the migration to find out.

use std::collections::BTreeMap;
use std::time::Duration;

use api::condition::{self, Condition, ConditionEntry as _, ConditionStatus};
use api::ipam::IPAMClaim;
use api::kubevirt::{
    InstancePhase, InstancePhaseTransition, VirtualMachineInstance, VirtualMachineInstanceStatus,
};
use api::names::{conditions, finalizers, interfaces, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use migration::Role;

use super::status;
use crate::claims::wanted::{Plug, Standing};
use crate::pod::{self, Claims};

/// How long the handler has to say how a guest ended whose pod is gone.
pub const HANDLER_GRACE: Duration = Duration::from_mins(1);
/// How long the launcher of a guest that ended has to end by itself.
pub const LAUNCHER_GRACE: Duration = Duration::from_secs(30);
/// How many pods that a guest has left, or never came to, are kept for their logs. The newest ones: a move that fails says why by its pod.
const KEPT: usize = 2;
/// How often a claim is looked for that is not there.
pub const CLAIM_PAUSE: Duration = Duration::from_secs(10);

/// Everything that the decision looks at.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    pub vmi: &'a VirtualMachineInstance,
    /// Its launcher pods.
    pub pods: &'a [Pod],
    /// The claims that it names; none: there is no such claim.
    pub claims: &'a BTreeMap<String, Option<PersistentVolumeClaim>>,
    /// Its secondary networks, as long as it has not started.
    pub plugs: &'a [Plug],
    /// Its node is gone, or does not answer.
    pub node_lost: bool,
    /// Binding plugins whose vNICs can move.
    pub migratable_bindings: &'a [String],
}

/// What is to be done, in this order; the status is written last.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub status: VirtualMachineInstanceStatus,
    /// When to look again though nothing changed.
    pub again: Option<Duration>,
}

/// One thing to do. Doing it twice is doing it once.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    /// Makes the claim of a vNIC's addresses.
    MakeClaim(Box<IPAMClaim>),
    /// Holds one that is there.
    HoldClaim(Box<IPAMClaim>),
    CreatePod {
        claims: Claims,
    },
    /// Ends this very pod, with the time that its guest has.
    DeletePod {
        name: String,
        uid: String,
    },
    /// Tells the handler of this node that the instance is its own now.
    SetNodeLabel {
        node: String,
    },
}

/// Decides. Deciding again after everything was done decides on nothing.
pub fn decide(situation: &Situation<'_>, now: Timestamp) -> Decision {
    let vmi = situation.vmi;
    let mut decision =
        Decision { actions: Vec::new(), status: vmi.status.clone().unwrap_or_default(), again: None };
    if vmi.metadata.deletion_timestamp.is_some() {
        leave(situation, &mut decision, now);
        return decision;
    }
    if !vmi.finalizers().iter().any(|finalizer| finalizer == finalizers::INSTANCE) {
        decision.actions.push(Action::AddFinalizer);
    }
    match phase(&decision.status) {
        InstancePhase::Pending => begin(situation, &mut decision, now),
        InstancePhase::Scheduling => schedule(situation, &mut decision, now),
        InstancePhase::Scheduled | InstancePhase::Running | InstancePhase::Unknown => {
            watch_over(situation, &mut decision, now);
        }
        InstancePhase::Succeeded | InstancePhase::Failed => finish(situation, &mut decision, now),
        // The gateway's.
        InstancePhase::WaitingForSync => {}
    }
    status::describe(situation, &mut decision.status, now);
    decision
}

/// A new instance has no phase yet; it is pending.
fn phase(status: &VirtualMachineInstanceStatus) -> InstancePhase {
    status.phase.unwrap_or(InstancePhase::Pending)
}

/// Pending: the pod is made, once everything that it refers to is there.
fn begin(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) {
    enter(&mut decision.status, InstancePhase::Pending, now);
    if !situation.pods.is_empty() {
        return schedule(situation, decision, now);
    }
    if let Some((claim, _)) = situation.claims.iter().find(|(_, found)| found.is_none()) {
        let message =
            format!("the PersistentVolumeClaim {claim:?} does not exist; the instance starts when it does");
        status::out_of_sync(&mut decision.status, reasons::CLAIM_NOT_FOUND, &message, now);
        decision.again = Some(CLAIM_PAUSE);
        return;
    }
    let Some(claims) = claim_addresses(situation, decision, now) else { return };
    decision.actions.push(Action::CreatePod { claims });
    status::in_sync(&mut decision.status);
    enter(&mut decision.status, InstancePhase::Scheduling, now);
}

/// The claims of the vNICs, which are to be there before the pod that refers to them; none: one of them cannot be had.
fn claim_addresses(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) -> Option<Claims> {
    for plug in situation.plugs {
        if let Standing::Refused { reason, message } = &plug.standing {
            status::out_of_sync(&mut decision.status, reason, message, now);
            decision.again = Some(CLAIM_PAUSE);
            return None;
        }
    }
    let mut claims = Claims::new();
    for plug in situation.plugs {
        match &plug.standing {
            Standing::Missing(claim) => decision.actions.push(Action::MakeClaim(claim.clone())),
            Standing::Loose(claim) => decision.actions.push(Action::HoldClaim(claim.clone())),
            Standing::Ready(_) | Standing::Unclaimed | Standing::Refused { .. } => {}
        }
        let claim = plug.claim().map(|claim| (interfaces::of_network(&plug.network), claim.name_any()));
        claims.extend(claim);
    }
    Some(claims)
}

/// Scheduling: the pod waits for a node and for its container.
fn schedule(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) {
    enter(&mut decision.status, InstancePhase::Scheduling, now);
    let Some(pod) = situation.pods.iter().find(|pod| !ended(pod)) else {
        let (reason, message) = status::why_ended(situation.pods.first());
        fail(&mut decision.status, reason, &message, now);
        return;
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    if let (Some(node), "Running") = (node, pod_phase(pod)) {
        decision.actions.push(Action::SetNodeLabel { node: node.clone() });
        decision.status.node_name = Some(node);
        decision.status.launcher_container_image_version = status::launcher_image(pod);
        status::in_sync(&mut decision.status);
        return enter(&mut decision.status, InstancePhase::Scheduled, now);
    }
    // Somebody may have deleted a claim just before the pod that refers to it was made: without it the pod would wait for ever.
    let referred_to = pod::claims_of(pod);
    for plug in situation.plugs {
        if let Standing::Missing(claim) = &plug.standing
            && referred_to.values().any(|name| *name == claim.name_any())
        {
            decision.actions.push(Action::MakeClaim(claim.clone()));
        }
    }
    status::why_waiting(pod, &mut decision.status, now);
    if let Some((reason, message)) = situation.plugs.iter().find_map(Plug::why_none) {
        status::out_of_sync(&mut decision.status, reason, message, now);
    }
}

/// Scheduled and Running are the handler's to leave, as long as it can.
fn watch_over(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) {
    if may_run(Some(&decision.status), situation.pods) {
        return decision.actions.extend(clear_away(&decision.status, situation.pods));
    }
    let node = decision.status.node_name.clone().unwrap_or_default();
    if situation.node_lost {
        let message = format!("node {node} was lost, and the instance with it");
        return fail(&mut decision.status, reasons::NODE_UNRESPONSIVE, &message, now);
    }
    let active = |pod: &&Pod| Role::of(Some(&decision.status), pod) == Role::Active;
    let (reason, message) = status::why_ended(situation.pods.iter().find(active));
    // The guest never ran, so there is nothing that the handler could add.
    if phase(&decision.status) == InstancePhase::Scheduled {
        return fail(&mut decision.status, reason, &message, now);
    }
    match remaining(unready_since(&decision.status.conditions).unwrap_or(now), HANDLER_GRACE, now) {
        Some(wait) => decision.again = Some(wait),
        None => fail(&mut decision.status, reason, &message, now),
    }
}

/// The guest ended: a launcher that does not end by itself is ended.
fn finish(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) {
    let ended_at = decision.status.phase_transition_timestamps.last();
    let since = ended_at.map_or(now, |transition| transition.phase_transition_timestamp.0);
    let stuck = deletions(situation.pods);
    if stuck.is_empty() {
        return;
    }
    match remaining(since, LAUNCHER_GRACE, now) {
        Some(wait) => decision.again = Some(wait),
        None => decision.actions.extend(stuck),
    }
}

/// The instance is being deleted: its pods go, then it may.
fn leave(situation: &Situation<'_>, decision: &mut Decision, now: Timestamp) {
    let held = situation.vmi.finalizers().iter().any(|finalizer| finalizer == finalizers::INSTANCE);
    decision.actions.extend(deletions(situation.pods));
    status::describe(situation, &mut decision.status, now);
    if held && situation.pods.iter().all(ended) {
        decision.actions.push(Action::RemoveFinalizer);
    }
}

/// Pods that nobody has told to end yet.
fn deletions(pods: &[Pod]) -> Vec<Action> {
    pods.iter().filter(|pod| !ended(pod)).filter_map(delete).collect()
}

/// What is left of earlier moves: every move leaves a pod that has ended.
fn clear_away(status: &VirtualMachineInstanceStatus, pods: &[Pod]) -> Vec<Action> {
    let past = |pod: &&Pod| ended(pod) && matches!(Role::of(Some(status), pod), Role::Left | Role::Idle);
    let mut past: Vec<&Pod> = pods.iter().filter(past).collect();
    past.sort_by_key(|pod| std::cmp::Reverse(pod.creation_timestamp().map(|Time(made)| made)));
    past.into_iter().skip(KEPT).filter_map(delete).collect()
}

fn delete(pod: &Pod) -> Option<Action> {
    let deletion = || Action::DeletePod { name: pod.name_any(), uid: pod.uid().unwrap_or_default() };
    pod.metadata.deletion_timestamp.is_none().then(deletion)
}

/// Whether the guest may run: its pod has not ended, or that of a move that is under way.
pub fn may_run(status: Option<&VirtualMachineInstanceStatus>, pods: &[Pod]) -> bool {
    pods.iter().any(|pod| !ended(pod) && matches!(Role::of(status, pod), Role::Active | Role::Target))
}

/// Whether nothing of the pod runs any more.
pub fn ended(pod: &Pod) -> bool {
    matches!(pod_phase(pod), "Succeeded" | "Failed")
}

pub fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Enters a phase and remembers when; entering it again changes nothing.
pub fn enter(status: &mut VirtualMachineInstanceStatus, phase: InstancePhase, now: Timestamp) {
    if status.phase == Some(phase) {
        return;
    }
    status.phase = Some(phase);
    status.phase_transition_timestamps.retain(|transition| transition.phase != phase);
    status
        .phase_transition_timestamps
        .push(InstancePhaseTransition { phase, phase_transition_timestamp: Time(now) });
}

fn fail(status: &mut VirtualMachineInstanceStatus, reason: &str, message: &str, now: Timestamp) {
    status.reason = Some(reason.to_owned());
    status::out_of_sync(status, reason, message, now);
    enter(status, InstancePhase::Failed, now);
}

/// Since when the instance has not been ready.
fn unready_since(entries: &[Condition]) -> Option<Timestamp> {
    let ready = condition::find(entries, conditions::READY)?;
    (ready.status() == ConditionStatus::False).then_some(ready.last_transition_time.as_ref()?.0)
}

/// What is left of a span that began then; none: it is over.
fn remaining(since: Timestamp, span: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.checked_sub(passed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests;
