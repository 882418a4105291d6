//! Cluster networks: which uplinks of which nodes form one layer-2 network.
//!
//! `ClusterNetwork` is the name, `VlanConfig` the wish for some nodes, `VlanStatus` what became of it on one node.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{condition::HarvesterCondition, string_enum::string_enum};

/// A cluster network has no spec: its name is all that there is to say.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "network.harvesterhci.io",
    version = "v1beta1",
    kind = "ClusterNetwork",
    plural = "clusternetworks",
    singular = "clusternetwork",
    shortname = "cn",
    shortname = "cns",
    no_spec,
    status = "ClusterNetworkStatus",
    derive = "PartialEq",
    doc = "A layer-2 network between nodes."
)]
pub struct ClusterNetworkBody {}

/// Whether the network is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterNetworkStatus {
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<HarvesterCondition>,
}

/// Which uplinks of which nodes belong to a cluster network.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "network.harvesterhci.io",
    version = "v1beta1",
    kind = "VlanConfig",
    plural = "vlanconfigs",
    singular = "vlanconfig",
    shortname = "vc",
    shortname = "vcs",
    derive = "PartialEq",
    doc = "Which uplinks of which nodes belong to a cluster network.",
    printcolumn(name = "CLUSTERNETWORK", type_ = "string", json_path = ".spec.clusterNetwork"),
    printcolumn(name = "DESCRIPTION", type_ = "string", json_path = ".spec.description"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct VlanConfigSpec {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The cluster network.
    #[schemars(length(min = 1, max = 12))]
    pub cluster_network: String,
    /// Which nodes; empty: all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Their uplinks.
    pub uplink: Uplink,
}

/// Uplinks of a node, bonded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Uplink {
    /// Network cards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<String>,
    /// Properties of the bond as a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_attributes: Option<LinkAttributes>,
    /// Properties of the bond as a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_options: Option<BondOptions>,
}

/// Properties of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkAttributes {
    /// Largest packet; 0: 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub mtu: Option<i32>,
    /// Length of the transmit queue; -1: the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1), extend("default" = -1))]
    pub tx_q_len: Option<i32>,
    /// Ethernet address, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub hardware_addr: Option<String>,
}

/// Properties of a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BondOptions {
    /// How traffic is spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "active-backup"))]
    pub mode: Option<BondMode>,
    /// Milliseconds between looks at the links; -1: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1), extend("default" = -1))]
    pub miimon: Option<i32>,
}

string_enum! {
    /// How a bond spreads traffic.
    pub enum BondMode {
        /// In turn.
        BalanceRr = "balance-rr",
        /// One at a time.
        ActiveBackup = "active-backup",
        /// By a hash of the addresses.
        BalanceXor = "balance-xor",
        /// On all.
        Broadcast = "broadcast",
        /// Negotiated with the switch.
        Ieee8023ad = "802.3ad",
        /// By load, outwards.
        BalanceTlb = "balance-tlb",
        /// By load, both ways.
        BalanceAlb = "balance-alb",
    }
}

/// What became of a cluster network on one node; all of it is status.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "network.harvesterhci.io",
    version = "v1beta1",
    kind = "VlanStatus",
    plural = "vlanstatuses",
    singular = "vlanstatus",
    shortname = "vs",
    shortname = "vss",
    no_spec,
    status = "NodeNetworkStatus",
    derive = "PartialEq",
    doc = "What became of a cluster network on one node.",
    printcolumn(name = "CLUSTERNETWORK", type_ = "string", json_path = ".status.clusterNetwork"),
    printcolumn(name = "VLANCONFIG", type_ = "string", json_path = ".status.vlanConfig"),
    printcolumn(name = "NODE", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct VlanStatusBody {}

/// What became of a cluster network on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetworkStatus {
    /// The cluster network.
    pub cluster_network: String,
    /// The wish that was acted on.
    pub vlan_config: String,
    /// What watches the links.
    pub link_monitor: String,
    /// The node.
    pub node: String,
    /// VLANs in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_areas: Vec<LocalArea>,
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<HarvesterCondition>,
}

/// A VLAN in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalArea {
    /// Its number.
    #[serde(rename = "vlanID")]
    pub vlan_id: u16,
    /// Its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
}
