//! What is to be done for a machine, decided from the machine and its instance.
//!
//! | strategy | no instance | instance ended well | instance failed | instance runs |
//! |---|---|---|---|---|
//! | Always | start | start anew | start anew, later each time | leave it |
//! | RerunOnFailure | start | leave it | start anew, later each time | leave it |
//! | Once | start | leave it | leave it | leave it |
//! | Manual | start if asked | leave it; start anew if asked | as before | stop if asked |
//! | Halted | leave it | delete it | delete it | stop it |
//! | WaitAsReceiver | leave it | leave it | leave it | leave it |
//!
//! A stop that a person asked for (`status.stateChangeRequests`) is obeyed under every strategy; under Always the machine
//! then starts anew: that is a restart. An instance that ended stays as the record of its end until the machine starts anew.

use std::time::Duration;

use api::kubevirt::{
    InstancePhase, RunStrategy, StartFailure, StateChangeAction, VirtualMachine, VirtualMachineInstance,
    VirtualMachineStatus,
};
use api::names::finalizers;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource as _, ResourceExt as _};

use super::{instance, status};

/// A guest that ran this long was started well: what failed before is forgotten.
pub const STARTED_WELL: Duration = Duration::from_mins(5);
/// The first pause between two starts.
const FIRST_PAUSE: u64 = 10;
/// The longest pause between two starts.
const LONGEST_PAUSE: u64 = 300;

/// What is to be done, in this order; the status is written last.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub status: VirtualMachineStatus,
    /// When to look again though nothing changed.
    pub again: Option<Duration>,
}

/// One thing to do. Doing it twice is doing it once.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    Create(Box<VirtualMachineInstance>),
    /// Deletes this very instance.
    Delete {
        name: String,
        uid: String,
    },
}

/// What the strategy wants of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// There is to be a running one.
    Run,
    /// There is to be none.
    Stop,
    /// As it is.
    Leave,
}

/// Decides. `vmi` is the instance of the machine's name, whoever's it is.
pub fn decide(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, now: Timestamp) -> Decision {
    let mut decision =
        Decision { actions: Vec::new(), status: vm.status.clone().unwrap_or_default(), again: None };
    let held = vm.finalizers().iter().any(|finalizer| finalizer == finalizers::MACHINE);
    let own = vmi.filter(|vmi| belongs_to(vmi, vm));
    if vm.metadata.deletion_timestamp.is_some() {
        decision.actions.extend(own.and_then(deletion));
        if held && own.is_none() {
            decision.actions.push(Action::RemoveFinalizer);
        }
        status::describe(vm, own, &mut decision.status, Want::Stop, now);
        return decision;
    }
    if !held {
        decision.actions.push(Action::AddFinalizer);
    }
    if let Some(foreign) = vmi.filter(|_| own.is_none()) {
        status::describe(vm, None, &mut decision.status, Want::Leave, now);
        status::not_owned(foreign, &mut decision.status, now);
        return decision;
    }
    count_failure(own, &mut decision, now);
    let want = want(vm, own, &decision.status);
    match (want, own) {
        (Want::Run, None) => match pause(&decision.status, now) {
            Some(wait) => decision.again = Some(wait),
            None => decision.actions.push(Action::Create(Box::new(instance::of(vm)))),
        },
        // One that ended makes room for the next; one that runs is what was wanted.
        (Want::Run, Some(vmi)) if is_final(vmi) => match pause(&decision.status, now) {
            Some(wait) => decision.again = Some(wait),
            None => decision.actions.extend(deletion(vmi)),
        },
        (Want::Stop, Some(vmi)) => decision.actions.extend(deletion(vmi)),
        _ => {}
    }
    forget_requests(vm, own, &mut decision.status);
    status::describe(vm, own, &mut decision.status, want, now);
    decision
}

fn want(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>, status: &VirtualMachineStatus) -> Want {
    let requested = |action| status.state_change_requests.iter().any(|request| request.action == action);
    let stop = vmi.is_some_and(|vmi| {
        let mut requests = status.state_change_requests.iter();
        requests.any(|request| {
            request.action == StateChangeAction::Stop && (request.uid.is_none() || request.uid == vmi.uid())
        })
    });
    if stop {
        return Want::Stop;
    }
    let phase = vmi.and_then(|vmi| vmi.status.as_ref()?.phase);
    match vm.spec.effective_run_strategy() {
        RunStrategy::Halted => Want::Stop,
        RunStrategy::RerunOnFailure
            if phase == Some(InstancePhase::Succeeded) && !requested(StateChangeAction::Start) =>
        {
            Want::Leave
        }
        RunStrategy::Always | RunStrategy::RerunOnFailure => Want::Run,
        RunStrategy::Once if vmi.is_none() => Want::Run,
        RunStrategy::Manual if requested(StateChangeAction::Start) => Want::Run,
        RunStrategy::Once | RunStrategy::Manual | RunStrategy::WaitAsReceiver => Want::Leave,
    }
}

