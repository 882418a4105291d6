//! The migration network as a `NetworkAttachmentDefinition`; pure.
//!
//! Its name comes of the network's hash: a controller that was killed half-way makes the same one again, and a changed network is
//! another object beside the old one.

use std::collections::BTreeMap;

use api::harvester::ClusterNetwork;
use api::multus::NetworkAttachmentDefinition;
use api::names::{annotations, labels, objects};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::admission::setting::{MigrationNetwork, NormalRange, texts};

/// The plugin that gives the addresses.
const IPAM: &str = "godwit-ipam";
/// The first version whose attachments are checked and collected.
const CNI_VERSION: &str = "1.0.0";
/// How long a handler's address rests. Its successor is not ready any sooner, and the next node's handler waits for that, so no more
/// addresses rest than handlers are replaced at once: what head-room is counted by. It can be as short as that because handlers
/// prove who they are: a neighbour that still takes the address for its last holder's costs a second try, and nothing else.
pub(crate) const REST_SECONDS: u32 = 2;
/// So much of the hash is enough to tell one network from the last.
const DIGITS_IN_NAME: usize = 10;

/// Name of the definition of a network.
pub fn name(network: &MigrationNetwork) -> String {
    let mut digits = network.hash();
    digits.truncate(DIGITS_IN_NAME);
    format!("{}{digits}", objects::MIGRATION_NETWORK_DEFINITION_PREFIX)
}

/// Whether a definition is one of ours, by what `KubeVirt` or a list calls it.
pub fn is_ours(name: &str) -> bool {
    name.starts_with(objects::MIGRATION_NETWORK_DEFINITION_PREFIX)
}

/// The definition of a network.
pub fn render(
    network: &MigrationNetwork,
    cluster_network: &ClusterNetwork,
    namespace: &str,
) -> NetworkAttachmentDefinition {
    let name = name(network);
    let config = config(&name, network, cluster_network);
    let mut definition = NetworkAttachmentDefinition::with_config(&name, config.to_string());
    definition.metadata.namespace = Some(namespace.to_owned());
    let mut labels = BTreeMap::from([
        (annotations::MIGRATION_NETWORK_HASH.to_owned(), network.hash()),
        (labels::CLUSTER_NETWORK.to_owned(), network.cluster_network.clone()),
    ]);
    if let Some(vlan) = network.vlan {
        labels.insert(labels::NETWORK_TYPE.to_owned(), labels::NETWORK_TYPE_VLAN.to_owned());
        labels.insert(labels::VLAN_ID.to_owned(), vlan.to_string());
    }
    definition.metadata.labels = Some(labels);
    definition.metadata.annotations =
        Some(BTreeMap::from([(annotations::MIGRATION_NETWORK.to_owned(), "true".to_owned())]));
    definition
}

fn config(name: &str, network: &MigrationNetwork, cluster_network: &ClusterNetwork) -> Value {
    let told = cluster_network.annotations();
    let mut config = json!({ "cniVersion": CNI_VERSION, "name": name, "ipam": ipam(network) });
    if let Some(uplink) = told.get(annotations::UPLINK) {
        config["type"] = json!("macvlan");
        config["master"] = json!(uplink);
        config["mode"] = json!("bridge");
    } else {
        let usual = || format!("{}-br", network.cluster_network);
        config["type"] = json!("bridge");
        config["bridge"] = json!(told.get(annotations::BRIDGE).cloned().unwrap_or_else(usual));
        if let Some(vlan) = network.vlan {
            config["vlan"] = json!(vlan);
        }
    }
    if let Some(mtu) = told.get(annotations::UPLINK_MTU).and_then(|mtu| mtu.parse::<u32>().ok()) {
        config["mtu"] = json!(mtu);
    }
    config
}

/// One range in the keys of one, two as a list: everybody then gets an address of each. Addresses are counted by segment: those who
/// are on one, with an older range or the new, never get the same, and equal ranges on two have nothing to do with each other.
fn ipam(network: &MigrationNetwork) -> Value {
    let written = |range: &NormalRange| {
        let mut written = json!({ "range": range.network.to_string() });
        if let Some((first, last)) = range.ends {
            written["range_start"] = json!(first);
            written["range_end"] = json!(last);
        }
        if !range.exclude.is_empty() {
            written["exclude"] = json!(texts(&range.exclude));
        }
        written
    };
    let mut ipam = match network.ranges().as_slice() {
        [only] => written(only),
        several => json!({ "ipRanges": several.iter().map(written).collect::<Vec<_>>() }),
    };
    ipam["type"] = json!(IPAM);
    ipam["network_name"] = json!(segment_name(network));
    ipam["rest_seconds"] = json!(REST_SECONDS);
    ipam
}

/// The segment in the letters of a network's name. What follows the last of a cluster network's own is the VLAN or that there is none,
/// so no two segments have one name.
fn segment_name(network: &MigrationNetwork) -> String {
    match network.vlan {
        Some(vlan) => format!("{}-vlan-{vlan}", network.cluster_network),
        None => format!("{}-untagged", network.cluster_network),
    }
}

