//! What the handler says of an instance: its phase from Running on, its guest's addresses, and what its launcher reports. Pure.
//!
//! Who writes what: the controller owns `Ready`, `LiveMigratable`, `PodScheduled`, the phases up to Scheduled, `nodeName`,
//! `activePods`, `migrationMethod`, names and Ethernet addresses in `interfaces`. The handler owns the phases from Running on
//! with their reason, `Paused`, `Accelerated`, `Synchronized` from Scheduled on, and the rest of `interfaces`. What is not the
//! handler's is not changed here, and an instance that has ended is not changed at all. Of a move, each side writes what it knows: see
//! [`moving`].

use api::condition::{self, ConditionStatus, Observed};
use api::kubevirt::{
    InstanceInterface, InstancePhase, InstancePhaseTransition, VirtualMachineInstance,
    VirtualMachineInstanceStatus,
};
use api::names::{conditions, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use wire::{Accelerator, Ending, Outcome, Phase, Status};

use super::decide::Situation;
use super::moving;
use super::role::Role;
use crate::pods;

/// Who says what is in `interfaces`: the domain, for that is what the launcher made.
const INFO_SOURCE: &str = "domain";

/// The status that the instance should have; none: it has it, or it is not for us to say.
pub fn described<'a>(
    situation: &Situation<'a>,
    instance: &'a VirtualMachineInstance,
    now: Timestamp,
) -> Option<VirtualMachineInstanceStatus> {
    let old = instance.status.as_ref()?;
    let mut new = old.clone();
    let role = situation.role(instance);
    let ours =
        matches!(old.phase, Some(InstancePhase::Scheduled | InstancePhase::Running | InstancePhase::Unknown));
    if ours && role.speaks_for_guest() && old.node_name.as_deref() == Some(situation.node) {
        describe_guest(&mut new, situation, role, instance, now);
    }
    if ours
        && situation.pod.is_some()
        && let Some(record) = moving::record(situation, role, now)
    {
        new.migration_state = Some(record);
    }
    (new != *old).then_some(new)
}

fn describe_guest(
    new: &mut VirtualMachineInstanceStatus,
    situation: &Situation<'_>,
    role: Role<'_>,
    instance: &VirtualMachineInstance,
    now: Timestamp,
) {
    let moved = |heard: &&Status| heard.ending.as_ref().is_some_and(Ending::is_migrated);
    if situation.heard.as_ref().is_some_and(moved) {
        // Whatever happens to the guest from now on happens elsewhere.
        return;
    }
    if let Some(heard) = situation.heard {
        describe(new, heard, now);
    }
    if let Some(refused) = situation.told.refused.as_ref().filter(|refused| refused.0 == "start") {
        let message = format!("the launcher refused to {}: {}", refused.0, refused.1);
        synchronized(new, reasons::LAUNCHER_REFUSED, &message, now);
    }
    let ended = situation.pod.is_none_or(pods::has_ended);
    if ended && !new.phase.is_some_and(InstancePhase::is_final) && !may_be_elsewhere(situation, role) {
        without_a_word(new, situation.pod, instance, now);
    }
}

/// A guest that was on its way when its launcher ended may have arrived, as a whole. Its target says so, or the move fails, and then it is
/// known to have ended here.
fn may_be_elsewhere(situation: &Situation<'_>, role: Role<'_>) -> bool {
    let Role::Source(state) = role else { return false };
    if state.start_timestamp.is_none() {
        return false;
    }
    let phase = situation.pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
    state.target_node_domain_detected || phase != Some("Failed")
}

