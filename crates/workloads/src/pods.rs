//! Facts about pods that every controller asks for. Pure: a function of the pod and of the time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::core::{Selector, SelectorExt as _};

pub type Labels = BTreeMap<String, String>;

static NO_LABELS: Labels = Labels::new();

pub fn labels(pod: &Pod) -> &Labels {
    pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Its containers have ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// It counts as one of the pods that its owner wants.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// From when on a ready pod counts as available; none while it is not ready.
pub fn available_from(pod: &Pod, min_ready_seconds: i32) -> Option<Timestamp> {
    if !is_ready(pod) || is_terminating(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(Timestamp::MIN);
    }
    ready_since(pod).map(|since| since + SignedDuration::from_secs(min_ready_seconds.into()))
}

pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_from(pod, min_ready_seconds).is_some_and(|from| from <= now)
}

/// How often its containers were started anew.
pub fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().map(|status| status.restart_count).max().unwrap_or_default()
}

/// A time as the API keeps it, in seconds: what is read back is what was written.
pub fn stamp(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

pub fn created(time: Option<&Time>) -> Timestamp {
    time.map_or(Timestamp::MAX, |time| time.0)
}

pub fn spec(pod: &Pod) -> &PodSpec {
    static NOTHING: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&NOTHING)
}

/// Whether a selector picks these labels. One that is not there picks nothing, and so does one that is not valid.
pub fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let selector = selector.and_then(|selector| Selector::try_from(selector.clone()).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

/// Puts a condition in its place. Returns whether it was another before; the time of the change is kept while the
/// status stays.
pub fn set_condition(conditions: &mut Vec<PodCondition>, mut new: PodCondition) -> bool {
    let Some(old) = conditions.iter_mut().find(|known| known.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    let same = old.status == new.status && old.reason == new.reason && old.message == new.message;
    if !same {
        *old = new;
    }
    !same
}
