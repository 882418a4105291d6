//! `k8s.ovn.org/v1`: networks of tenants.
//!
//! It owns the description of such a network; how it is built is the plugins' affair. Left out: transports other than
//! the overlay, and uplinks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

/// A network of one namespace.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "UserDefinedNetwork",
    plural = "userdefinednetworks",
    singular = "userdefinednetwork",
    shortname = "udn",
    namespaced,
    status = "NetworkStatus",
    derive = "PartialEq",
    doc = "A network of one namespace."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self == oldSelf", "message": "Spec is immutable" },
    {
        "rule": "(self.topology == 'Layer3') == has(self.layer3)",
        "message": "spec.layer3 is required when topology is Layer3 and forbidden otherwise",
    },
    {
        "rule": "(self.topology == 'Layer2') == has(self.layer2)",
        "message": "spec.layer2 is required when topology is Layer2 and forbidden otherwise",
    },
]))]
pub struct UserDefinedNetworkSpec {
    /// Shape of the network.
    pub topology: NamespaceTopology,
    /// A segment for each node, routed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer3: Option<Layer3>,
    /// One segment for all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer2: Option<Layer2>,
}

string_enum! {
    /// Shape of a network of one namespace.
    pub enum NamespaceTopology {
        /// One segment for all nodes.
        Layer2 = "Layer2",
        /// A segment for each node, routed.
        Layer3 = "Layer3",
    }
}

/// A network of many namespaces.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8s.ovn.org",
    version = "v1",
    kind = "ClusterUserDefinedNetwork",
    plural = "clusteruserdefinednetworks",
    singular = "clusteruserdefinednetwork",
    shortname = "cudn",
    status = "NetworkStatus",
    derive = "PartialEq",
    doc = "A network of many namespaces."
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUserDefinedNetworkSpec {
    /// Which namespaces have it.
    pub namespace_selector: LabelSelector,
    /// The network.
    pub network: ClusterNetworkSpec,
}

/// The network of a `ClusterUserDefinedNetwork`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self == oldSelf", "message": "Network spec is immutable" },
    {
        "rule": "(self.topology == 'Layer3') == has(self.layer3)",
        "message": "spec.layer3 is required when topology is Layer3 and forbidden otherwise",
    },
    {
        "rule": "(self.topology == 'Layer2') == has(self.layer2)",
        "message": "spec.layer2 is required when topology is Layer2 and forbidden otherwise",
    },
    {
        "rule": "(self.topology == 'Localnet') == has(self.localnet)",
        "message": "spec.localnet is required when topology is Localnet and forbidden otherwise",
    },
]))]
pub struct ClusterNetworkSpec {
    /// Shape of the network.
    pub topology: ClusterTopology,
    /// A segment for each node, routed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer3: Option<Layer3>,
    /// One segment for all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer2: Option<Layer2>,
    /// A physical network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localnet: Option<Localnet>,
}

string_enum! {
    /// Shape of a network of many namespaces.
    pub enum ClusterTopology {
        /// One segment for all nodes.
        Layer2 = "Layer2",
        /// A segment for each node, routed.
        Layer3 = "Layer3",
        /// A physical network.
        Localnet = "Localnet",
    }
}

string_enum! {
    /// What a network is to the pods on it.
    pub enum NetworkRole {
        /// It takes the place of the pod network.
        Primary = "Primary",
        /// It comes on top of the pod network.
        Secondary = "Secondary",
    }
}

