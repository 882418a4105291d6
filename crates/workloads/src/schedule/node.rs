//! What a pod says about nodes, and nodes about pods: selectors and affinity, taints and tolerations.

use api::placement;
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};

use crate::pods::Labels;

pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Conditions that keep new pods away while they are true.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

static NO_LABELS: Labels = Labels::new();

pub fn labels(node: &Node) -> &Labels {
    node.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|known| known.type_ == type_).map(|known| known.status.as_str())
}

pub fn is_ready(node: &Node) -> bool {
    condition(node, "Ready") == Some("True")
}

/// The taints that follow from a node's state. The node controller writes them; the scheduler does not wait for it.
pub fn condition_taints(node: &Node) -> Vec<(&'static str, &'static str)> {
    let mut taints = Vec::new();
    match condition(node, "Ready") {
        Some("True") => {}
        Some("Unknown") => taints.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        _ => taints.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
    }
    let pressing = |(type_, _): &&(&str, &str)| condition(node, type_) == Some("True");
    taints.extend(PRESSURES.iter().filter(pressing).map(|(_, key)| (*key, "NoSchedule")));
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        taints.push((UNSCHEDULABLE, "NoSchedule"));
    }
    taints
}

/// Whether a taint is one that follows from a node's state, so that it goes when the state does.
pub fn is_condition_taint(taint: &Taint) -> bool {
    let known = [NOT_READY, UNREACHABLE, UNSCHEDULABLE];
    known.contains(&taint.key.as_str()) || PRESSURES.iter().any(|(_, key)| *key == taint.key)
}

/// The taints that a node has, or is about to.
pub fn effective_taints(node: &Node) -> Vec<Taint> {
    let written = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let mut taints: Vec<Taint> = written.filter(|taint| !is_condition_taint(taint)).cloned().collect();
    taints.extend(condition_taints(node).into_iter().map(|(key, effect)| Taint {
        key: key.into(),
        effect: effect.into(),
        ..Taint::default()
    }));
    taints
}

/// Whether one of the tolerations accepts a taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| covers(toleration, taint))
}

pub fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
        Some(_) => false,
    };
    (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key) && value
}

/// Whether a node is one that the pod allows: its node selector, and the affinity that it requires.
pub fn matches_node(spec: &PodSpec, node: &Node) -> bool {
    placement::allows(spec.node_selector.as_ref(), spec.affinity.as_ref(), node)
}