/// Whether a definition says what it is to say. What others add to its labels is theirs, and JSON may be laid out anyhow.
pub fn says(there: &NetworkAttachmentDefinition, wanted: &NetworkAttachmentDefinition) -> bool {
    let config = |definition: &NetworkAttachmentDefinition| {
        definition.config().and_then(|config| serde_json::from_str::<Value>(config).ok())
    };
    let has = |there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(name, value)| there.get(name) == Some(value))
    };
    config(there) == config(wanted)
        && has(there.labels(), wanted.labels())
        && has(there.annotations(), wanted.annotations())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use crate::admission::setting::read;

    fn rendered(value: &str, told: &[(&str, &str)]) -> NetworkAttachmentDefinition {
        let network = read(value, "value").unwrap().unwrap();
        let mut of_cluster: ClusterNetwork =
            serde_json::from_value(json!({ "metadata": { "name": network.cluster_network } })).unwrap();
        let told = told.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        of_cluster.metadata.annotations = Some(told);
        render(&network, &of_cluster, "kubevirt")
    }

    fn config(definition: &NetworkAttachmentDefinition) -> Value {
        serde_json::from_str(definition.config().unwrap()).unwrap()
    }

    #[test]
    fn a_bridge_with_a_vlan() {
        let definition = rendered(
            r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","exclude":["10.1.0.2","10.1.0.1"]}"#,
            &[(annotations::UPLINK_MTU, "9000")],
        );
        assert_eq!(
            config(&definition),
            json!({
                "cniVersion": "1.0.0", "name": definition.name_any(), "type": "bridge", "bridge": "mig-br",
                "vlan": 200, "mtu": 9000,
                "ipam": {
                    "type": "godwit-ipam", "network_name": "mig-vlan-200", "rest_seconds": 2,
                    "range": "10.1.0.0/24", "exclude": ["10.1.0.1-10.1.0.2"],
                },
            })
        );
        assert_eq!(definition.namespace().as_deref(), Some("kubevirt"));
        assert_eq!(definition.annotations()["vm-migration-network.settings.harvesterhci.io"], "true");
        assert_eq!(definition.labels()["network.harvesterhci.io/vlan-id"], "200");
        let hash = &definition.labels()["vm-migration-network.settings.harvesterhci.io/hash"];
        assert_eq!(definition.name_any(), format!("vm-migration-network-{}", &hash[..10]));
    }

    #[test]
    fn a_nic_without_a_bridge_of_either_family() {
        let value = r#"{"clusterNetwork":"mig","vlan":1,"range":"10.1.0.0/24","rangeV6":"fd00::/64","rangeV6Start":"fd00::10",
                        "rangeV6End":"fd00::1f","exclude":["fd00::11"]}"#;
        let definition = rendered(value, &[(annotations::UPLINK, "eth1")]);
        assert_eq!(
            config(&definition),
            json!({
                "cniVersion": "1.0.0", "name": definition.name_any(), "type": "macvlan", "master": "eth1", "mode": "bridge",
                "ipam": { "type": "godwit-ipam", "network_name": "mig-untagged", "rest_seconds": 2, "ipRanges": [
                    { "range": "10.1.0.0/24" },
                    { "range": "fd00::/64", "range_start": "fd00::10", "range_end": "fd00::1f", "exclude": ["fd00::11"] },
                ]},
            })
        );
        assert!(!definition.labels().contains_key(labels::VLAN_ID));
    }

    #[test]
    fn a_bridge_of_another_name() {
        let definition =
            rendered(r#"{"clusterNetwork":"mig","range":"fd00::/64"}"#, &[(annotations::BRIDGE, "br-fast")]);
        assert_eq!(config(&definition)["bridge"], "br-fast");
        assert_eq!(config(&definition).get("vlan"), None);
    }

    #[test]
    fn addresses_are_counted_by_segment_whatever_the_range() {
        let counted_in = |value: &str| {
            let ipam = config(&rendered(value, &[]))["ipam"].clone();
            // As the plugin reads it.
            let settings = addressing::PoolSettings {
                network_name: Some(ipam["network_name"].as_str().unwrap().to_owned()),
                range: Some(ipam["range"].as_str().unwrap().to_owned()),
                ..addressing::PoolSettings::default()
            };
            addressing::Pool::read(&settings).unwrap().network_name().unwrap().to_owned()
        };
        let of = counted_in(r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24"}"#);
        for (value, same) in [
            (r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/25"}"#, true),
            (r#"{"clusterNetwork":"mig","vlan":200,"range":"fd00:1::/64"}"#, true),
            (r#"{"clusterNetwork":"mig","vlan":201,"range":"10.1.0.0/24"}"#, false),
            (r#"{"clusterNetwork":"mig","range":"10.1.0.0/24"}"#, false),
            (r#"{"clusterNetwork":"gim","vlan":200,"range":"10.1.0.0/24"}"#, false),
            (r#"{"clusterNetwork":"mig-vlan-200","range":"10.1.0.0/24"}"#, false),
        ] {
            assert_eq!(counted_in(value) == of, same, "{value}");
        }
    }

    #[test]
    fn what_others_add_is_theirs_and_what_they_change_is_not() {
        let wanted = rendered(r#"{"clusterNetwork":"mig","range":"10.1.0.0/24"}"#, &[]);
        let mut there = wanted.clone();
        there.labels_mut().insert("network.harvesterhci.io/ready".into(), "true".into());
        there.spec.spec.as_mut().unwrap().config = Some(format!(" {}", wanted.config().unwrap()));
        assert!(says(&there, &wanted));
        there.annotations_mut().clear();
        assert!(!says(&there, &wanted));
        there.annotations_mut().clone_from(wanted.annotations());
        there.spec.spec.as_mut().unwrap().config = Some("{".into());
        assert!(!says(&there, &wanted));
    }
}
