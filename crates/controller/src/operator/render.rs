//! The DaemonSet of virt-handler as a function of the installation.
//!
//! One source: the manifest that the program carries. What the `KubeVirt` object says is added to it, and the hash of the pod
//! template is written on the pods, so that it can be told which of them are up to date.

use std::fmt::Write as _;

use api::kubevirt::KubeVirt;
use api::multus::full_name;
use api::names::{annotations, interfaces};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::EnvVar;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource as _;
use sha2::{Digest as _, Sha256};

use crate::{Error, placement};

const MANIFEST: &str = include_str!("virt-handler.yaml");
/// Tells a handler which network its pod was made with.
const MIGRATION_NETWORK: &str = "MIGRATION_NETWORK";

/// A DaemonSet, and what tells its pods from those of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub set: DaemonSet,
    /// Hash of the pod template.
    pub id: String,
}

/// Renders. `network`: definition of the migration network, as the installation names it.
pub fn render(installation: &KubeVirt, network: Option<&str>) -> Result<Rendered, Error> {
    let mut set: DaemonSet = serde_saphyr::from_str(MANIFEST).map_err(Error::Manifest)?;
    set.metadata.namespace.clone_from(&installation.metadata.namespace);
    set.metadata.owner_references = installation.controller_owner_ref(&()).map(|owner| vec![owner]);
    let spec = set.spec.get_or_insert_default();
    let pod = spec.template.spec.get_or_insert_default();
    let placed = placement::of(installation);
    pod.affinity = Some(placement::affinity(placed));
    if let Some(placed) = placed {
        pod.node_selector = Some(placed.node_selector.clone()).filter(|labels| !labels.is_empty());
        pod.tolerations.get_or_insert_default().extend(placed.tolerations.iter().cloned());
    }
    let meta = spec.template.metadata.get_or_insert_default();
    let notes = meta.annotations.get_or_insert_default();
    if let Some(network) = network {
        let namespace = installation.metadata.namespace.as_deref().unwrap_or_default();
        let full = full_name(network, namespace);
        // Another spelling of the same network rolls nothing.
        let short = full.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')).unwrap_or(&full);
        notes.insert(annotations::NETWORKS.to_owned(), format!("{short}@{}", interfaces::MIGRATION));
        let told = EnvVar { name: MIGRATION_NETWORK.to_owned(), value: Some(full), value_from: None };
        for container in &mut pod.containers {
            container.env.get_or_insert_default().push(told.clone());
        }
    }
    let id = hash(&serde_json::to_vec(&spec.template).unwrap_or_default());
    let meta = spec.template.metadata.get_or_insert_default();
    let notes = meta.annotations.get_or_insert_default();
    notes.insert(annotations::INSTALL_STRATEGY_IDENTIFIER.to_owned(), id.clone());
    Ok(Rendered { set, id })
}

/// Sets how many pods may be away at a time.
pub fn pace(set: &mut DaemonSet, max_unavailable: IntOrString) {
    let strategy = set.spec.get_or_insert_default().update_strategy.get_or_insert_default();
    strategy.rolling_update.get_or_insert_default().max_unavailable = Some(max_unavailable);
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(10).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use api::names::{labels, objects, paths, ports};
    use serde_json::{Value, json};

    use super::*;

    fn rendered(spec: Value, network: Option<&str>) -> (Value, String) {
        let mut installation = KubeVirt::new("kubevirt", serde_json::from_value(spec).unwrap());
        installation.metadata.namespace = Some("kubevirt".into());
        installation.metadata.uid = Some("u1".into());
        let Rendered { set, id } = render(&installation, network).unwrap();
        (serde_json::to_value(set).unwrap(), id)
    }

    #[test]
    fn the_manifest_has_what_the_parts_look_for() {
        let (set, id) = rendered(json!({}), None);
        assert_eq!(set["metadata"]["name"], objects::HANDLER);
        assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "u1");
        let template = &set["spec"]["template"];
        assert_eq!(template["metadata"]["labels"][labels::APP], labels::APP_HANDLER);
        assert_eq!(
            template["metadata"]["annotations"],
            json!({ annotations::INSTALL_STRATEGY_IDENTIFIER: id })
        );
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["ports"][0]["containerPort"], ports::METRICS);
        let mounts = container["volumeMounts"].as_array().unwrap();
        let podinfo = mounts.iter().find(|mount| mount["name"] == "podinfo").unwrap();
        let volumes = template["spec"]["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == "podinfo").unwrap();
        let item = &volume["downwardAPI"]["items"][0];
        let file = format!("{}/{}", podinfo["mountPath"].as_str().unwrap(), item["path"].as_str().unwrap());
        assert_eq!(file, paths::NETWORK_STATUS);
        let field = format!("metadata.annotations['{}']", annotations::NETWORK_STATUS);
        assert_eq!(item["fieldRef"]["fieldPath"], field);
    }

    #[test]
    fn only_what_pods_are_made_of_changes_their_identity() {
        let (plain, plain_id) = rendered(json!({}), None);
        let (attached, attached_id) = rendered(json!({}), Some("fast"));
        assert_eq!(plain["spec"]["template"]["metadata"]["annotations"][annotations::NETWORKS], Value::Null);
        let notes = &attached["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(notes[annotations::NETWORKS], "fast@migration0");
        let environment = attached["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        let told = environment.iter().find(|variable| variable["name"] == MIGRATION_NETWORK).unwrap();
        assert_eq!(told["value"], "kubevirt/fast");
        assert_ne!(plain_id, attached_id);
        assert_eq!(rendered(json!({}), Some("kubevirt/fast")).1, attached_id, "it is the same network");
        assert_ne!(rendered(json!({}), Some("other/fast")).1, attached_id);
        let (_, same) =
            rendered(json!({ "configuration": { "migrations": { "bandwidthPerMigration": "1Gi" } } }), None);
        assert_eq!(plain_id, same, "a setting that no handler is made of rolls none");
        let placed = json!({ "workloads": { "nodePlacement": { "nodeSelector": { "disk": "fast" } } } });
        let (placed, placed_id) = rendered(placed, None);
        assert_eq!(placed["spec"]["template"]["spec"]["nodeSelector"], json!({ "disk": "fast" }));
        assert_ne!(plain_id, placed_id);
    }

    #[test]
    fn no_handler_is_for_a_witness_whatever_else_is_asked_of_nodes() {
        let no_witness = json!({ "key": labels::WITNESS_NODE, "operator": "NotIn", "values": ["true"] });
        let required = |spec: Value| {
            let nodes = &rendered(spec, None).0["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
            nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
        };
        assert_eq!(required(json!({})), json!([{ "matchExpressions": [no_witness] }]));
        let fast = json!({ "key": "disk", "operator": "Exists" });
        let named = json!([{ "key": "metadata.name", "operator": "In", "values": ["n1"] }]);
        let asked =
            json!({ "nodeSelectorTerms": [{ "matchExpressions": [fast] }, { "matchFields": named }] });
        let nodes = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": asked } });
        assert_eq!(
            required(json!({ "workloads": { "nodePlacement": { "affinity": nodes } } })),
            json!([{ "matchExpressions": [fast, no_witness] }, { "matchExpressions": [no_witness], "matchFields": named }])
        );
    }

    #[test]
    fn an_address_has_rested_before_the_next_handler_is_replaced() {
        let (set, _) = rendered(json!({}), None);
        let probe = &set["spec"]["template"]["spec"]["containers"][0]["readinessProbe"];
        let unready = probe["initialDelaySeconds"].as_u64().unwrap();
        assert!(u64::from(crate::setting::definition::REST_SECONDS) <= unready);
    }
}
