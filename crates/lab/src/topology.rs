//! What a lab is made of: clusters, nodes, networks, with every name and address decided. Pure.
//!
//! [`read`] turns a `lab.yaml` into a [`Topology`] or says which line breaks which rule. What it accepts can be built:
//! names are names of links and hosts, addresses are enough for all nodes, and nothing overlaps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use net::MacAddress;
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

mod file;

/// The network that every node is on with its `eth0`.
pub const MANAGEMENT: &str = "eth0";

/// The port of the first cluster's API server on the fabric; the next clusters' follow.
const API_PORT: u16 = 6443;

/// The size of a node's share of its cluster's pod addresses.
pub const NODE_PREFIX: u8 = 24;
/// The same of IPv6.
pub const NODE_PREFIX_IPV6: u8 = 64;

/// A lab, with everything decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    pub clusters: Vec<Cluster>,
    pub networks: Vec<Network>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub name: String,
    pub pod_cidr: Ipv4Net,
    /// Pods have addresses of IPv6 as well.
    #[serde(default)]
    pub pod_cidr_ipv6: Option<Ipv6Net>,
    /// Where nodes reach the API server: the fabric's address on the management network.
    pub api_address: IpAddr,
    pub api_port: u16,
    /// Whether the control plane is elsewhere: then nodes join it, and its own controllers do the work.
    #[serde(default)]
    pub joined: bool,
    pub nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// `eth0` is the first.
    pub nics: Vec<Nic>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    pub value: Option<String>,
    pub effect: String,
}

/// A node's place on a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub name: String,
    pub network: String,
    /// The end of the cable at the fabric's side.
    pub port: String,
    pub mac: String,
    /// Only on the management network: elsewhere a node is on the segment without an address, as a migration network wants it.
    pub address: Option<IpNet>,
    /// The same of IPv6, where pods have it.
    #[serde(default)]
    pub address_ipv6: Option<Ipv6Net>,
    /// A bridge on the node that holds the NIC, for CNI configurations of type bridge.
    pub bridge: Option<String>,
}

/// A layer-2 segment: a bridge of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    /// The fabric's own address, on management networks.
    pub address: Option<IpNet>,
    /// The same of IPv6, where pods have it.
    #[serde(default)]
    pub address_ipv6: Option<Ipv6Net>,
    pub mtu: u32,
    pub rate: Option<Rate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub bits_per_second: u64,
    pub htb: bool,
}

/// A rule that a file breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {rule}")]
pub struct Refusal {
    pub line: u64,
    pub rule: String,
}

impl Topology {
    pub fn nodes(&self) -> impl Iterator<Item = (&Cluster, &Node)> {
        self.clusters.iter().flat_map(|cluster| cluster.nodes.iter().map(move |node| (cluster, node)))
    }

    pub fn node(&self, name: &str) -> Option<(&Cluster, &Node)> {
        self.nodes().find(|(_, node)| node.name == name)
    }

    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.name == name)
    }

    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name == name)
    }
}

impl Default for Topology {
    /// One cluster of three nodes, each with `eth0` for management and `eth1` beside it.
    fn default() -> Self {
        // An empty file says nothing that could be wrong.
        file::File::default().decide().unwrap_or_else(|_| Self { clusters: Vec::new(), networks: Vec::new() })
    }
}

impl Topology {
    /// One node that joins a cluster whose control plane is elsewhere.
    pub fn joining(node: &str) -> Self {
        let mut topology = Self::default();
        topology.clusters.truncate(1);
        for cluster in &mut topology.clusters {
            cluster.joined = true;
            cluster.nodes.truncate(1);
            cluster.nodes.iter_mut().for_each(|only| node.clone_into(&mut only.name));
        }
        topology
    }
}

impl Nic {
    /// Of both versions.
    pub fn addresses(&self) -> impl Iterator<Item = IpNet> {
        self.address.into_iter().chain(self.address_ipv6.map(IpNet::V6))
    }
}

impl Network {
    /// The fabric's own, of both versions.
    pub fn addresses(&self) -> impl Iterator<Item = IpNet> {
        self.address.into_iter().chain(self.address_ipv6.map(IpNet::V6))
    }
}

/// Label of the nodes that a cluster network reaches.
pub(crate) fn cluster_network_label(network: &str) -> String {
    format!("network.harvesterhci.io/{network}")
}

impl Node {
    /// The node's address on the management network.
    pub fn address(&self) -> Option<IpAddr> {
        self.addresses().into_iter().next()
    }

    /// All of them: that of IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let nics = self.nics.iter().filter(|nic| nic.name == MANAGEMENT);
        nics.flat_map(Nic::addresses).map(|address| address.addr()).collect()
    }
}

/// Reads a `lab.yaml`.
pub fn read(text: &str) -> Result<Topology, Refusal> {
    if text.trim().is_empty() {
        return Ok(Topology::default());
    }
    let file: file::File = serde_saphyr::from_str(text).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(1, |location| location.line());
        Refusal { line, rule: error.to_string() }
    })?;
    file.decide()
}

fn refuse<T, U>(at: &Spanned<T>, rule: impl Into<String>) -> Result<U, Refusal> {
    // What was left out has no line: the file as a whole is meant.
    Err(Refusal { line: at.referenced.line().max(1), rule: rule.into() })
}

/// A name of a host or of an object: what DNS takes as one label, and short enough to be part of others.
fn check_label(what: &str, name: &Spanned<String>, longest: usize) -> Result<(), Refusal> {
    let text = &name.value;
    let fits = !text.is_empty() && text.len() <= longest;
    let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let ends = text.starts_with(|first: char| first.is_ascii_lowercase()) && !text.ends_with('-');
    if fits && letters && ends {
        return Ok(());
    }
    refuse(
        name,
        format!(
            "{what} {text:?}: a name has at most {longest} lower-case letters, digits and dashes, and begins with a letter"
        ),
    )
}

fn check_unique<'a>(
    what: &str,
    names: impl Iterator<Item = &'a Spanned<String>>,
) -> Result<BTreeSet<&'a str>, Refusal> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name.value.as_str()) {
            return refuse(name, format!("{what} {:?} is there twice", name.value));
        }
    }
    Ok(seen)
}

/// Locally administered, and told apart by network and node.
fn mac(network: usize, node: usize) -> MacAddress {
    let (network, node) = (network.to_be_bytes(), node.to_be_bytes());
    let [.., network] = network;
    let [.., high, low] = node;
    MacAddress([0x02, 0x67, 0x77, network, high, low])
}

#[cfg(test)]
mod tests;
