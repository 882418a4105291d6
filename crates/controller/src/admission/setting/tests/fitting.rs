//! Values in a cluster: the cluster network, and the room.

use serde_json::json;

use super::{PLAIN, Row, accept, fit, node, object, ready, refuse, unfit, vlan_status};

pub(super) const ROWS: [Row; 36] = [
    // The cluster network is there.
    refuse(
        r#"{"clusterNetwork":"fast","range":"10.1.0.0/24"}"#,
        &[(
            "value.clusterNetwork",
            r#"Cluster network "fast" does not exist: choose one of mgmt, mig, nic, or create it first."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.cluster_networks.clear(),
        &[("value.clusterNetwork", r#"Cluster network "mig" does not exist: create it first."#)],
    ),
    unfit(
        r#"{"clusterNetwork":"mgmt","vlan":200,"range":"10.1.0.0/24"}"#,
        |cluster| cluster.cluster_networks.clear(),
        &[("value.clusterNetwork", r#"Cluster network "mgmt" does not exist: create it first."#)],
    ),
    // It is ready, as far as anybody says.
    fit(PLAIN, |cluster| cluster.cluster_networks[1].status = None),
    unfit(
        PLAIN,
        |cluster| {
            cluster.cluster_networks[1].status = object(json!({ "conditions": ready("False", "no uplink") }));
        },
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" is not ready (no uplink): wait until it is, or choose another."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| {
            cluster.cluster_networks[1].status =
                object(json!({ "conditions": [{ "type": "ready", "status": "False" }] }));
        },
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" is not ready: wait until it is, or choose another."#,
        )],
    ),
    // It reaches every node that can run virtual machines.
    unfit(
        PLAIN,
        |cluster| cluster.vlan_configs.clear(),
        &[(
            "value.clusterNetwork",
            r#"No VlanConfig attaches a node to cluster network "mig": add one with the uplinks of all nodes."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.vlan_configs[0] = matching("mig", r#"["n1"]"#),
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" does not reach nodes n2, n3, where virtual machines can run: add the nodes to a VlanConfig of it."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.nodes.push(object(node("n4", 4))),
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" does not reach node n4, where virtual machines can run: add the nodes to a VlanConfig of it."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.nodes.extend((4..=9).map(|number| object(node(&format!("n{number}"), number)))),
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" does not reach nodes n4, n5, n6, n7, n8 and 1 more, where virtual machines can run: add the nodes to a VlanConfig of it."#,
        )],
    ),
    fit(PLAIN, |cluster| {
        cluster.vlan_configs[0] = matching("mig", r#"["n1"]"#);
        cluster.vlan_configs.push(matching("mig", r#"["n2","n3"]"#));
    }),
    // Without Harvester's note, by the selector.
    fit(PLAIN, |cluster| cluster.vlan_configs[0].metadata.annotations = None),
    unfit(
        PLAIN,
        |cluster| {
            cluster.vlan_configs[0].metadata.annotations = None;
            cluster.vlan_configs[0].spec.node_selector.insert("rack".into(), "1".into());
        },
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" does not reach nodes n2, n3, where virtual machines can run: add the nodes to a VlanConfig of it."#,
        )],
    ),
    // A witness runs none; a node that only calls itself so may.
    fit(PLAIN, |cluster| cluster.nodes.truncate(4)),
    unfit(
        PLAIN,
        |cluster| {
            cluster.nodes[3].metadata.labels =
                Some([("node-role.harvesterhci.io/witness".to_owned(), "false".to_owned())].into());
        },
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" does not reach node witness, where virtual machines can run: add the nodes to a VlanConfig of it."#,
        )],
    ),
    // Nor does a node that the installation leaves out.
    fit(PLAIN, |cluster| {
        cluster.vlan_configs[0] = matching("mig", r#"["n1"]"#);
        cluster.installation = Some(object(json!({
            "metadata": { "name": "kubevirt" }, "spec": { "workloads": { "nodePlacement": { "nodeSelector": { "rack": "1" } } } },
        })));
    }),
    fit(PLAIN, |cluster| {
        cluster.vlan_configs[0] = matching("mig", r#"["n1","n3"]"#);
        cluster.installation = Some(object(json!({
            "metadata": { "name": "kubevirt" },
            "spec": { "workloads": { "nodePlacement": { "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "rack", "operator": "NotIn", "values": ["2"] }] },
                ]},
            }}}}},
        })));
    }),
    // Each node says so.
    unfit(
        PLAIN,
        |cluster| cluster.vlan_statuses[1] = object(vlan_status("mig", "n2", "False", "eno2 is down")),
        &[(
            "value.clusterNetwork",
            r#"Cluster network "mig" is not ready on node n2 (eno2 is down): mend its uplinks there, or choose another."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.vlan_statuses[2] = object(vlan_status("mig", "n3", "Unknown", "")),
        &[(
            "value.clusterNetwork",
            r#"Whether cluster network "mig" is ready on node n3 is not known yet: wait until its VlanStatus there says so."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.vlan_statuses.clear(),
        &[(
            "value.clusterNetwork",
            r#"Whether cluster network "mig" is ready on nodes n1, n2, n3 is not known yet: wait until its VlanStatus there says so."#,
        )],
    ),
    // The nodes' own network is wherever they are.
    fit(r#"{"clusterNetwork":"mgmt","vlan":200,"range":"10.1.0.0/24"}"#, |cluster| {
        cluster.vlan_configs.clear();
        cluster.vlan_statuses.clear();
    }),
    // How pods are attached.
    accept(r#"{"clusterNetwork":"nic","range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"nic","vlan":1,"range":"10.1.0.0/24"}"#),
    refuse(
        r#"{"clusterNetwork":"nic","vlan":200,"range":"10.1.0.0/24"}"#,
        &[(
            "value.vlan",
            r#"Cluster network "nic" is the NIC eth1 of each node, without a bridge that could tag VLAN 200: set vlan to 0."#,
        )],
    ),
    unfit(
        r#"{"clusterNetwork":"migration-net","range":"10.1.0.0/24"}"#,
        |cluster| rename(cluster, "migration-net"),
        &[(
            "value.clusterNetwork",
            r#"The bridge of cluster network "migration-net" would be called migration-net-br, and a link has at most 15 characters: choose another."#,
        )],
    ),
    fit(r#"{"clusterNetwork":"migration-net","range":"10.1.0.0/24"}"#, |cluster| {
        rename(cluster, "migration-net");
        cluster.cluster_networks[1].metadata.annotations =
            Some([("godwit.dev/bridge".to_owned(), "br-mig".to_owned())].into());
    }),
    // Room: 3 nodes, 1 at rest, 2 + 1 synchronization controllers.
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/28","exclude":["10.1.0.8-10.1.0.14"]}"#),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/29"}"#,
        &[(
            "value.range",
            "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; 10.1.0.0/29 has 6 = 6 usable (10.1.0.1-10.1.0.6); 1 missing. Choose a larger range, or exclude less.",
        )],
    ),
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.8-10.1.0.254"]}"#),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.7-10.1.0.254"]}"#,
        &[(
            "value.range",
            "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; 10.1.0.0/24 has 6 = 254 usable (10.1.0.1-10.1.0.254) - 248 excluded; 1 missing. Choose a larger range, or exclude less.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/125"}"#,
        &[(
            "value.rangeV6",
            "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; fd00:1::/125 has 6 = 6 usable (fd00:1::1-fd00:1::6); 1 missing. Choose a larger range, or exclude less.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::10","rangeV6End":"fd00:1::12"}"#,
        &[(
            "value.rangeV6",
            "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; fd00:1::/64 has 3 = 3 usable (fd00:1::10-fd00:1::12); 4 missing. Choose a larger range, or exclude less.",
        )],
    ),
    fit(r#"{"clusterNetwork":"mig","range":"10.1.0.0/29"}"#, |cluster| {
        cluster.installation = Some(object(
            json!({ "metadata": { "name": "kubevirt" }, "spec": { "infra": { "replicas": 1 } } }),
        ));
    }),
    unfit(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/29"}"#,
        |cluster| {
            cluster.installation = Some(object(json!({
                "metadata": { "name": "kubevirt" }, "spec": { "infra": { "replicas": 1 }, "synchronizationPlacement": { "replicas": 4 } },
            })));
        },
        &[(
            "value.range",
            "Too few addresses: the network needs 9 = 3 nodes + 1 resting in a rolling update + 4 synchronization controllers + 1 more of those in a rolling update; 10.1.0.0/29 has 6 = 6 usable (10.1.0.1-10.1.0.6); 3 missing. Choose a larger range, or exclude less.",
        )],
    ),
    // A node that is left out needs none; nor does a witness.
    fit(r#"{"clusterNetwork":"mig","range":"10.1.0.0/29"}"#, |cluster| {
        cluster.installation = Some(object(json!({
            "metadata": { "name": "kubevirt" },
            "spec": { "workloads": { "nodePlacement": { "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": "rack", "operator": "Lt", "values": ["3"] }] },
                ]},
            }}}}},
        })));
    }),
    // Everything at once.
    refuse(
        r#"{"clusterNetwork":"fast","range":"10.43.0.0/29"}"#,
        &[
            (
                "value.clusterNetwork",
                r#"Cluster network "fast" does not exist: choose one of mgmt, mig, nic, or create it first."#,
            ),
            (
                "value.range",
                "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; 10.43.0.0/29 has 6 = 6 usable (10.43.0.1-10.43.0.6); 1 missing. Choose a larger range, or exclude less.",
            ),
            (
                "value.range",
                "The range overlaps with the service network in 10.43.0.0/29: choose addresses that nothing else has.",
            ),
        ],
    ),
];

fn matching(network: &str, nodes: &str) -> api::harvester::VlanConfig {
    object(json!({
        "metadata": { "name": "some", "annotations": { "network.harvesterhci.io/matched-nodes": nodes } },
        "spec": { "clusterNetwork": network, "uplink": {} },
    }))
}

/// `mig` under another name.
fn rename(cluster: &mut super::Cluster, name: &str) {
    cluster.cluster_networks[1].metadata.name = Some(name.to_owned());
    cluster.vlan_configs[0].spec.cluster_network = name.to_owned();
    for status in cluster.vlan_statuses.iter_mut().filter_map(|status| status.status.as_mut()) {
        if status.cluster_network == "mig" {
            name.clone_into(&mut status.cluster_network);
        }
    }
}