/// One segment for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode != 'Disabled' ? has(self.subnets) : !has(self.subnets)",
        "message": "Subnets is required with ipam.mode is Enabled or unset, and forbidden otherwise",
    },
    {
        "rule": "!has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode != 'Disabled' || self.role == 'Secondary'",
        "message": "Disabled ipam.mode is only supported for Secondary network",
    },
    {
        "rule": "self.role == 'Primary' || !has(self.joinSubnets) && !has(self.reservedSubnets) && !has(self.infrastructureSubnets) && !has(self.defaultGatewayIPs)",
        "message": "joinSubnets, reservedSubnets, infrastructureSubnets and defaultGatewayIPs are only supported for Primary network",
    },
]))]
pub struct Layer2 {
    /// What it is to the pods on it.
    pub role: NetworkRole,
    /// Largest packet. Default 1400.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65536))]
    pub mtu: Option<i32>,
    /// Addresses of the pods; one range of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 43)), extend("x-kubernetes-list-type" = "set"))]
    pub subnets: Vec<String>,
    /// Addresses that are given on request only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 25), inner(length(max = 43)))]
    pub reserved_subnets: Vec<String>,
    /// Addresses of the network's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 4), inner(length(max = 43)))]
    pub infrastructure_subnets: Vec<String>,
    /// Gateways; one of each family. Default: the first address of each range.
    #[serde(rename = "defaultGatewayIPs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 39)))]
    pub default_gateway_ips: Vec<String>,
    /// Ranges inside the network's machinery. Default 100.65.0.0/16 and fd99::/64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 43)))]
    pub join_subnets: Vec<String>,
    /// How addresses are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam: Option<Ipam>,
}

/// A segment for each node, routed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.joinSubnets) || self.role == 'Primary'",
    "message": "JoinSubnets is only supported for Primary network",
}]))]
pub struct Layer3 {
    /// What it is to the pods on it.
    pub role: NetworkRole,
    /// Largest packet. Default 1400.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65536))]
    pub mtu: Option<i32>,
    /// Addresses of the pods; one range of each family, divided among the nodes.
    #[schemars(length(min = 1, max = 2))]
    pub subnets: Vec<Layer3Subnet>,
    /// Ranges inside the network's machinery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 43)))]
    pub join_subnets: Vec<String>,
}

/// A range that is divided among the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Layer3Subnet {
    /// The range.
    #[schemars(length(max = 43))]
    pub cidr: String,
    /// Length of the prefix of a node's share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 127))]
    pub host_subnet: Option<i32>,
}

/// A physical network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.role == 'Secondary'",
        "message": "Localnet is only supported for Secondary network",
    },
    {
        "rule": "!has(self.ipam) || !has(self.ipam.mode) || self.ipam.mode != 'Disabled' ? has(self.subnets) : !has(self.subnets)",
        "message": "Subnets is required with ipam.mode is Enabled or unset, and forbidden otherwise",
    },
    {
        "rule": "!has(self.excludeSubnets) || has(self.subnets)",
        "message": "excludeSubnets must be unset when subnets is unset",
    },
]))]
pub struct Localnet {
    /// What it is to the pods on it.
    pub role: NetworkRole,
    /// Name of the physical network, as the nodes map it to a bridge.
    #[schemars(length(min = 1, max = 253))]
    pub physical_network_name: String,
    /// Addresses of the pods; one range of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 2), inner(length(max = 43)))]
    pub subnets: Vec<String>,
    /// Addresses that are not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 25), inner(length(max = 43)))]
    pub exclude_subnets: Vec<String>,
    /// How addresses are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam: Option<Ipam>,
    /// Largest packet. Default 1500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 576, max = 65536))]
    pub mtu: Option<i32>,
    /// VLAN on the physical network; none: untagged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
}

/// VLAN on a physical network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.access)",
    "message": "vlan access config is required when vlan mode is 'Access'",
}]))]
pub struct Vlan {
    /// How it is tagged.
    pub mode: VlanMode,
    /// The VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessVlan>,
}

string_enum! {
    /// How a VLAN is tagged.
    pub enum VlanMode {
        /// All traffic is in one VLAN.
        Access = "Access",
    }
}

/// One VLAN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessVlan {
    /// Its number.
    #[schemars(range(min = 1, max = 4094))]
    pub id: i32,
}

/// How addresses are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.lifecycle) || !has(self.mode) || self.mode == 'Enabled'",
    "message": "lifecycle Persistent is only supported when ipam.mode is Enabled",
}]))]
pub struct Ipam {
    /// Whether they are given. Default Enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<IpamMode>,
    /// How long they are kept. Default: as long as the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<IpamLifecycle>,
}

string_enum! {
    /// Whether addresses are given.
    pub enum IpamMode {
        /// They are.
        Enabled = "Enabled",
        /// The guests bring their own.
        Disabled = "Disabled",
    }
}

string_enum! {
    /// How long addresses are kept.
    pub enum IpamLifecycle {
        /// As long as the claim that owns them.
        Persistent = "Persistent",
    }
}

/// Whether the network was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkStatus {
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
