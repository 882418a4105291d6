//! Which launcher pod of an instance is which, from the instance's status alone.
//!
//! There is one moment at which the guest's home changes: the write of `status.nodeName` by the controller. Before it the source
//! pod is the active one, after it the target pod. No pod is ever two things, and no two pods are active.

use api::kubevirt::{MigrationState, VirtualMachineInstanceStatus};
use api::names::labels;
use k8s_openapi::api::core::v1::Pod;

/// What a launcher pod is to its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs the guest.
    Active,
    /// The guest is on its way to it.
    Target,
    /// The guest has left it.
    Left,
    /// It was made for a move that has not begun, or that came to nothing. Only the migration itself can tell.
    Idle,
}

impl Role {
    /// The role of a pod of this instance.
    pub fn of(status: Option<&VirtualMachineInstanceStatus>, pod: &Pod) -> Self {
        let made_for_a_move =
            pod.metadata.labels.iter().flatten().any(|(name, _)| name == labels::MIGRATION_JOB_UID);
        let state = status.and_then(|status| status.migration_state.as_ref());
        let Some((status, state, source)) =
            status.zip(state).and_then(|(status, state)| Some((status, state, state.source_pod.as_ref()?)))
        else {
            return if made_for_a_move { Self::Idle } else { Self::Active };
        };
        let name = pod.metadata.name.as_ref();
        let (is_source, is_target) = (name == Some(source), name == state.target_pod.as_ref());
        match (is_source, is_target, arrived(status)) {
            (true, _, false) | (_, true, true) => Self::Active,
            (true, false, true) => Self::Left,
            (false, true, false) if !over(state) => Self::Target,
            _ => Self::Idle,
        }
    }
}

/// Whether the guest's home is the target of its last move.
pub fn arrived(status: &VirtualMachineInstanceStatus) -> bool {
    status.migration_state.as_ref().is_some_and(|state| {
        state.completed
            && !state.failed
            && state.target_node.is_some()
            && state.target_node == status.node_name
    })
}

/// Whether the move came to nothing: the target has no part in it any more.
pub fn over(state: &MigrationState) -> bool {
    state.completed && state.failed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(name: &str, job: Option<&str>) -> Pod {
        let labels = job.map(|job| json!({ labels::MIGRATION_JOB_UID: job })).unwrap_or_default();
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
    }

    fn status(node: &str, state: Option<MigrationState>) -> VirtualMachineInstanceStatus {
        VirtualMachineInstanceStatus {
            node_name: Some(node.into()),
            migration_state: state,
            ..VirtualMachineInstanceStatus::default()
        }
    }

    fn state(completed: bool, failed: bool) -> MigrationState {
        MigrationState {
            source_node: Some("a".into()),
            source_pod: Some("first".into()),
            target_node: Some("b".into()),
            target_pod: Some("second".into()),
            completed,
            failed,
            ..MigrationState::default()
        }
    }

    #[test]
    fn the_home_changes_with_the_node_and_with_nothing_else() {
        use Role::{Active, Idle, Left, Target};
        let pods = [pod("first", None), pod("second", Some("m1")), pod("third", Some("m2"))];
        let rows = [
            ("no move yet", status("a", None), [Active, Idle, Idle]),
            ("under way", status("a", Some(state(false, false))), [Active, Target, Idle]),
            (
                "the source says that it is done",
                status("a", Some(state(true, false))),
                [Active, Target, Idle],
            ),
            ("moved", status("b", Some(state(true, false))), [Left, Active, Idle]),
            ("came to nothing", status("a", Some(state(true, true))), [Active, Idle, Idle]),
        ];
        for (what, status, expected) in rows {
            assert_eq!(pods.each_ref().map(|pod| Role::of(Some(&status), pod)), expected, "{what}");
        }
        assert_eq!(Role::of(None, &pods[0]), Active, "an instance without a status has one pod");
    }

    proptest! {
        #[test]
        fn never_two_active_pods(at_target: bool, completed: bool, failed: bool, has_state: bool) {
            let state = has_state.then(|| state(completed, failed));
            let status = status(if at_target { "b" } else { "a" }, state);
            let pods = [pod("first", None), pod("second", Some("m1")), pod("third", Some("m2"))];
            let active = pods.iter().filter(|pod| Role::of(Some(&status), pod) == Role::Active).count();
            prop_assert_eq!(active, 1);
        }
    }
}
