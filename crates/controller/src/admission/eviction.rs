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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use api::names::labels;
    use serde_json::{Value, json};

    fn vmi(strategy: Option<&str>, movable: bool, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
        let mut object = json!({
            "metadata": { "name": "wren", "namespace": "bank" },
            "spec": { "domain": { "devices": {} }, "evictionStrategy": strategy },
            "status": {
                "phase": "Running", "nodeName": "a",
                "conditions": [{ "type": "LiveMigratable", "status": if movable { "True" } else { "False" } }],
            },
        });
        change(&mut object["status"]);
        serde_json::from_value(object).unwrap()
    }

    fn pod(name: &str, job: Option<&str>) -> Pod {
        let labels = job.map(|job| json!({ labels::MIGRATION_JOB_UID: job }));
        let pod = json!({ "metadata": { "name": name, "labels": labels }, "status": { "phase": "Running" } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn every_strategy_with_a_vm_that_can_move_and_one_that_cannot() {
        let evacuate = || Verdict::Evacuate {
            node: "a".into(),
            message: "Eviction triggered evacuation of VMI \"bank/wren\"".into(),
        };
        let stuck = "VMI wren is configured with an eviction strategy but is not live-migratable";
        let rows = [
            (None, true, Verdict::Allow),
            (Some("None"), true, Verdict::Allow),
            (Some("LiveMigrate"), true, evacuate()),
            (Some("LiveMigrate"), false, Verdict::Deny(stuck.into())),
            (Some("LiveMigrateIfPossible"), true, evacuate()),
            (Some("LiveMigrateIfPossible"), false, Verdict::Allow),
            (Some("External"), true, evacuate()),
            (Some("External"), false, evacuate()),
        ];
        for (strategy, movable, expected) in rows {
            let vmi = vmi(strategy, movable, |_| {});
            assert_eq!(judge(&pod("first", None), &vmi, None), expected, "{strategy:?} {movable}");
            let moved = matches!(strategy, Some("LiveMigrate" | "LiveMigrateIfPossible")) && movable;
            assert_eq!(moves(&vmi, None), moved, "{strategy:?} {movable}");
        }
        let default = Some(EvictionStrategy::LiveMigrate);
        assert_eq!(judge(&pod("first", None), &vmi(None, true, |_| {}), default), evacuate());
        assert_eq!(judge(&pod("first", None), &vmi(Some("None"), true, |_| {}), default), Verdict::Allow);
    }

    #[test]
    fn which_pod_it_is_matters() {
        let moving = |node: &str, completed: bool| {
            let (node, state) = (
                node.to_owned(),
                json!({ "sourcePod": "first", "targetPod": "second", "targetNode": "b", "completed": completed }),
            );
            vmi(Some("LiveMigrate"), true, move |status| {
                status["nodeName"] = json!(node);
                status["migrationState"] = state;
            })
        };
        let target = || Verdict::Deny("Eviction request for target Pod".into());
        let (first, second) = (pod("first", None), pod("second", Some("m")));
        assert_eq!(
            judge(&second, &vmi(Some("LiveMigrate"), true, |_| {}), None),
            target(),
            "not handed over"
        );
        assert_eq!(judge(&second, &moving("a", false), None), target());
        assert_eq!(judge(&first, &moving("b", true), None), Verdict::Allow, "the guest has left it");
        assert!(matches!(judge(&second, &moving("b", true), None), Verdict::Evacuate { .. }), "its home now");
        let over = vmi(Some("LiveMigrate"), true, |status| status["phase"] = json!("Succeeded"));
        assert_eq!(judge(&first, &over, None), Verdict::Allow);
    }
}
