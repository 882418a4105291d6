//! Which networks a pod is attached to, in order, and as which interface. Pure: it reads annotations, and nothing else.
//!
//! The rules are those of Multus.

use api::multus::{NetworkSelection, SelectionError, parse_networks};
use api::names::annotations::{DEFAULT_NETWORK, NETWORKS};
use k8s_openapi::api::core::v1::Pod;

/// Where the network that takes the place of the node's own is looked for if it names no namespace.
const DEFAULT_NETWORK_NAMESPACE: &str = "kube-system";
/// The interface to the pod network.
pub const POD_INTERFACE: &str = "eth0";

/// One attachment that a pod is to have.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The definition, as namespace and name; none: the node's own network.
    pub definition: Option<(String, String)>,
    pub interface: String,
    pub selection: NetworkSelection,
}

/// The attachments of a pod, the pod network first.
pub fn attachments(pod: &Pod) -> Result<Vec<Wanted>, SelectionError> {
    let annotation = |name: &str| {
        let annotations = pod.metadata.annotations.as_ref();
        parse_networks(annotations.and_then(|annotations| annotations.get(name)).map_or("", String::as_str))
    };
    let mut first = annotation(DEFAULT_NETWORK)?.into_iter();
    let own = pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut wanted = vec![match first.next() {
        Some(selection) => Wanted::new(selection, DEFAULT_NETWORK_NAMESPACE, 0),
        None => Wanted {
            definition: None,
            interface: POD_INTERFACE.to_owned(),
            selection: NetworkSelection::default(),
        },
    }];
    let more = annotation(NETWORKS)?.into_iter().zip(1..);
    wanted.extend(more.map(|(selection, position)| Wanted::new(selection, own, position)));
    Ok(wanted)
}

impl Wanted {
    fn new(selection: NetworkSelection, namespace: &str, position: usize) -> Self {
        let namespace = selection.namespace.as_deref().unwrap_or(namespace).to_owned();
        // The pod network is eth0 whoever provides it: everyone looks for it there.
        let interface = match (position, &selection.interface) {
            (0, _) => POD_INTERFACE.to_owned(),
            (_, Some(name)) => name.clone(),
            (_, None) => format!("net{position}"),
        };
        let selection = NetworkSelection { interface: Some(interface.clone()), ..selection };
        Self { definition: Some((namespace, selection.name.clone())), interface, selection }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    fn pod(annotations: &serde_json::Value) -> Pod {
        serde_json::from_value(
            json!({ "metadata": { "name": "vm", "namespace": "shop", "annotations": annotations } }),
        )
        .unwrap()
    }

    fn names(annotations: &serde_json::Value) -> Vec<String> {
        let wanted = attachments(&pod(annotations)).unwrap();
        let name = |wanted: &Wanted| {
            let definition =
                wanted.definition.as_ref().map_or("-".to_owned(), |(ns, name)| format!("{ns}/{name}"));
            format!("{definition}@{}", wanted.interface)
        };
        wanted.iter().map(name).collect()
    }

    #[test]
    fn networks_get_their_interfaces_by_position() {
        let cases = [
            (json!({}), vec!["-@eth0"]),
            (json!({ NETWORKS: "" }), vec!["-@eth0"]),
            (
                json!({ NETWORKS: "a, other/b@migration0, c" }),
                vec!["-@eth0", "shop/a@net1", "other/b@migration0", "shop/c@net3"],
            ),
            (
                json!({ NETWORKS: r#"[{"name":"a","namespace":"x","interface":"data0"}]"# }),
                vec!["-@eth0", "x/a@data0"],
            ),
            (
                json!({ DEFAULT_NETWORK: "primary", NETWORKS: "a" }),
                vec!["kube-system/primary@eth0", "shop/a@net1"],
            ),
            (json!({ DEFAULT_NETWORK: "shop/primary@pod0" }), vec!["shop/primary@eth0"]),
        ];
        for (annotations, expected) in cases {
            assert_eq!(names(&annotations), expected, "{annotations}");
        }
        assert!(attachments(&pod(&json!({ NETWORKS: "no such/thing/at all" }))).is_err());
    }

    #[test]
    fn what_a_selection_asks_for_is_kept() {
        let asked = r#"[{"name":"a","mac":"02:00:00:00:00:01","ips":["192.0.2.7/24"],"default-route":["192.0.2.1"]}]"#;
        let wanted = attachments(&pod(&json!({ NETWORKS: asked }))).unwrap();
        let selection = &wanted[1].selection;
        assert_eq!(selection.interface.as_deref(), Some("net1"));
        assert_eq!(selection.ips[0].to_string(), "192.0.2.7/24");
        assert_eq!(selection.default_route.as_ref().unwrap().len(), 1);
    }
}
