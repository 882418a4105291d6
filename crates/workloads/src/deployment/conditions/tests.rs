//! The life of a rollout, told by its conditions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::*;

struct Story {
    deployment: Deployment,
    now: Timestamp,
}

impl Story {
    fn new(deadline: i32) -> Self {
        let spec = json!({
            "replicas": 3, "progressDeadlineSeconds": deadline, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        });
        let deployment = json!({"metadata": {"name": "d", "generation": 1}, "spec": spec});
        Self {
            deployment: serde_json::from_value(deployment).unwrap(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    /// So many pods: all, new, available. Returns what is said, and in how many seconds time alone would change it.
    fn counts(&mut self, replicas: i32, updated: i32, available: i32) -> (String, Option<i64>) {
        let counts = Counts { replicas, updated, ready: available, available };
        let (status, next) = status(&self.deployment, counts, "d-1", self.now);
        self.deployment.status = Some(status);
        let left = next.map(|next| next.duration_since(self.now).as_secs());
        (self.progressing().reason.unwrap(), left)
    }

    fn condition(&self, type_: &str) -> DeploymentCondition {
        let status = self.deployment.status.clone().unwrap();
        status.conditions.unwrap().into_iter().find(|known| known.type_ == type_).unwrap()
    }

    fn progressing(&self) -> DeploymentCondition {
        self.condition(PROGRESSING)
    }

    fn later(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }
}

#[test]
fn a_rollout_progresses_and_is_done() {
    let mut story = Story::new(10);
    assert_eq!(story.counts(0, 0, 0), ("ReplicaSetUpdated".into(), Some(10)));
    assert_eq!(story.condition(AVAILABLE).reason.unwrap(), "MinimumReplicasUnavailable");
    assert_eq!(story.later(8).counts(3, 3, 0), ("ReplicaSetUpdated".into(), Some(10)));
    assert_eq!(story.later(3).counts(3, 3, 0), ("ReplicaSetUpdated".into(), Some(7)));
    assert_eq!(story.later(3).counts(3, 3, 2), ("ReplicaSetUpdated".into(), Some(10)));
    assert_eq!(story.condition(AVAILABLE).status, "True", "two of three are enough");
    assert_eq!(story.later(3).counts(3, 3, 3), ("NewReplicaSetAvailable".into(), None));
    let done = story.progressing();
    assert_eq!(done.message.unwrap(), "ReplicaSet \"d-1\" has successfully progressed.");
    // A pod that dies later is no rollout.
    assert_eq!(story.later(600).counts(3, 3, 1), ("NewReplicaSetAvailable".into(), None));
    assert_eq!(story.condition(AVAILABLE).status, "False");
}

#[test]
fn no_progress_for_too_long_is_said_until_there_is_some() {
    let mut story = Story::new(10);
    story.counts(3, 3, 0);
    assert_eq!(story.later(9).counts(3, 3, 0).0, "ReplicaSetUpdated");
    assert_eq!(story.later(1).counts(3, 3, 0), ("ProgressDeadlineExceeded".into(), None));
    assert_eq!(story.progressing().status, "False");
    assert_eq!(story.later(60).counts(3, 3, 0).0, "ProgressDeadlineExceeded");
    assert_eq!(story.later(1).counts(3, 3, 1).0, "ReplicaSetUpdated");
    assert_eq!(story.later(1).counts(3, 3, 3).0, "NewReplicaSetAvailable");
}

#[test]
fn a_new_template_begins_anew() {
    let mut story = Story::new(10);
    story.counts(3, 3, 3);
    story.deployment.metadata.generation = Some(2);
    assert_eq!(story.later(60).counts(3, 0, 3), ("ReplicaSetUpdated".into(), Some(10)));
    assert_eq!(
        story.progressing().last_transition_time,
        Some(stamp("2026-01-01T00:00:00Z".parse().unwrap()))
    );
}

#[test]
fn paused_time_does_not_count() {
    let mut story = Story::new(10);
    story.counts(3, 3, 0);
    story.deployment.spec.as_mut().unwrap().paused = Some(true);
    assert_eq!(story.later(5).counts(3, 3, 0), ("DeploymentPaused".into(), None));
    story.deployment.spec.as_mut().unwrap().paused = Some(false);
    assert_eq!(story.later(60).counts(3, 3, 0), ("DeploymentResumed".into(), Some(10)));
    assert_eq!(story.later(10).counts(3, 3, 0).0, "ProgressDeadlineExceeded");
}

#[test]
fn saying_the_same_again_changes_nothing() {
    let mut story = Story::new(10);
    for (replicas, updated, available) in [(0, 0, 0), (3, 3, 1), (3, 3, 3)] {
        story.later(1).counts(replicas, updated, available);
        let before = story.deployment.status.clone();
        story.later(2).counts(replicas, updated, available);
        assert_eq!(story.deployment.status, before);
    }
}
