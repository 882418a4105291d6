//! The pods of a DaemonSet: where they may be, and what they look like. Pure.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};

use crate::owner::pod_from;
use crate::pods;
use crate::schedule::{effective_taints, matches_node, tolerates};

pub const HASH: &str = "controller-revision-hash";
const TEMPLATE_GENERATION: &str = "pod-template-generation";
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// A pod of the set for a node. It finds its way there through the scheduler, by the name of the node.
pub fn pod_for(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut pod = pod_from(set, &template);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(HASH.into(), hash.into());
    let generation = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(GENERATION));
    labels.extend(generation.map(|generation| (TEMPLATE_GENERATION.into(), generation.clone())));
    let spec = pod.spec.get_or_insert_default();
    only_on(spec, node);
    tolerate_the_node(spec);
    pod
}

/// Replaces what the template requires of nodes: the set has judged that already.
fn only_on(spec: &mut PodSpec, node: &str) {
    let name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![name]), match_expressions: None };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    nodes.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// A pod of a set stays through the troubles of its node.
fn tolerate_the_node(spec: &mut PodSpec) {
    let mut troubles = vec![
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        troubles.push(("network-unavailable", "NoSchedule"));
    }
    let tolerations = spec.tolerations.get_or_insert_default();
    for (trouble, effect) in troubles {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{trouble}")),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// The node that a pod of a set is on, or is meant for.
pub fn target(pod: &Pod) -> Option<&str> {
    if let Some(node) = pods::node_of(pod) {
        return Some(node);
    }
    let affinity = pods::spec(pod).affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.first()?.match_fields.as_ref()?;
    let name = fields.iter().find(|field| field.key == "metadata.name")?;
    name.values.as_ref()?.first().map(String::as_str)
}

/// Whether a pod of the set may come to a node, and whether one that is there may stay.
pub fn suits(set: &DaemonSet, node: &Node) -> (bool, bool) {
    let template = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut spec = template.cloned().unwrap_or_default();
    let name = node.metadata.name.as_deref();
    let named = spec.node_name.as_deref().filter(|wanted| !wanted.is_empty());
    if !matches_node(&spec, node) || named.is_some_and(|wanted| Some(wanted) != name) {
        return (false, false);
    }
    tolerate_the_node(&mut spec);
    let tolerations = spec.tolerations.unwrap_or_default();
    let taints = effective_taints(node);
    let accepts = |effects: &[&str]| {
        taints.iter().all(|taint| !effects.contains(&taint.effect.as_str()) || tolerates(&tolerations, taint))
    };
    (accepts(&["NoSchedule", "NoExecute"]), accepts(&["NoExecute"]))
}
