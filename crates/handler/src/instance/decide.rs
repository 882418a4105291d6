//! What is to be done for a launcher pod, decided from what is known. Pure.
//!
//! ```text
//!              pod runs              launcher: waiting            launcher: running
//!  Starting ───────────► (connect) ───────────────────► (start) ─────────────────────► instance Running
//!     │                     ▲  │ connection lost                                             │
//!     │                     └──┘                    instance or pod is being deleted         │
//!     │                                         ┌──────────── (shutdown, then kill) ◄────────┤
//!     │ pod ended or gone                       ▼                                            │ launcher: ended
//!     └───────────────► (give back vNICs) ──► instance Succeeded or Failed ◄─────────────────┘
//! ```
//!
//! It goes by what is there, never by what was done before, so a handler that was killed goes on where it was. A launcher that
//! cannot be reached may still run its guest: an instance ends only when its launcher says so, or when its pod has ended.

use std::time::Duration;

use api::kubevirt::{
    InstancePhase, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineInstanceStatus,
};
use api::names::labels;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use wire::{AcceleratorPolicy, Command, Phase, Status};

use super::status;
use crate::pods;

/// How long a guest that was told to shut down may be there beyond its time before it is killed.
const BEYOND_GRACE: Duration = Duration::from_secs(5);

/// Everything that the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// This node.
    pub node: &'a str,
    /// None: it is gone.
    pub pod: Option<&'a Pod>,
    /// None: it is gone, or not of this node yet.
    pub instance: Option<&'a VirtualMachineInstance>,
    /// There is a conversation with the launcher.
    pub connected: bool,
    /// What the launcher said last, on this connection or an earlier one.
    pub heard: Option<&'a Status>,
    /// What it was told on this connection.
    pub told: &'a Told,
    /// Something is attached for the pod.
    pub attached: bool,
    /// What may execute the guest's instructions here.
    pub accelerator: AcceleratorPolicy,
}

/// What a launcher was told on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub start: bool,
    pub shutdown: Option<Timestamp>,
    pub kill: bool,
    /// The last command that it refused, and why.
    pub refused: Option<(String, String)>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Serve the CNI proxy, and talk to the launcher.
    pub attend: bool,
    /// Tell the launcher.
    pub tell: Option<Command>,
    /// The status of the instance; none: it is right as it is.
    pub status: Option<Box<VirtualMachineInstanceStatus>>,
    /// Stop serving, and give back what the pod had.
    pub release: bool,
    /// Nothing is left to be done for this pod, ever.
    pub finished: bool,
    /// When to look again though nothing changed.
    pub again: Option<Duration>,
}

/// Decides.
pub fn decide(situation: &Situation<'_>, now: Timestamp) -> Decision {
    let status =
        situation.instance.and_then(|instance| status::described(situation, instance, now)).map(Box::new);
    let Some(pod) = situation.pod else {
        return Decision {
            // What cannot be given back yet is tried again.
            finished: status.is_none() && !situation.attached,
            release: situation.attached,
            status,
            ..Decision::default()
        };
    };
    if pods::has_ended(pod) {
        return Decision { release: situation.attached, status, ..Decision::default() };
    }
    if pod.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Running") {
        return Decision { status, ..Decision::default() };
    }
    let (tell, again) = command(situation, pod, now);
    Decision { attend: !situation.connected, tell, status, again, ..Decision::default() }
}

/// What the launcher is to be told, or when to look whether it is.
fn command(situation: &Situation<'_>, pod: &Pod, now: Timestamp) -> (Option<Command>, Option<Duration>) {
    let (Some(heard), Some(instance)) = (situation.heard.filter(|_| situation.connected), situation.instance)
    else {
        return (None, None);
    };
    let told = situation.told;
    let phase = instance.status.as_ref().and_then(|status| status.phase);
    let has_guest = matches!(
        heard.phase,
        Phase::Preparing | Phase::Starting | Phase::Running | Phase::Paused | Phase::ShuttingDown
    );
    let leaving = instance.metadata.deletion_timestamp.is_some() || pod.metadata.deletion_timestamp.is_some();
    if phase.is_some_and(InstancePhase::is_final) && has_guest {
        // Somebody gave this guest up, and may have started it elsewhere: it must not come back.
        return ((!told.kill).then_some(Command::Kill), None);
    }
    if leaving && has_guest {
        return leave(&instance.spec, told, now);
    }
    let ours = phase == Some(InstancePhase::Scheduled) && is_for_here(situation.node, pod, instance);
    let start = heard.phase == Phase::Waiting && ours && !leaving && !told.start;
    let command = || Command::Start { vmi: Box::new(instance.clone()), accelerator: situation.accelerator };
    (start.then(command), None)
}

/// The guest is asked to shut down; what is still there well after its time is killed.
fn leave(
    spec: &VirtualMachineInstanceSpec,
    told: &Told,
    now: Timestamp,
) -> (Option<Command>, Option<Duration>) {
    let grace = spec
        .termination_grace_period_seconds
        .unwrap_or(VirtualMachineInstanceSpec::DEFAULT_GRACE_PERIOD_SECONDS);
    let grace_seconds = u32::try_from(grace.max(0)).unwrap_or(u32::MAX);
    let Some(since) = told.shutdown else {
        return (Some(Command::Shutdown { grace_seconds }), None);
    };
    if told.kill {
        return (None, None);
    }
    let span = Duration::from_secs(grace_seconds.into()) + BEYOND_GRACE;
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match span.checked_sub(passed).filter(|left| !left.is_zero()) {
        Some(left) => (None, Some(left)),
        None => (Some(Command::Kill), None),
    }
}

/// Whether the pod is where the instance begins its life. A pod that was made for a move gets its guest from elsewhere.
pub fn is_for_here(node: &str, pod: &Pod, instance: &VirtualMachineInstance) -> bool {
    let here = instance.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(node);
    here && !pod.labels().contains_key(labels::MIGRATION_JOB_UID)
}

#[cfg(test)]
mod tests;
