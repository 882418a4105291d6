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
//! A pod that takes part in a move has steps of its own: see [`moving`], and [`role`](super::role) for which pod that is.
//!
//! It goes by what is there, never by what was done before, so a handler that was killed goes on where it was. A launcher that
//! cannot be reached may still run its guest: an instance ends only when its launcher says so, or when its pod has ended.

use std::time::Duration;

use api::kubevirt::{
    InstancePhase, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineInstanceStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use wire::{AcceleratorPolicy, Command, MigrationPhase, Phase, Status};

use super::moving::{self, Obstacle, Progress, Receive, Send};
use super::role::Role;
use super::status;
use crate::pods;
use crate::road::Here;

/// How long a guest that was told to shut down may be there beyond its time before it is killed.
const BEYOND_GRACE: Duration = Duration::from_secs(5);

/// Everything that the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// This node.
    pub node: &'a str,
    /// None: it is gone.
    pub pod: Option<&'a Pod>,
    /// The pod as it was last seen: who it was says whose guest goes with it.
    pub known: &'a Pod,
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
    /// Where guest memory arrives on this node; none: nowhere.
    pub here: Option<Here>,
    /// The migration whose door is open.
    pub receiving: Option<&'a str>,
    /// The migration whose sockets are open.
    pub sending: Option<&'a str>,
    /// What is in their way.
    pub obstacle: Option<&'a Obstacle>,
}

impl<'a> Situation<'a> {
    /// What the pod is to its instance, or was.
    pub fn role(&self, instance: &'a VirtualMachineInstance) -> Role<'a> {
        Role::of(self.node, self.known, instance)
    }
}

/// What a launcher was told on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// To start a guest, or to wait for one.
    pub start: bool,
    /// To move the guest with this migration.
    pub migrate: Option<String>,
    /// To give that move up.
    pub cancel: bool,
    /// When: that a guest which has arrived has left its source.
    pub take_over: Option<Timestamp>,
    pub shutdown: Option<Timestamp>,
    pub kill: bool,
    /// The last command of those that matter that it refused, and why.
    pub refused: Option<(String, String)>,
}

impl Told {
    /// Remembers that the launcher was told this.
    pub fn note(&mut self, command: &Command, now: Timestamp) {
        match command {
            Command::Start { .. } | Command::PrepareTarget { .. } => self.start = true,
            Command::Migrate { options } => {
                self.migrate = Some(options.uid.clone());
                // What was said of the move before this one says nothing of it.
                self.cancel = false;
                self.refused.take_if(|(refused, _)| refused == command.name());
            }
            Command::CancelMigration => self.cancel = true,
            Command::TakeOver { .. } => self.take_over = Some(now),
            Command::Shutdown { .. } => self.shutdown = Some(now),
            Command::Kill => self.kill = true,
            _ => {}
        }
    }
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
    /// The door to hold open; none: none.
    pub receive: Option<Receive>,
    /// The sockets to hold open; none: none.
    pub send: Option<Send>,
    /// What to tell the migration.
    pub progress: Option<Progress>,
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
    let decision = Decision { attend: !situation.connected, tell, status, again, ..Decision::default() };
    let Some(instance) = situation.instance else { return decision };
    let role = situation.role(instance);
    Decision {
        receive: moving::receive(situation, role, instance),
        send: moving::send(situation, role, instance),
        progress: moving::progress(situation, role),
        ..decision
    }
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
        Phase::Preparing
            | Phase::Starting
            | Phase::ReadyForMigration
            | Phase::Arrived
            | Phase::Running
            | Phase::Paused
            | Phase::ShuttingDown
    );
    let role = situation.role(instance);
    // A pod that is to go while its guest leaves it has it best elsewhere.
    let moves = heard.migration.as_ref().is_some_and(|report| report.phase == MigrationPhase::Running);
    let leaving = instance.metadata.deletion_timestamp.is_some()
        || (pod.metadata.deletion_timestamp.is_some() && !moves);
    if phase.is_some_and(InstancePhase::is_final) && has_guest {
        // Somebody gave this guest up, and may have started it elsewhere: it must not come back.
        return ((!told.kill).then_some(Command::Kill), None);
    }
    if heard.phase == Phase::Arrived && instance.metadata.deletion_timestamp.is_none() {
        // Also in a pod that is to go: it may be nowhere else.
        return (moving::arrived(role, told, instance), None);
    }
    if leaving && has_guest {
        return leave(&instance.spec, told, now);
    }
    if leaving {
        return (None, None);
    }
    let begins = phase == Some(InstancePhase::Scheduled) && role == Role::Home;
    if heard.phase == Phase::Waiting && begins && !told.start {
        let vmi = Box::new(instance.clone());
        return (Some(Command::Start { vmi, accelerator: situation.accelerator }), None);
    }
    (moving::command(situation, role, instance), None)
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

#[cfg(test)]
mod tests;
