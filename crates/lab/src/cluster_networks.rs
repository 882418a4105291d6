//! The lab's secondary networks as Harvester's objects: each is a `ClusterNetwork`, with a `VlanConfig` for the nodes that have its
//! NIC and a `VlanStatus` that says that they are ready.
//!
//! The wiring is the topology's, done before a node's agent runs, so there is nothing to watch: what is written here is true from
//! the start. The management network is the nodes' own and is none of these.

use std::collections::BTreeMap;

use api::harvester::{ClusterNetwork, VlanConfig, VlanStatus};
use api::names::{annotations, conditions, labels};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::{conditions::is_crd_established, wait::await_condition};
use kube::{Api, Client, CustomResourceExt, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Error;
use crate::control_plane::MANAGER;
use crate::topology::{Cluster, MANAGEMENT, Network, Nic, Topology, cluster_network_label};

/// The longest name of a cluster network: Harvester's bridge of it has three letters more.
const LONGEST: usize = 12;

/// One secondary network in one cluster, as objects.
#[derive(Debug, PartialEq)]
struct Published {
    network: Value,
    config: Value,
    statuses: Vec<Value>,
}

/// Writes the objects, and then has nothing more to do; returns only with a failure.
pub(crate) async fn publish(client: Client, topology: &Topology, cluster: &Cluster) -> Result<(), Error> {
    established::<ClusterNetwork>(&client).await?;
    established::<VlanConfig>(&client).await?;
    established::<VlanStatus>(&client).await?;
    for Published { network, config, statuses } in objects(topology, cluster) {
        apply::<ClusterNetwork>(&client, network).await?;
        apply::<VlanConfig>(&client, config).await?;
        for status in statuses {
            apply::<VlanStatus>(&client, status).await?;
        }
    }
    std::future::pending().await
}

async fn established<K: CustomResourceExt>(client: &Client) -> Result<(), Error> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = K::crd().name_any();
    await_condition(definitions, &name, is_crd_established())
        .await
        .map_err(|source| Error::Wait { what: format!("the definition of {name}"), source })?;
    Ok(())
}

async fn apply<K>(client: &Client, object: Value) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut object = object;
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    Api::<K>::all(client.clone())
        .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object))
        .await
        .map_err(Error::api(format!("publishing the {} {name}", K::kind(&()))))?;
    Ok(())
}

/// The secondary networks of a cluster; those that no node of it is on are none of its.
fn objects(topology: &Topology, cluster: &Cluster) -> Vec<Published> {
    let mut published = Vec::new();
    for network in &topology.networks {
        let on_it = cluster.nodes.iter().filter_map(|node| {
            let nic = node.nics.iter().find(|nic| nic.network == network.name && nic.name != MANAGEMENT)?;
            Some((node.name.as_str(), nic))
        });
        let on_it: BTreeMap<&str, &Nic> = on_it.collect();
        let Some(nic) = on_it.values().next() else { continue };
        if network.name.len() > LONGEST {
            tracing::warn!(
                network = network.name,
                "the name has more than {LONGEST} characters, so it cannot be a cluster network"
            );
            continue;
        }
        let nodes: Vec<&str> = on_it.keys().copied().collect();
        published.push(publish_one(network, nic, &nodes));
    }
    published
}

fn publish_one(network: &Network, nic: &Nic, nodes: &[&str]) -> Published {
    let name = network.name.as_str();
    let ready = json!([{ "type": conditions::HARVESTER_READY, "status": "True" }]);
    let mut told = json!({ annotations::UPLINK_MTU: network.mtu.to_string() });
    match &nic.bridge {
        Some(bridge) => told[annotations::BRIDGE] = json!(bridge),
        None => told[annotations::UPLINK] = json!(nic.name),
    }
    let of_network = json!({ labels::CLUSTER_NETWORK: name });
    let status = |node: &&str| {
        json!({
            "metadata": { "name": format!("{name}-{node}"), "labels": of_network },
            "status": { "clusterNetwork": name, "vlanConfig": name, "linkMonitor": name, "node": node, "conditions": ready },
        })
    };
    Published {
        network: json!({ "metadata": { "name": name, "annotations": told }, "status": { "conditions": ready } }),
        config: json!({
            "metadata": {
                "name": name,
                "labels": of_network,
                "annotations": { annotations::MATCHED_NODES: json!(nodes).to_string() },
            },
            "spec": {
                "description": "made from lab.yaml",
                "clusterNetwork": name,
                "nodeSelector": { cluster_network_label(name): "true" },
                "uplink": { "nics": [nic.name], "linkAttributes": { "mtu": network.mtu } },
            },
        }),
        statuses: nodes.iter().map(status).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use crate::topology::read;

    #[test]
    fn every_secondary_network_is_a_cluster_network_where_its_nic_is() {
        let topology = read(
            "
clusters: [{ name: east, nodes: 2 }, { name: west, nodes: 1 }]
networks:
  - { name: mgmt, nic: eth0 }
  - { name: fast, nic: eth1, mtu: 9000, nodes: [east-2] }
  - { name: wide, nic: eth2, bridge: br-wide }
  - { name: a-rather-long, nic: eth3 }
",
        )
        .unwrap();
        let published = objects(&topology, topology.cluster("east").unwrap());
        let [fast, wide] = published.as_slice() else { unreachable!("{published:?}") };
        assert_eq!(fast.network["metadata"]["annotations"]["godwit.dev/uplink"], "eth1");
        assert_eq!(fast.network["metadata"]["annotations"]["network.harvesterhci.io/uplink-mtu"], "9000");
        assert_eq!(
            fast.config["metadata"]["annotations"]["network.harvesterhci.io/matched-nodes"],
            r#"["east-2"]"#
        );
        assert_eq!(fast.statuses.len(), 1);
        assert_eq!(wide.network["metadata"]["annotations"]["godwit.dev/bridge"], "br-wide");
        assert_eq!(
            wide.statuses.iter().map(|status| status["status"]["node"].clone()).collect::<Vec<_>>(),
            ["east-1", "east-2"]
        );
        assert_eq!(objects(&topology, topology.cluster("west").unwrap()).len(), 1);
    }
}
