//! The annotation `k8s.v1.cni.cncf.io/network-status`: which networks a pod is attached to now.
//!
//! Written once after the pod's interfaces are there; it may come late. Whoever needs the truth looks at the interface.

use serde::{Deserialize, Serialize};

/// One interface of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkStatus {
    /// `namespace/definition`, or the name of the CNI network for the pod network.
    pub name: String,
    /// Name of the interface in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Addresses, without the length of their prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,
    /// Ethernet address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Largest packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// It is the pod network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    /// Name servers; written even if empty, because readers expect the key.
    #[serde(default)]
    pub dns: NetworkDns,
    /// Device behind the interface.
    #[serde(rename = "device-info", default, skip_serializing_if = "Option::is_none")]
    pub device_info: Option<serde_json::Value>,
    /// Gateways of the default route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<String>,
}

/// Name servers of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDns {
    /// Addresses of the servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Domain of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Domains to look in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// The annotation is not a JSON list of network statuses.
#[derive(Debug, thiserror::Error)]
#[error("the network-status annotation is not a JSON list of network statuses")]
pub struct NetworkStatusError {
    /// Where and why.
    #[from]
    source: serde_json::Error,
}

/// Reads the annotation. An empty value is no interface: the file of the downward API is empty until it is written.
pub fn parse_network_status(text: &str) -> Result<Vec<NetworkStatus>, NetworkStatusError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    Ok(serde_json::from_str(text)?)
}

/// Writes the annotation, indented as Multus does: people read it.
pub fn format_network_status(statuses: &[NetworkStatus]) -> Result<String, NetworkStatusError> {
    Ok(serde_json::to_string_pretty(statuses)?)
}
