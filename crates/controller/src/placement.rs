//! Where virt-handler runs: on every node that the installation's placement lets it, and on no witness. Pure.
//!
//! One rule for two who must agree: the operator writes it into the DaemonSet, and the setting of the migration network counts the
//! nodes that need an address by it. A handler that nobody counted takes the address of one that was.

use api::kubevirt::{KubeVirt, NodePlacement};
use api::names::labels;
use api::placement::{allows, is_empty};
use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

/// What an installation says of where handlers run.
pub fn of(installation: &KubeVirt) -> Option<&NodePlacement> {
    installation.spec.workloads.as_ref().and_then(|workloads| workloads.node_placement.as_ref())
}

/// The affinity of handlers: what the placement asks for, and no witness.
pub fn affinity(placement: Option<&NodePlacement>) -> Affinity {
    let mut affinity = placement.and_then(|placement| placement.affinity.clone()).unwrap_or_default();
    let nodes = affinity.node_affinity.get_or_insert_default();
    match &mut nodes.required_during_scheduling_ignored_during_execution {
        Some(NodeSelector { node_selector_terms }) => {
            // Any of the terms is enough, so each must say it. An empty one matches no node, and must not come to match all.
            for term in node_selector_terms.iter_mut().filter(|term| !is_empty(term)) {
                term.match_expressions.get_or_insert_default().push(no_witness());
            }
        }
        none => {
            let term = NodeSelectorTerm { match_expressions: Some(vec![no_witness()]), match_fields: None };
            *none = Some(NodeSelector { node_selector_terms: vec![term] });
        }
    }
    affinity
}

/// Whether a handler runs on a node. Taints do not matter: it tolerates all.
pub fn takes(placement: Option<&NodePlacement>, node: &Node) -> bool {
    let selector = placement.map(|placement| &placement.node_selector);
    allows(selector, Some(&affinity(placement)), node)
}

/// A witness votes and runs no virtual machines. One that only has the label's name, with another value, may.
fn no_witness() -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: labels::WITNESS_NODE.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec!["true".to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::{Value, json};

    use super::*;

    fn placed(placement: Value) -> NodePlacement {
        serde_json::from_value(placement).unwrap()
    }

    /// A placement that requires any of these terms.
    #[expect(clippy::needless_pass_by_value, reason = "rows read better without references")]
    fn requiring(terms: Value) -> NodePlacement {
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        placed(json!({ "affinity": { "nodeAffinity": required } }))
    }

    fn nodes() -> Vec<Node> {
        let node = |name: &str, labels: Value| {
            serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
        };
        vec![
            node("bare", json!({})),
            node("fast", json!({ "disk": "nvme", "cores": "64" })),
            node("slow", json!({ "disk": "hdd", "cores": "8", labels::WITNESS_NODE: "false" })),
            node("witness", json!({ "disk": "nvme", "cores": "64", labels::WITNESS_NODE: "true" })),
        ]
    }

    fn taken(placement: Option<&NodePlacement>) -> Vec<String> {
        nodes().iter().filter(|node| takes(placement, node)).map(kube::ResourceExt::name_any).collect()
    }

    #[test]
    fn every_node_but_a_witness() {
        assert_eq!(taken(None), ["bare", "fast", "slow"]);
        assert_eq!(taken(Some(&placed(json!({ "nodeSelector": { "disk": "nvme" } })))), ["fast"]);
    }

    #[test]
    fn the_placement_is_read_as_the_scheduler_reads_it() {
        for (wanted, expected) in [
            (json!({ "key": "disk", "operator": "In", "values": ["nvme", "ssd"] }), vec!["fast"]),
            (json!({ "key": "disk", "operator": "NotIn", "values": ["nvme"] }), vec!["bare", "slow"]),
            (json!({ "key": "disk", "operator": "Exists" }), vec!["fast", "slow"]),
            (json!({ "key": "disk", "operator": "DoesNotExist" }), vec!["bare"]),
            (json!({ "key": "cores", "operator": "Gt", "values": ["8"] }), vec!["fast"]),
            (json!({ "key": "cores", "operator": "Lt", "values": ["64"] }), vec!["slow"]),
            (json!({ "key": "disk", "operator": "Gt", "values": ["8"] }), vec![]),
            (json!({ "key": "disk", "operator": "Near", "values": ["nvme"] }), vec![]),
        ] {
            let placement = requiring(json!([{ "matchExpressions": [wanted] }]));
            assert_eq!(taken(Some(&placement)), expected, "{wanted}");
        }
        let either = requiring(json!([
            { "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["hdd"] }] },
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["bare", "witness"] }] },
        ]));
        assert_eq!(taken(Some(&either)), ["bare", "slow"]);
        let both = requiring(json!([{ "matchExpressions": [
            { "key": "disk", "operator": "Exists" }, { "key": "cores", "operator": "Lt", "values": ["9"] },
        ]}]));
        assert_eq!(taken(Some(&both)), ["slow"]);
        // What matches nothing goes on to match nothing.
        assert_eq!(taken(Some(&requiring(json!([{}])))), [""; 0]);
        assert_eq!(taken(Some(&requiring(json!([])))), [""; 0]);
        let selected =
            NodePlacement { node_selector: [("disk".to_owned(), "hdd".to_owned())].into(), ..either };
        assert_eq!(taken(Some(&selected)), ["slow"]);
    }

    #[test]
    fn what_the_placement_prefers_is_kept() {
        let preferred = json!([{ "weight": 1, "preference": { "matchFields": [
            { "key": "metadata.name", "operator": "In", "values": ["fast"] } ] } }]);
        let near = json!({ "preferredDuringSchedulingIgnoredDuringExecution": preferred });
        let placement = placed(json!({ "affinity": { "nodeAffinity": near, "podAffinity": {} } }));
        let written = serde_json::to_value(affinity(Some(&placement))).unwrap();
        assert_eq!(written["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"], preferred);
        assert_eq!(written["podAffinity"], json!({}));
        let required = &written["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(
            *required,
            json!({ "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": labels::WITNESS_NODE, "operator": "NotIn", "values": ["true"] } ] }] })
        );
        assert_eq!(taken(Some(&placement)), ["bare", "fast", "slow"]);
    }
}
