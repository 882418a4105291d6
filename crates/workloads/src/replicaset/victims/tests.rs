//! Each rule decides between two pods that are otherwise the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::*;

fn pod(name: &str, change: &[(&str, Value)]) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}},
        "spec": {"nodeName": name, "containers": []},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
            "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0}],
        },
    });
    for (pointer, value) in change {
        *pod.pointer_mut(pointer).unwrap() = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn the_one_that_is_missed_least_goes_first() {
    let cost = |cost: &str| json!({"controller.kubernetes.io/pod-deletion-cost": cost});
    for (why, change) in [
        ("has no node", vec![("/spec/nodeName", json!(""))]),
        ("does not run", vec![("/status/phase", json!("Pending"))]),
        ("is not ready", vec![("/status/conditions/0/status", json!("False"))]),
        ("is cheap", vec![("/metadata/annotations", cost("-1"))]),
        ("was ready later", vec![("/status/conditions/0/lastTransitionTime", json!("2026-01-01T00:02:00Z"))]),
        ("was restarted", vec![("/status/containerStatuses/0/restartCount", json!(3))]),
        ("is younger", vec![("/metadata/creationTimestamp", json!("2026-01-01T00:00:30Z"))]),
    ] {
        let pods = [pod("a", &[]), pod("z", &change)];
        let chosen = victims(&pods, 1);
        assert_eq!(chosen[0].name_any(), "z", "z {why}");
    }
}

#[test]
fn siblings_on_one_node_are_thinned_out_first() {
    let on = |name: &str, node: &str| pod(name, &[("/spec/nodeName", json!(node))]);
    let pods = [on("a", "one"), on("b", "two"), on("c", "two")];
    assert_eq!(victims(&pods, 1)[0].name_any(), "b");
    assert!(victims(&pods, 0).is_empty());
    assert_eq!(victims(&pods, 9).len(), 3);
}
