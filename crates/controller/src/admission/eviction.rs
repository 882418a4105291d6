//! What an eviction does to a VM: it moves, it ends, or the eviction is refused. An eviction that moves a VM is answered with
//! "too many requests", so that whoever drains a node asks again until the VM has left.

use api::condition;
use api::kubevirt::{EvictionStrategy, InstancePhase, VirtualMachineInstance};
use api::names::conditions;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use migration::Role;

use crate::vmi::ended;

/// What is to become of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Refused; asking again may help.
    Deny(String),
    /// Refused, because the VM is to leave this node first.
    Evacuate {
        node: String,
        message: String,
    },
}

/// Judges the eviction of a launcher pod. `default`: the strategy of VMs that do not say one.
pub fn judge(pod: &Pod, vmi: &VirtualMachineInstance, default: Option<EvictionStrategy>) -> Verdict {
    let status = vmi.status.clone().unwrap_or_default();
    let is_over = status.phase.is_some_and(InstancePhase::is_final);
    if ended(pod) || is_over || pod.metadata.deletion_timestamp.is_some() {
        return Verdict::Allow;
    }
    let strategy = vmi.spec.eviction_strategy.or(default).unwrap_or(EvictionStrategy::None);
    let movable = condition::is_true(&status.conditions, conditions::LIVE_MIGRATABLE);
    match strategy {
        EvictionStrategy::None => return Verdict::Allow,
        EvictionStrategy::LiveMigrateIfPossible if !movable => return Verdict::Allow,
        EvictionStrategy::LiveMigrate if !movable => {
            return Verdict::Deny(format!(
                "VMI {} is configured with an eviction strategy but is not live-migratable",
                vmi.name_any()
            ));
        }
        EvictionStrategy::LiveMigrate
        | EvictionStrategy::LiveMigrateIfPossible
        | EvictionStrategy::External => {}
    }
    match Role::of(vmi.status.as_ref(), pod) {
        Role::Active => {}
        Role::Left => return Verdict::Allow,
        Role::Target | Role::Idle => return Verdict::Deny("Eviction request for target Pod".into()),
    }
    let message = format!(
        "Eviction triggered evacuation of VMI \"{}/{}\"",
        vmi.namespace().unwrap_or_default(),
        vmi.name_any()
    );
    match status.node_name {
        _ if status.evacuation_node_name.is_some() => {
            Verdict::Deny(format!("Evacuation in progress: {message}"))
        }
        Some(node) => Verdict::Evacuate { node, message },
        // It has no node yet: nothing of it has to be saved.
        None => Verdict::Allow,
    }
}

/// Whether an eviction moves this VM, rather than telling somebody else.
pub fn moves(vmi: &VirtualMachineInstance, default: Option<EvictionStrategy>) -> bool {
    let movable = vmi
        .status
        .as_ref()
        .is_some_and(|status| condition::is_true(&status.conditions, conditions::LIVE_MIGRATABLE));
    match vmi.spec.eviction_strategy.or(default) {
        Some(EvictionStrategy::LiveMigrate | EvictionStrategy::LiveMigrateIfPossible) => movable,
        Some(EvictionStrategy::None | EvictionStrategy::External) | None => false,
    }
}
