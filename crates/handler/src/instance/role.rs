//! What a launcher pod is to its instance, for the handler of its node. Pure.
//!
//! Which pod has the guest is decided in the crate `migration`, for all parts alike. A handler knows a little earlier that a guest has
//! left: it is the one who writes it.
//!
//! ```text
//!   no move, or one that failed     a move under way              it ended well
//!   source pod: Home                Source, and Target            target pod: Home (once the instance is of its node)
//!   target pod: Past                                              source pod: Past
//! ```
//!
//! Invariant: at any moment at most one pod of an instance is its home or its source, so one handler alone speaks for its guest.

use api::kubevirt::{MigrationState, VirtualMachineInstance};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// What a pod is to its instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role<'a> {
    /// The guest is here, or begins its life here.
    Home,
    /// It is here, and is to leave.
    Source(&'a MigrationState),
    /// It is to come here, or has just come.
    Target(&'a MigrationState),
    /// The guest has left, did not come, or was never meant to.
    Past,
}

impl<'a> Role<'a> {
    /// What the pod is, as the instance says.
    pub fn of(node: &str, pod: &Pod, instance: &'a VirtualMachineInstance) -> Self {
        let status = instance.status.as_ref();
        let here = status.and_then(|status| status.node_name.as_deref()) == Some(node);
        let state = status.and_then(|status| status.migration_state.as_ref());
        let leaves = |state: &&MigrationState| state.source_pod.as_deref() == Some(&pod.name_any());
        match (migration::Role::of(status, pod), state) {
            (migration::Role::Target, Some(state)) => Self::Target(state),
            (migration::Role::Active, state) if here => match state.filter(leaves) {
                Some(state) if !state.completed => Self::Source(state),
                // It has left already; the instance will say so.
                Some(state) if !state.failed => Self::Past,
                _ => Self::Home,
            },
            _ => Self::Past,
        }
    }

    /// Whether what happens to the guest of this pod happens to the instance.
    pub fn speaks_for_guest(self) -> bool {
        matches!(self, Self::Home | Self::Source(_))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use api::names::labels;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, job: Option<&str>) -> Pod {
        let labels = job.map(|job| json!({ labels::MIGRATION_JOB_UID: job }));
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
    }

    fn instance(node: &str, state: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "vm", "uid": "u" }, "spec": { "domain": { "devices": {} } },
            "status": { "nodeName": node, "migrationState": state },
        }))
        .unwrap()
    }

    #[test]
    fn through_a_move_and_back() {
        let (first, second) = (pod("first", None), pod("second", Some("m1")));
        let third = pod("third", Some("m2"));
        let there = |extra: Value| {
            let mut state =
                json!({ "sourceNode": "a", "sourcePod": "first", "targetNode": "b", "targetPod": "second" });
            state.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            state
        };
        let back =
            json!({ "sourceNode": "b", "sourcePod": "second", "targetNode": "a", "targetPod": "third" });
        let failed = json!({ "completed": true, "failed": true });
        for (node, state, first_is, second_is) in [
            ("a", Value::Null, "home", "past"),
            ("a", there(json!({})), "source", "target"),
            ("a", there(failed), "home", "past"),
            ("a", there(json!({ "completed": true })), "past", "target"),
            ("b", there(json!({ "completed": true })), "past", "home"),
            ("b", back.clone(), "past", "source"),
        ] {
            let instance = instance(node, &state);
            let word = |role| match role {
                Role::Home => "home",
                Role::Source(_) => "source",
                Role::Target(_) => "target",
                Role::Past => "past",
            };
            assert_eq!(word(Role::of("a", &first, &instance)), first_is, "{node} {state}");
            assert_eq!(word(Role::of("b", &second, &instance)), second_is, "{node} {state}");
        }
        let instance = instance("b", &back);
        assert!(matches!(Role::of("a", &third, &instance), Role::Target(_)));
        assert_eq!(Role::of("a", &first, &instance), Role::Past, "on the same node, of another life");
    }
}
