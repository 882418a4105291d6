//! What the controller says of an instance.
//!
//! Who writes what: the controller owns `Ready`, `LiveMigratable`, `PodScheduled`, the first phases, `activePods`,
//! `migrationMethod`; the handler owns everything about the guest (`Paused`, `AgentConnected`, the phases from Running on, what
//! `interfaces` says beyond names and Ethernet addresses). `Synchronized` belongs to whoever owns the phase. Nothing that is
//! not the controller's is changed here.

use std::collections::BTreeMap;

use api::condition::{self, ConditionStatus, Observed};
use api::kubevirt::{
    InstanceInterface, InstancePhase, MigrationMethod, MigrationTransport, VirtualMachineInstanceStatus,
};
use api::names::{conditions, objects, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt as _;
use migration::Role;

use super::decide::{Situation, ended};
use super::migratable;
use crate::mac;

/// Reasons for which a container waits and will not start without help.
const CANNOT_START: [&str; 6] = [
    reasons::ERR_IMAGE_PULL,
    reasons::IMAGE_PULL_BACK_OFF,
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Everything that follows from what is there, whatever the phase.
pub(super) fn describe(situation: &Situation<'_>, status: &mut VirtualMachineInstanceStatus, now: Timestamp) {
    let vmi = situation.vmi;
    for interface in &vmi.spec.domain.devices.interfaces {
        let mac = Some(mac::of(vmi, interface));
        let name = Some(interface.name.clone());
        match status.interfaces.iter_mut().find(|known| known.name == name) {
            Some(known) => known.mac = known.mac.or(mac),
            None => {
                status.interfaces.push(InstanceInterface { name, mac, ..InstanceInterface::default() });
            }
        }
    }
    status.active_pods = active_pods(situation.pods);
    status.migration_method = Some(if migratable::copies_disks(&vmi.spec) {
        MigrationMethod::BlockMigration
    } else {
        MigrationMethod::LiveMigration
    });
    status.migration_transport = Some(MigrationTransport::Unix);

    let moves = migratable::decide(situation);
    let (reason, message) =
        moves.as_ref().map_or(("", ""), |obstacle| (obstacle.reason, obstacle.message.as_str()));
    let observed =
        Observed { type_: conditions::LIVE_MIGRATABLE, status: moves.is_none().into(), reason, message };
    condition::set(&mut status.conditions, &observed, now);
    if let Some(node) = status.evacuation_node_name.clone() {
        let message = format!("it was evicted from node {node}");
        let observed = Observed {
            type_: conditions::EVICTION_REQUESTED,
            status: ConditionStatus::True,
            reason: reasons::EVICTION_REQUESTED,
            message: &message,
        };
        condition::set(&mut status.conditions, &observed, now);
    } else {
        condition::remove(&mut status.conditions, conditions::EVICTION_REQUESTED);
    }
    ready(situation.pods, status, now);
}

/// Pods by UID, each with its node; only those that have one and still run.
fn active_pods(pods: &[Pod]) -> BTreeMap<String, String> {
    let node = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    pods.iter().filter(|pod| !ended(pod)).filter_map(|pod| Some((pod.uid()?, node(pod)?))).collect()
}

/// Ready: the guest runs, in a pod that is ready and stays.
fn ready(pods: &[Pod], status: &mut VirtualMachineInstanceStatus, now: Timestamp) {
    let lives = |role| pods.iter().find(|pod| !ended(pod) && Role::of(Some(status), pod) == role);
    // A guest that moves is in one of the two.
    let pod = lives(Role::Active).or_else(|| lives(Role::Target));
    let pod_ready = pod.and_then(|pod| pod_condition(pod, "Ready"));
    let (holds, reason, message) = match pod {
        None => {
            (false, reasons::POD_NOT_EXISTS, "virt-launcher pod has not yet been scheduled or is gone".into())
        }
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => {
            (false, reasons::POD_TERMINATING, format!("pod {} is being deleted", pod.name_any()))
        }
        Some(_) if status.phase != Some(InstancePhase::Running) => {
            (false, reasons::GUEST_NOT_RUNNING, "Guest VM is not reported as running".into())
        }
        Some(_) if pod_ready.is_some_and(|ready| ready.status == "True") => (true, "", String::new()),
        Some(_) => {
            let reason = pod_ready.and_then(|ready| ready.reason.as_deref()).unwrap_or("PodNotReady");
            let message = pod_ready.and_then(|ready| ready.message.clone());
            (false, reason, message.unwrap_or_else(|| "the pod is not ready".into()))
        }
    };
    let observed = Observed { type_: conditions::READY, status: holds.into(), reason, message: &message };
    condition::set(&mut status.conditions, &observed, now);
}

/// The last attempt to reach the spec failed.
pub fn out_of_sync(status: &mut VirtualMachineInstanceStatus, reason: &str, message: &str, now: Timestamp) {
    let observed =
        Observed { type_: conditions::SYNCHRONIZED, status: ConditionStatus::False, reason, message };
    condition::set(&mut status.conditions, &observed, now);
}

/// Nothing is in the way any more.
pub(super) fn in_sync(status: &mut VirtualMachineInstanceStatus) {
    condition::remove(&mut status.conditions, conditions::SYNCHRONIZED);
    condition::remove(&mut status.conditions, conditions::POD_SCHEDULED);
}

/// Why a pod does not run yet, if it is something to tell.
pub(super) fn why_waiting(pod: &Pod, status: &mut VirtualMachineInstanceStatus, now: Timestamp) {
    match pod_condition(pod, "PodScheduled").filter(|scheduled| scheduled.status == "False") {
        Some(scheduled) => {
            let observed = Observed {
                type_: conditions::POD_SCHEDULED,
                status: ConditionStatus::False,
                reason: scheduled.reason.as_deref().unwrap_or(reasons::UNSCHEDULABLE),
                message: scheduled.message.as_deref().unwrap_or_default(),
            };
            condition::set(&mut status.conditions, &observed, now);
        }
        None => {
            condition::remove(&mut status.conditions, conditions::POD_SCHEDULED);
        }
    }
    let waiting = launcher_container(pod)
        .and_then(|container| container.state.as_ref()?.waiting.as_ref())
        .and_then(|waiting| {
            let reason = waiting.reason.as_deref()?;
            CANNOT_START.contains(&reason).then(|| (reason, waiting.message.clone().unwrap_or_default()))
        });
    match waiting {
        Some((reason, message)) => out_of_sync(status, reason, &message, now),
        None => {
            condition::remove(&mut status.conditions, conditions::SYNCHRONIZED);
        }
    }
}

/// One word and one sentence on how a pod ended; none: it is not there any more.
pub(super) fn why_ended(pod: Option<&Pod>) -> (&'static str, String) {
    let Some(pod) = pod else {
        return (
            reasons::POD_NOT_EXISTS,
            "the virt-launcher pod was deleted while the instance still needed it".into(),
        );
    };
    let name = pod.name_any();
    let said =
        pod.status.as_ref().and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
    let terminated =
        launcher_container(pod).and_then(|container| container.state.as_ref()?.terminated.as_ref());
    let cause = match (said, terminated) {
        (Some(said), _) => said,
        (None, Some(end)) => {
            let word = end.reason.as_deref().unwrap_or("ended");
            let text = end.message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("its container ended with code {} ({word}){text}", end.exit_code)
        }
        (None, None) => "it gave no reason".into(),
    };
    (reasons::POD_FAILED, format!("pod {name} ended: {cause}"))
}

pub(crate) fn launcher_image(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == objects::LAUNCHER_CONTAINER)?.image.clone()
}

pub(crate) fn launcher_container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|container| container.name == objects::LAUNCHER_CONTAINER)
}

fn pod_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}
