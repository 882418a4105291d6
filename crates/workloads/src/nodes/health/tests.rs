//! Signs of life, taints that follow, and who must leave when.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "every caller writes it in place")]
fn node(ready: &str, spec: Value) -> Node {
    let conditions = json!([
        {"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:30:00Z"},
        {"type": "DiskPressure", "status": "False"},
        {"type": "Special", "status": "True"},
    ]);
    let node = json!({
        "metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec, "status": {"conditions": conditions},
    });
    serde_json::from_value(node).unwrap()
}

#[test]
fn the_newest_sign_counts() {
    let lease: Lease =
        serde_json::from_value(json!({"spec": {"renewTime": "2026-01-01T00:59:00.000000Z"}})).unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    assert_eq!(last_sign(&node("True", json!({})), Some(&lease)), at("2026-01-01T00:59:00Z"));
    assert_eq!(last_sign(&node("True", json!({})), None), at("2026-01-01T00:30:00Z"));
    assert_eq!(
        last_sign(&Node { status: None, ..node("True", json!({})) }, None),
        at("2026-01-01T00:00:00Z")
    );
}

#[test]
fn a_silent_node_is_marked_once() {
    let mut silent = node("True", json!({}));
    let conditions = silent_conditions(&silent, now()).unwrap();
    let shown: Vec<_> = conditions.iter().map(|known| (&*known.type_, &*known.status)).collect();
    assert_eq!(shown, [("Ready", "Unknown"), ("DiskPressure", "Unknown"), ("Special", "True")]);
    silent.status.as_mut().unwrap().conditions = Some(conditions);
    assert_eq!(silent_conditions(&silent, now()), None);
    let never = silent_conditions(&Node::default(), now()).unwrap();
    assert_eq!(never[0].reason.as_deref(), Some("NodeStatusNeverUpdated"));
}

#[test]
fn taints_follow_the_state_and_leave_others_alone() {
    let keys = |taints: Option<Vec<Taint>>| {
        let taints = taints?;
        let text = |taint: &Taint| {
            format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect)
        };
        Some(taints.iter().map(text).collect::<Vec<_>>())
    };
    let own = json!({"key": "own", "effect": "NoExecute"});
    let old = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": NOW});
    assert_eq!(keys(taints(&node("True", json!({"taints": [own]})), now())), None);
    assert_eq!(
        keys(taints(&node("Unknown", json!({"taints": [own]})), now())).unwrap(),
        ["own:NoExecute", "unreachable:NoSchedule", "unreachable:NoExecute"]
    );
    assert_eq!(
        keys(taints(&node("False", json!({"taints": [old], "unschedulable": true})), now())).unwrap(),
        ["not-ready:NoSchedule", "not-ready:NoExecute", "unschedulable:NoSchedule"]
    );
    assert_eq!(keys(taints(&node("True", json!({"taints": [own, old]})), now())).unwrap(), ["own:NoExecute"]);
    // One that stays keeps its time: tolerations run from there.
    let later = now() + SignedDuration::from_hours(1);
    let kept = taints(&node("Unknown", json!({"taints": [old]})), later).unwrap();
    assert_eq!(kept[0].time_added.as_ref().unwrap().0, now());
}

#[test]
fn pods_leave_when_the_first_toleration_runs_out() {
    let taint = |key: &str| json!({"key": key, "effect": "NoExecute", "timeAdded": NOW});
    let tolerating = |tolerations: Value| -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).unwrap()
    };
    let after = |seconds: i64| Leave::At(now() + SignedDuration::from_secs(seconds));
    let k = |seconds: Option<i64>| json!({"key": "k", "operator": "Exists", "tolerationSeconds": seconds});
    for (taints, tolerations, expected) in [
        (json!([]), json!([]), Leave::Never),
        (json!([{"key": "k", "effect": "NoSchedule"}]), json!([]), Leave::Never),
        (json!([taint("k")]), json!([]), after(0)),
        (json!([taint("k")]), json!([k(None)]), Leave::Never),
        (json!([taint("k")]), json!([k(Some(300))]), after(300)),
        (json!([taint("k")]), json!([k(Some(-1))]), after(0)),
        (json!([taint("k")]), json!([k(Some(300)), k(Some(30)), k(None)]), after(30)),
        (json!([taint("k"), taint("other")]), json!([k(Some(300))]), after(0)),
    ] {
        let node = node("True", json!({"taints": taints}));
        assert_eq!(
            leaves(&tolerating(tolerations.clone()), &node, now()),
            expected,
            "{taints} {tolerations}"
        );
    }
}