/// What the launcher says.
fn describe(status: &mut VirtualMachineInstanceStatus, heard: &Status, now: Timestamp) {
    for interface in &heard.interfaces {
        let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
        let name = interface.name.to_string();
        let known = status.interfaces.iter().position(|known| known.name.as_ref() == Some(&name));
        let position = known.unwrap_or_else(|| {
            status.interfaces.push(InstanceInterface { name: Some(name), ..InstanceInterface::default() });
            status.interfaces.len() - 1
        });
        let entry = &mut status.interfaces[position];
        entry.mac = Some(interface.mac);
        entry.ip_address = addresses.first().cloned();
        entry.ip_addresses = addresses;
        entry.pod_interface_name = Some(interface.pod_interface.to_string());
        entry.info_source = Some(INFO_SOURCE.to_owned());
    }
    if let Some(accelerator) = heard.accelerator {
        accelerated(status, accelerator, heard.accelerator_reason.as_deref().unwrap_or_default(), now);
    }
    if matches!(heard.phase, Phase::Running | Phase::Paused | Phase::ShuttingDown) {
        enter(status, InstancePhase::Running, now);
        condition::remove(&mut status.conditions, conditions::SYNCHRONIZED);
    }
    if heard.phase == Phase::Paused {
        let observed = Observed {
            type_: conditions::PAUSED,
            status: ConditionStatus::True,
            reason: reasons::PAUSED_BY_USER,
            message: "the guest's processors are stopped",
        };
        condition::set(&mut status.conditions, &observed, now);
    } else {
        condition::remove(&mut status.conditions, conditions::PAUSED);
    }
    if let Some(ending) = &heard.ending {
        match ending.outcome {
            Outcome::Succeeded => end(status, InstancePhase::Succeeded, &ending.reason, now),
            Outcome::Failed => {
                synchronized(status, &ending.reason, &ending.message, now);
                end(status, InstancePhase::Failed, &ending.reason, now);
            }
        }
    }
}

/// The pod has ended, and the launcher did not say how its guest did, or nobody was there to listen.
fn without_a_word(
    status: &mut VirtualMachineInstanceStatus,
    pod: Option<&Pod>,
    instance: &VirtualMachineInstance,
    now: Timestamp,
) {
    let well = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).map(|phase| phase == "Succeeded");
    let asked_for = instance.metadata.deletion_timestamp.is_some();
    if well.unwrap_or(asked_for) {
        return end(status, InstancePhase::Succeeded, "", now);
    }
    let message = match pod {
        None => "the launcher pod was deleted, and its guest with it".to_owned(),
        Some(pod) => format!("the launcher pod {} ended: {}", pod.name_any(), why(pod)),
    };
    synchronized(status, reasons::LAUNCHER_LOST, &message, now);
    end(status, InstancePhase::Failed, reasons::LAUNCHER_LOST, now);
}

/// How a pod ended, for people.
fn why(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    if let Some(said) = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone())) {
        return said;
    }
    let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let mut ends = containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    let describe = |end: &ContainerStateTerminated| {
        let word = end.reason.as_deref().unwrap_or("ended");
        let text = end.message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        format!("its container ended with code {} ({word}){text}", end.exit_code)
    };
    ends.next().map_or_else(|| "it gave no reason".to_owned(), describe)
}

fn accelerated(
    status: &mut VirtualMachineInstanceStatus,
    accelerator: Accelerator,
    why: &str,
    now: Timestamp,
) {
    let reason = match accelerator {
        Accelerator::Kvm => reasons::RUNS_ON_PROCESSOR,
        Accelerator::Tcg => reasons::EMULATED,
    };
    let observed = Observed {
        type_: conditions::ACCELERATED,
        status: (accelerator == Accelerator::Kvm).into(),
        reason,
        message: why,
    };
    condition::set(&mut status.conditions, &observed, now);
}

fn synchronized(status: &mut VirtualMachineInstanceStatus, reason: &str, message: &str, now: Timestamp) {
    let observed =
        Observed { type_: conditions::SYNCHRONIZED, status: ConditionStatus::False, reason, message };
    condition::set(&mut status.conditions, &observed, now);
}

fn end(status: &mut VirtualMachineInstanceStatus, phase: InstancePhase, reason: &str, now: Timestamp) {
    status.reason = (!reason.is_empty()).then(|| reason.to_owned());
    condition::remove(&mut status.conditions, conditions::PAUSED);
    enter(status, phase, now);
}

/// Enters a phase and remembers when; entering it again changes nothing.
fn enter(status: &mut VirtualMachineInstanceStatus, phase: InstancePhase, now: Timestamp) {
    if status.phase == Some(phase) {
        return;
    }
    status.phase = Some(phase);
    status.phase_transition_timestamps.retain(|transition| transition.phase != phase);
    let entered = InstancePhaseTransition { phase, phase_transition_timestamp: Time(now) };
    status.phase_transition_timestamps.push(entered);
}
