//! What a launcher pod is to its instance. Pure.
//!
//! ```text
//!   no move, or one that failed     a move under way              it ended well
//!   source pod: Home                Source, and Target            target pod: Home (once the instance is of its node)
//!   target pod: Past                                              source pod: Past
//! ```
//!
//! Invariant: at any moment at most one pod of an instance is its home or its source, so one handler alone speaks for its guest.

use api::kubevirt::{MigrationState, VirtualMachineInstance};
use api::names::labels;
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
        let name = pod.name_any();
        let is = |named: &Option<String>| named.as_deref() == Some(&name);
        let Some(state) = status.and_then(|status| status.migration_state.as_ref()) else {
            let made_for_move = pod.labels().contains_key(labels::MIGRATION_JOB_UID);
            return if here && !made_for_move { Self::Home } else { Self::Past };
        };
        let moved = state.completed && !state.failed;
        match (here, moved) {
            (true, true) if is(&state.target_pod) => Self::Home,
            (true, false) if is(&state.source_pod) && !state.completed => Self::Source(state),
            (true, false) if is(&state.source_pod) => Self::Home,
            (false, _) if is(&state.target_pod) && !state.failed => Self::Target(state),
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
