//! What a Deployment says of itself: how many pods it has, whether it is available, and whether it gets on. Pure.
//!
//! ```text
//!            pods change            all new, all available
//!  (none) ─► ReplicaSetUpdated ───► NewReplicaSetAvailable
//!                │  ▲                   (stays until the template or the number changes)
//!    no change   │  │ pods change
//!    for too long▼  │
//!            ProgressDeadlineExceeded
//! ```

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};

use super::sets::{bounds, desired};
use crate::pods::stamp;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const DONE: &str = "NewReplicaSetAvailable";
const TOO_LATE: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub replicas: i32,
    pub updated: i32,
    pub ready: i32,
    pub available: i32,
}

/// The status that says `counts`, after the one that is known. Also: when time alone would change it.
pub fn status(
    deployment: &Deployment,
    counts: Counts,
    set: &str,
    now: Timestamp,
) -> (DeploymentStatus, Option<Timestamp>) {
    let known = deployment.status.clone().unwrap_or_default();
    let shown = |number: i32| (number > 0).then_some(number);
    let unavailable = counts.replicas.max(desired(deployment)) - counts.available;
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: shown(counts.replicas),
        updated_replicas: shown(counts.updated),
        ready_replicas: shown(counts.ready),
        available_replicas: shown(counts.available),
        unavailable_replicas: shown(unavailable),
        collision_count: known.collision_count,
        terminating_replicas: known.terminating_replicas,
        conditions: None,
    };
    let mut conditions = known.conditions.clone().unwrap_or_default();
    let available = if counts.available >= bounds(deployment).least_available() {
        condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    } else {
        let text = "Deployment does not have minimum availability.";
        condition(AVAILABLE, "False", "MinimumReplicasUnavailable", text, now)
    };
    put(&mut conditions, available, false);
    let next = progress(deployment, &known, &status, counts, set, &mut conditions, now);
    status.conditions = Some(conditions);
    (status, next)
}

fn progress(
    deployment: &Deployment,
    known: &DeploymentStatus,
    status: &DeploymentStatus,
    counts: Counts,
    set: &str,
    conditions: &mut Vec<DeploymentCondition>,
    now: Timestamp,
) -> Option<Timestamp> {
    let spec = deployment.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.progress_deadline_seconds).filter(|seconds| *seconds < i32::MAX);
    let Some(seconds) = seconds else {
        conditions.retain(|condition| condition.type_ != PROGRESSING);
        return None;
    };
    let last = conditions.iter().find(|condition| condition.type_ == PROGRESSING).cloned();
    let reason = last.as_ref().and_then(|last| last.reason.as_deref()).unwrap_or_default();
    if spec.is_some_and(|spec| spec.paused == Some(true)) {
        if reason != TOO_LATE {
            put(conditions, condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now), false);
        }
        return None;
    }
    let quoted = format!("ReplicaSet {set:?}");
    let wanted = desired(deployment);
    let is_complete = counts.updated == wanted
        && counts.replicas == wanted
        && counts.available >= wanted
        && !set.is_empty();
    if is_complete {
        let text = format!("{quoted} has successfully progressed.");
        put(conditions, condition(PROGRESSING, "True", DONE, &text, now), false);
        return None;
    }
    let number = |value: Option<i32>| value.unwrap_or_default();
    let is_new = known.observed_generation != deployment.metadata.generation;
    let moved = counts.updated > number(known.updated_replicas)
        || number(status.replicas) - counts.updated < number(known.replicas) - number(known.updated_replicas)
        || counts.ready > number(known.ready_replicas)
        || counts.available > number(known.available_replicas);
    // A Deployment that was done begins anew when its template changed, not when a pod of it dies.
    let rolls = counts.updated != counts.replicas || counts.updated != wanted;
    if reason == PAUSED {
        put(conditions, condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now), true);
    } else if moved || last.is_none() || (is_new && rolls) {
        let text = format!("{quoted} is progressing.");
        put(conditions, condition(PROGRESSING, "True", "ReplicaSetUpdated", &text, now), true);
    }
    let last = conditions.iter().find(|condition| condition.type_ == PROGRESSING)?;
    if matches!(last.reason.as_deref(), Some(DONE | TOO_LATE)) {
        return None;
    }
    let since = last.last_update_time.as_ref().map_or(now, |time| time.0);
    let deadline = since + SignedDuration::from_secs(seconds.into());
    if deadline > now {
        return Some(deadline);
    }
    let text = format!("{quoted} has timed out progressing.");
    put(conditions, condition(PROGRESSING, "False", TOO_LATE, &text, now), false);
    None
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> DeploymentCondition {
    let now = stamp(now);
    DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    }
}

/// Puts a condition in its place. One that says the same as before keeps its times, unless it is said anew.
fn put(conditions: &mut Vec<DeploymentCondition>, mut new: DeploymentCondition, anew: bool) {
    let Some(old) = conditions.iter_mut().find(|known| known.type_ == new.type_) else {
        return conditions.push(new);
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    if anew || old.status != new.status || old.reason != new.reason || old.message != new.message {
        *old = new;
    }
}

#[cfg(test)]
mod tests;
