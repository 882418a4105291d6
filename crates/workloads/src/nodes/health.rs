//! Whether a node lives, and what follows: conditions, taints, and which pods must leave. Pure.
//!
//! A node shows that it lives by renewing its lease. One that was silent for longer than the grace is not known to be
//! dead: its conditions become `Unknown`, and its pods leave when their tolerations run out.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};

use crate::pods;
use crate::schedule::{condition_taints, covers, is_condition_taint};

/// When a node last showed that it lives.
pub fn last_sign(node: &Node, lease: Option<&Lease>) -> Timestamp {
    let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let reported = conditions.into_iter().flatten().filter(|known| known.status != "Unknown");
    let reported = reported.filter_map(|known| known.last_heartbeat_time.as_ref()).map(|time| time.0).max();
    let made = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    [renewed, reported, made].into_iter().flatten().max().unwrap_or(Timestamp::MIN)
}

/// The conditions of a node that went silent; none if it says so already.
pub fn silent_conditions(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let known = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut conditions = known.clone();
    if !conditions.iter().any(|condition| condition.type_ == "Ready") {
        conditions.push(NodeCondition {
            type_: "Ready".into(),
            status: "Unknown".into(),
            reason: Some("NodeStatusNeverUpdated".into()),
            message: Some("Kubelet never posted node status.".into()),
            last_transition_time: Some(pods::stamp(now)),
            ..NodeCondition::default()
        });
    }
    let ours = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let talking = |condition: &&mut NodeCondition| {
        condition.status != "Unknown" && ours.contains(&condition.type_.as_str())
    };
    for condition in conditions.iter_mut().filter(talking) {
        condition.status = "Unknown".into();
        condition.reason = Some("NodeStatusUnknown".into());
        condition.message = Some("Kubelet stopped posting node status.".into());
        condition.last_transition_time = Some(pods::stamp(now));
    }
    (conditions != known).then_some(conditions)
}

/// The taints that a node should have; none if it has them. Others than those of conditions are left alone, and one
/// that stays keeps the time since when it is there.
pub fn taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let known = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let due = condition_taints(node);
    let is_due = |taint: &Taint| due.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect);
    let mut taints: Vec<Taint> =
        known.iter().filter(|taint| !is_condition_taint(taint) || is_due(taint)).cloned().collect();
    for (key, effect) in due {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            let time_added = Some(pods::stamp(now));
            taints.push(Taint { key: key.into(), effect: effect.into(), time_added, value: None });
        }
    }
    (taints != known).then_some(taints)
}

/// When a pod must leave its node because of the node's taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leave {
    At(Timestamp),
    Never,
}

/// A pod leaves at once if a taint is not tolerated, and otherwise when the first toleration runs out.
pub fn leaves(pod: &Pod, node: &Node, now: Timestamp) -> Leave {
    let tolerations = pods::spec(pod).tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let evicting = taints.filter(|taint| taint.effect == "NoExecute");
    evicting.map(|taint| leaves_for(taint, tolerations, now)).min().unwrap_or(Leave::Never)
}

fn leaves_for(taint: &Taint, tolerations: &[Toleration], now: Timestamp) -> Leave {
    let since = taint.time_added.as_ref().map_or(now, |time| time.0);
    let covering: Vec<_> = tolerations.iter().filter(|toleration| covers(toleration, taint)).collect();
    if covering.is_empty() {
        return Leave::At(since);
    }
    let shortest = covering.iter().filter_map(|toleration| toleration.toleration_seconds).min();
    shortest.map_or(Leave::Never, |seconds| Leave::At(since + SignedDuration::from_secs(seconds.max(0))))
}

#[cfg(test)]
mod tests;
