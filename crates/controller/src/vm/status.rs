//! What is said of a machine: a function of the machine, its instance and what is wanted.

use api::condition::{self, ConditionEntry, ConditionStatus, Observed};
use api::kubevirt::{
    InstancePhase, PrintableStatus, RunStrategy, VirtualMachine, VirtualMachineInstance, VirtualMachineStatus,
};
use api::names::{conditions, reasons};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::decide::{Want, is_final};
use super::instance;

pub(super) fn describe(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    status: &mut VirtualMachineStatus,
    want: Want,
    now: Timestamp,
) {
    status.created = vmi.is_some();
    status.run_strategy = Some(vm.spec.effective_run_strategy());
    status.desired_generation = vm.metadata.generation;
    if let Some(vmi) = vmi {
        status.observed_generation = instance::generation(vmi);
    }
    status.printable_status = Some(printable(vm, vmi, status, want));
    ready(vmi, status, now);
    restart_required(vm, vmi, status, now);
    condition::remove(&mut status.conditions, conditions::FAILURE);
}

/// One word. The order of the questions is the order of what a person wants to know first.
fn printable(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    status: &VirtualMachineStatus,
    want: Want,
) -> PrintableStatus {
    if vm.metadata.deletion_timestamp.is_some() {
        return PrintableStatus::Terminating;
    }
    let Some(vmi) = vmi.filter(|vmi| !is_final(vmi) || vmi.metadata.deletion_timestamp.is_some()) else {
        return match want {
            Want::Run if status.start_failure.is_some() => PrintableStatus::CrashLoopBackOff,
            Want::Run => PrintableStatus::Starting,
            _ if vm.spec.effective_run_strategy() == RunStrategy::WaitAsReceiver => {
                PrintableStatus::WaitingForReceiver
            }
            _ => PrintableStatus::Stopped,
        };
    };
    if vmi.metadata.deletion_timestamp.is_some() || want == Want::Stop {
        return PrintableStatus::Stopping;
    }
    of_instance(vmi)
}

fn of_instance(vmi: &VirtualMachineInstance) -> PrintableStatus {
    let Some(status) = &vmi.status else { return PrintableStatus::Starting };
    if condition::is_true(&status.conditions, conditions::PAUSED) {
        return PrintableStatus::Paused;
    }
    let moving = |state: &api::kubevirt::MigrationState| {
        state.start_timestamp.is_some() && state.end_timestamp.is_none()
    };
    match status.phase {
        Some(InstancePhase::Running) if status.migration_state.as_ref().is_some_and(moving) => {
            PrintableStatus::Migrating
        }
        Some(InstancePhase::Running) => PrintableStatus::Running,
        Some(InstancePhase::Unknown) => PrintableStatus::Unknown,
        Some(InstancePhase::WaitingForSync) => PrintableStatus::WaitingForReceiver,
        _ if condition::is_false(&status.conditions, conditions::POD_SCHEDULED) => {
            PrintableStatus::Unschedulable
        }
        _ => {
            match condition::find(&status.conditions, conditions::SYNCHRONIZED).map(ConditionEntry::reason) {
                Some(reasons::CLAIM_NOT_FOUND) => PrintableStatus::PvcNotFound,
                Some(reasons::ERR_IMAGE_PULL) => PrintableStatus::ErrImagePull,
                Some(reasons::IMAGE_PULL_BACK_OFF) => PrintableStatus::ImagePullBackOff,
                _ => PrintableStatus::Starting,
            }
        }
    }
}

fn ready(vmi: Option<&VirtualMachineInstance>, status: &mut VirtualMachineStatus, now: Timestamp) {
    let entries = vmi.and_then(|vmi| vmi.status.as_ref()).map(|status| status.conditions.as_slice());
    let observed = match condition::find(entries.unwrap_or_default(), conditions::READY) {
        Some(entry) => Observed {
            type_: conditions::READY,
            status: entry.status(),
            reason: entry.reason(),
            message: entry.message(),
        },
        None if vmi.is_some() => Observed {
            type_: conditions::READY,
            status: ConditionStatus::False,
            reason: reasons::GUEST_NOT_RUNNING,
            message: "the instance was just made",
        },
        None => Observed {
            type_: conditions::READY,
            status: ConditionStatus::False,
            reason: reasons::INSTANCE_NOT_EXISTS,
            message: "VMI does not exist",
        },
    };
    status.ready = observed.status == ConditionStatus::True;
    condition::set(&mut status.conditions, &observed, now);
}

fn restart_required(
    vm: &VirtualMachine,
    vmi: Option<&VirtualMachineInstance>,
    status: &mut VirtualMachineStatus,
    now: Timestamp,
) {
    let stale = vmi.is_some_and(|vmi| !is_final(vmi) && !instance::is_of_template(vmi, vm));
    if !stale {
        condition::remove(&mut status.conditions, conditions::RESTART_REQUIRED);
        return;
    }
    let observed = Observed {
        type_: conditions::RESTART_REQUIRED,
        status: ConditionStatus::True,
        reason: reasons::TEMPLATE_CHANGED,
        message: "the template changed after the guest was started; the change takes effect at the next start",
    };
    condition::set(&mut status.conditions, &observed, now);
}

/// An instance of the machine's name is in the way.
pub(super) fn not_owned(foreign: &VirtualMachineInstance, status: &mut VirtualMachineStatus, now: Timestamp) {
    let message = format!(
        "the VirtualMachineInstance {:?} exists and does not belong to this machine; delete it, or rename the machine",
        foreign.name_any()
    );
    failed(status, reasons::INSTANCE_NOT_OWNED, &message, now);
}

/// The last attempt to reach the spec failed.
pub(super) fn failed(status: &mut VirtualMachineStatus, reason: &str, message: &str, now: Timestamp) {
    let observed = Observed { type_: conditions::FAILURE, status: ConditionStatus::True, reason, message };
    condition::set(&mut status.conditions, &observed, now);
}
