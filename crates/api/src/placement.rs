//! Which nodes a pod may run on by what it says of their labels, as Kubernetes' scheduler reads it. Taints are another matter.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelectorRequirement, NodeSelectorTerm};

/// Whether a node has all of these labels, and is as the affinity requires.
pub fn allows(selector: Option<&BTreeMap<String, String>>, affinity: Option<&Affinity>, node: &Node) -> bool {
    let selected =
        selector.into_iter().flatten().all(|(name, value)| label(node, name) == Some(value.as_str()));
    let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|any| any.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Whether a term asks for nothing. Such a term matches no node.
pub fn is_empty(term: &NodeSelectorTerm) -> bool {
    let nothing = |wanted: &Option<Vec<NodeSelectorRequirement>>| wanted.as_ref().is_none_or(Vec::is_empty);
    nothing(&term.match_expressions) && nothing(&term.match_fields)
}

/// Whether a node is as a term asks.
pub fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.metadata.name.as_deref();
    let by_label = |wanted: &NodeSelectorRequirement| meets(wanted, label(node, &wanted.key));
    // The only field that nodes are selected by.
    let by_field = |wanted: &NodeSelectorRequirement| wanted.key == "metadata.name" && meets(wanted, name);
    !is_empty(term)
        && term.match_expressions.iter().flatten().all(by_label)
        && term.match_fields.iter().flatten().all(by_field)
}

fn label<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn meets(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|one| one == value));
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers().is_some_and(|(value, limit)| value < limit),
        // No API server lets another in.
        _ => false,
    }
}