/// Requests that were obeyed. A start is obeyed when there is an instance that has not ended, a stop when the instance that it
/// was for is on its way out. A halted machine obeys no start, now or later.
fn forget_requests(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    status: &mut VirtualMachineStatus,
) {
    let halted = vm.spec.effective_run_strategy() == RunStrategy::Halted;
    let leaving = vmi.is_some_and(|vmi| vmi.metadata.deletion_timestamp.is_some());
    let started = vmi.is_some_and(|vmi| !is_final(vmi)) && !leaving;
    let mut stopping = false;
    status.state_change_requests.retain(|request| match request.action {
        StateChangeAction::Stop => {
            let about_this = request.uid.is_none() || vmi.is_some_and(|vmi| vmi.uid() == request.uid);
            let open = vmi.is_some() && !leaving && about_this;
            stopping |= open;
            open
        }
        // Asked for after a stop: it is about the next instance.
        StateChangeAction::Start => !halted && (stopping || !started),
    });
}

/// Counts an instance that failed, once; forgets the failures when one was started well.
fn count_failure(vmi: Option<&VirtualMachineInstance>, decision: &mut Decision, now: Timestamp) {
    let Some(vmi) = vmi else { return };
    let phase = vmi.status.as_ref().and_then(|status| status.phase);
    let running_since = entered(vmi, InstancePhase::Running);
    match phase {
        Some(InstancePhase::Running) if decision.status.start_failure.is_some() => {
            let since = running_since.unwrap_or(now);
            match STARTED_WELL.checked_sub(span(since, now)).filter(|left| !left.is_zero()) {
                Some(left) => decision.again = Some(left),
                None => decision.status.start_failure = None,
            }
        }
        Some(InstancePhase::Failed) => {
            let counted = decision.status.start_failure.as_ref();
            if counted.is_some_and(|failure| failure.last_failed_vmi_uid == vmi.uid()) {
                return;
            }
            let ended = entered(vmi, InstancePhase::Failed).unwrap_or(now);
            let well = running_since.is_some_and(|since| span(since, ended) >= STARTED_WELL);
            let before = counted.filter(|_| !well).map_or(0, |failure| failure.consecutive_fail_count);
            let count = before.saturating_add(1);
            let pause = SignedDuration::from_secs(i64::try_from(pause_after(count)).unwrap_or(i64::MAX));
            decision.status.start_failure = Some(StartFailure {
                consecutive_fail_count: count,
                last_failed_vmi_uid: vmi.uid(),
                retry_after_timestamp: ended.checked_add(pause).ok().map(Time),
            });
        }
        // It ended as it should: nothing is wrong with starting it.
        Some(InstancePhase::Succeeded) => decision.status.start_failure = None,
        _ => {}
    }
}

/// Seconds before the next start: ten times the square of the failures in a row, at most five minutes.
pub fn pause_after(failures: u32) -> u64 {
    FIRST_PAUSE.saturating_mul(u64::from(failures).saturating_pow(2)).min(LONGEST_PAUSE)
}

/// What is left of the pause after a failure.
fn pause(status: &VirtualMachineStatus, now: Timestamp) -> Option<Duration> {
    let until = status.start_failure.as_ref()?.retry_after_timestamp.as_ref()?.0;
    Some(span(now, until)).filter(|left| !left.is_zero())
}

fn deletion(vmi: &VirtualMachineInstance) -> Option<Action> {
    let alive = vmi.metadata.deletion_timestamp.is_none();
    alive.then(|| Action::Delete { name: vmi.name_any(), uid: vmi.uid().unwrap_or_default() })
}

pub fn is_final(vmi: &VirtualMachineInstance) -> bool {
    vmi.status.as_ref().and_then(|status| status.phase).is_some_and(InstancePhase::is_final)
}

fn belongs_to(vmi: &VirtualMachineInstance, vm: &VirtualMachine) -> bool {
    vmi.owner_references()
        .iter()
        .any(|owner| owner.kind == VirtualMachine::kind(&()) && vm.uid().as_ref() == Some(&owner.uid))
}

fn entered(vmi: &VirtualMachineInstance, phase: InstancePhase) -> Option<Timestamp> {
    let transitions = &vmi.status.as_ref()?.phase_transition_timestamps;
    let transition = transitions.iter().find(|transition| transition.phase == phase)?;
    Some(transition.phase_transition_timestamp.0)
}

/// From one time to another; nothing if the other is earlier.
fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
