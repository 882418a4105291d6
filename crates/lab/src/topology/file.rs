//! `lab.yaml` as a person writes it, and the decisions that fill in what they left out.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::{
    API_PORT, Cluster, MANAGEMENT, NODE_PREFIX, NODE_PREFIX_IPV6, Network, Nic, Node, Rate, Refusal, Taint,
    Topology, check_label, check_unique, cluster_network_label, mac, refuse,
};

/// Names of nodes become host names and parts of names of objects.
const LONGEST_NAME: usize = 40;
/// Names of networks are names of bridges: what the kernel takes for a link.
const LONGEST_NETWORK: usize = 15;
/// More is a mistake on one machine.
const MOST_NODES: usize = 100;
const MTU: u32 = 1500;
/// What nodes have their own addresses of IPv6 of, where pods have some: a /64 a network.
const MANAGEMENT_IPV6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x172, 0x30, 0, 0, 0, 0, 0), 48);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct File {
    clusters: Option<Vec<ClusterEntry>>,
    networks: Option<Vec<NetworkEntry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ClusterEntry {
    name: Spanned<String>,
    nodes: Option<Spanned<Nodes>>,
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<Spanned<String>>,
    /// The same, and one of IPv6 after it.
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Spanned<Vec<Spanned<String>>>>,
}

/// How many, or which.
#[derive(Debug)]
enum Nodes {
    Count(usize),
    List(Vec<NodeEntry>),
}

/// By hand, because an untagged enum would forget the lines.
impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Nodes;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of nodes, or a list of them")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Nodes, E> {
                Ok(Nodes::Count(usize::try_from(count).unwrap_or(usize::MAX)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Nodes, A::Error> {
                let mut nodes = Vec::new();
                while let Some(node) = list.next_element()? {
                    nodes.push(node);
                }
                Ok(Nodes::List(nodes))
            }
        }
        from.deserialize_any(Either)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct NodeEntry {
    name: Option<Spanned<String>>,
    count: Option<Spanned<usize>>,
    labels: BTreeMap<String, String>,
    roles: Vec<Spanned<String>>,
    taints: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NetworkEntry {
    name: Spanned<String>,
    nic: Spanned<String>,
    /// Which nodes are on it; all unless told.
    nodes: Option<Vec<Spanned<String>>>,
    /// Which clusters' nodes are on it; all unless told.
    clusters: Option<Vec<Spanned<String>>>,
    cidr: Option<Spanned<String>>,
    mtu: Option<Spanned<u32>>,
    rate: Option<Spanned<String>>,
    shaper: Option<Spanned<String>>,
    bridge: Option<Spanned<String>>,
}

impl File {
    /// Checks everything, then decides what was left open.
    pub(super) fn decide(self) -> Result<Topology, Refusal> {
        let entries = match self.clusters {
            Some(clusters) if clusters.is_empty() => {
                return Err(Refusal { line: 1, rule: "clusters: there must be at least one".into() });
            }
            Some(clusters) => clusters,
            None => vec![ClusterEntry::default()],
        };
        check_unique("cluster", entries.iter().map(|cluster| &cluster.name))?;
        let several = entries.len() > 1;
        let mut clusters = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            clusters.push(entry.decide(index, several)?);
        }
        check_nodes(&entries, &clusters)?;
        check_pod_cidrs(&entries, &clusters)?;
        let networks = self.networks.unwrap_or_else(NetworkEntry::defaults);
        check_unique("network", networks.iter().map(|network| &network.name))?;
        let mut topology = Topology { clusters, networks: Vec::new() };
        for (index, entry) in networks.iter().enumerate() {
            entry.check(&topology)?;
            entry.connect(index, &mut topology)?;
        }
        check_management(&entries, &mut topology)?;
        Ok(topology)
    }
}

impl Default for ClusterEntry {
    fn default() -> Self {
        Self { name: unwritten("lab".to_owned()), nodes: None, pod_cidr: None, pod_cidrs: None }
    }
}

impl ClusterEntry {
    /// The ranges of IPv4 and IPv6 as they are written.
    #[allow(clippy::type_complexity, reason = "two of the same")]
    fn pod_cidrs(&self) -> Result<(Option<&Spanned<String>>, Option<&Spanned<String>>), Refusal> {
        let Some(list) = &self.pod_cidrs else { return Ok((self.pod_cidr.as_ref(), None)) };
        if self.pod_cidr.is_some() {
            return refuse(list, "podCIDRs and podCIDR say the same: leave out podCIDR");
        }
        match list.value.as_slice() {
            [ipv4] => Ok((Some(ipv4), None)),
            [ipv4, ipv6] => Ok((Some(ipv4), Some(ipv6))),
            _ => refuse(list, "podCIDRs: write one network of IPv4, or one of IPv4 and then one of IPv6"),
        }
    }

    fn decide(&self, index: usize, several: bool) -> Result<Cluster, Refusal> {
        check_label("cluster", &self.name, LONGEST_NAME)?;
        let prefix = if several { self.name.value.as_str() } else { "node" };
        let mut nodes = Vec::new();
        match &self.nodes {
            None => (0..3).for_each(|_| nodes.push(NodeEntry::default().decide(prefix, nodes.len()))),
            Some(Spanned { value: Nodes::Count(count), .. }) => {
                (0..(*count).min(MOST_NODES + 1))
                    .for_each(|_| nodes.push(NodeEntry::default().decide(prefix, nodes.len())));
            }
            Some(Spanned { value: Nodes::List(list), .. }) => {
                for entry in list {
                    entry.check()?;
                    let count = entry.count.as_ref().map_or(1, |count| count.value);
                    (0..count.min(MOST_NODES + 1))
                        .for_each(|_| nodes.push(entry.decide(prefix, nodes.len())));
                }
            }
        }
        if nodes.is_empty() || nodes.len() > MOST_NODES {
            let rule = format!("cluster {:?}: it must have 1 to {MOST_NODES} nodes", self.name.value);
            return match &self.nodes {
                Some(at) => refuse(at, rule),
                None => refuse(&self.name, rule),
            };
        }
        let (ipv4, ipv6) = self.pod_cidrs()?;
        let pod_cidr_ipv6 = ipv6.map(|text| pod_cidr_ipv6(text, nodes.len())).transpose()?;
        let pod_cidr = match ipv4 {
            Some(text) => pod_cidr(text, nodes.len())?,
            None => {
                Ipv4Net::new_assert([10, 244 + u8::try_from(index.min(11)).unwrap_or(11), 0, 0].into(), 16)
            }
        };
        Ok(Cluster {
            name: self.name.value.clone(),
            pod_cidr,
            pod_cidr_ipv6,
            api_address: [0, 0, 0, 0].into(),
            api_port: API_PORT + u16::try_from(index).unwrap_or_default(),
            joined: false,
            nodes,
        })
    }
}

/// A cluster's range of IPv6, with room for every node.
fn pod_cidr_ipv6(text: &Spanned<String>, nodes: usize) -> Result<Ipv6Net, Refusal> {
    let cidr = match text.value.parse() {
        Ok(IpNet::V6(cidr)) if cidr.trunc() == cidr => cidr,
        _ => {
            let rule = format!(
                "podCIDRs: {:?}, the second, must be an IPv6 network such as fd10:244::/48",
                text.value
            );
            return refuse(text, rule);
        }
    };
    let room = NODE_PREFIX_IPV6.checked_sub(cidr.prefix_len()).map_or(0, |bits| 1_usize << bits.min(32));
    if room < nodes {
        let rule = format!(
            "podCIDRs: {cidr} has room for {room} nodes of a /{NODE_PREFIX_IPV6} each, and there are {nodes}"
        );
        return refuse(text, rule);
    }
    let other = |taken: &Ipv6Net| taken.contains(&cidr) || cidr.contains(taken);
    if other(&MANAGEMENT_IPV6) {
        return refuse(
            text,
            format!("podCIDRs: {cidr} overlaps {MANAGEMENT_IPV6}, which nodes have their own addresses of"),
        );
    }
    if cidr.network().is_multicast()
        || cidr.network().is_unicast_link_local()
        || cidr.contains(&Ipv6Addr::LOCALHOST)
    {
        return refuse(text, format!("podCIDRs: {cidr} is not a network that pods can have addresses of"));
    }
    Ok(cidr)
}

/// A cluster's range, with room for every node.
fn pod_cidr(text: &Spanned<String>, nodes: usize) -> Result<Ipv4Net, Refusal> {
    let cidr = match text.value.parse() {
        Ok(IpNet::V4(cidr)) if cidr.trunc() == cidr => cidr,
        _ => {
            return refuse(
                text,
                format!("podCIDR {:?}: it must be an IPv4 network such as 10.244.0.0/16", text.value),
            );
        }
    };
    let room = NODE_PREFIX.checked_sub(cidr.prefix_len()).map_or(0, |bits| 1_usize << bits);
    if room < nodes {
        return refuse(
            text,
            format!(
                "podCIDR {cidr}: it has room for {room} nodes of a /{NODE_PREFIX} each, and there are {nodes}"
            ),
        );
    }
    Ok(cidr)
}

impl NodeEntry {
    fn check(&self) -> Result<(), Refusal> {
        if let Some(name) = &self.name {
            check_label("node", name, LONGEST_NAME)?;
            if let Some(count) = &self.count {
                return refuse(
                    count,
                    format!("node {:?} has a name, so it is one: leave out count", name.value),
                );
            }
        }
        for role in &self.roles {
            check_label("role", role, LONGEST_NAME)?;
        }
        for text in &self.taints {
            if taint(&text.value).is_none() {
                return refuse(
                    text,
                    format!(
                        "taint {:?}: write key=value:NoSchedule, or PreferNoSchedule, or NoExecute",
                        text.value
                    ),
                );
            }
        }
        Ok(())
    }

    fn decide(&self, prefix: &str, index: usize) -> Node {
        let name =
            self.name.as_ref().map_or_else(|| format!("{prefix}-{}", index + 1), |name| name.value.clone());
        let mut labels = self.labels.clone();
        for role in &self.roles {
            labels.insert(format!("node-role.kubernetes.io/{}", role.value), String::new());
        }
        let taints = self.taints.iter().filter_map(|text| taint(&text.value)).collect();
        Node { name, labels, taints, nics: Vec::new() }
    }
}

fn taint(text: &str) -> Option<Taint> {
    let (name, effect) = text.rsplit_once(':')?;
    let (key, value) =
        name.split_once('=').map_or((name, None), |(key, value)| (key, Some(value.to_owned())));
    let known = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    (known && !key.is_empty()).then(|| Taint { key: key.to_owned(), value, effect: effect.to_owned() })
}

impl NetworkEntry {
    /// Management on `eth0`, and a second network on `eth1`.
    fn defaults() -> Vec<Self> {
        let entry = |name: &str, nic: &str| Self {
            name: unwritten(name.to_owned()),
            nic: unwritten(nic.to_owned()),
            nodes: None,
            clusters: None,
            cidr: None,
            mtu: None,
            rate: None,
            shaper: None,
            bridge: None,
        };
        vec![entry("management", MANAGEMENT), entry("secondary", "eth1")]
    }

    fn check(&self, topology: &Topology) -> Result<(), Refusal> {
        check_label("network", &self.name, LONGEST_NETWORK)?;
        let number = self.nic.value.strip_prefix("eth").unwrap_or_default();
        if number.is_empty() || number.len() > 3 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return refuse(
                &self.nic,
                format!("nic {:?}: NICs are called eth0, eth1 and so on", self.nic.value),
            );
        }
        for name in self.nodes.iter().flatten() {
            if topology.node(&name.value).is_none() {
                let there: Vec<_> = topology.nodes().map(|(_, node)| node.name.as_str()).collect();
                return refuse(
                    name,
                    format!("node {:?} is not there: the nodes are {}", name.value, there.join(", ")),
                );
            }
        }
        for name in self.clusters.iter().flatten() {
            if topology.cluster(&name.value).is_none() {
                return refuse(name, format!("cluster {:?} is not there", name.value));
            }
        }
        if let Some(mtu) = &self.mtu
            && !(576..=9216).contains(&mtu.value)
        {
            return refuse(mtu, format!("mtu {}: it must be between 576 and 9216", mtu.value));
        }
        if let Some(bridge) = &self.bridge {
            check_label("bridge", bridge, LONGEST_NETWORK)?;
            if self.nic.value == MANAGEMENT {
                return refuse(bridge, "a bridge cannot hold eth0: that NIC has the node's address");
            }
        }
        if let Some(shaper) = &self.shaper
            && !matches!(shaper.value.as_str(), "tbf" | "htb")
        {
            return refuse(shaper, format!("shaper {:?}: it is tbf or htb", shaper.value));
        }
        if let Some(cidr) = &self.cidr
            && self.nic.value != MANAGEMENT
        {
            return refuse(
                cidr,
                "only the management network (nic eth0) has a cidr: on others, addresses come from pods' networks",
            );
        }
        Ok(())
    }

    /// Adds the network and puts its nodes on it.
    fn connect(&self, index: usize, topology: &mut Topology) -> Result<(), Refusal> {
        let management = self.nic.value == MANAGEMENT;
        let mut hosts = None;
        let mut address = None;
        let both = management && topology.clusters.iter().any(|cluster| cluster.pod_cidr_ipv6.is_some());
        let ipv6 = |number: usize| both.then(|| management_ipv6(index, number));
        if management {
            let cidr = self.cidr(index)?;
            if let Some(cluster) = topology.clusters.iter().find(|cluster| overlap(cluster.pod_cidr, cidr)) {
                let rule = format!(
                    "cidr {cidr} overlaps the pods' {} of cluster {:?}",
                    cluster.pod_cidr, cluster.name
                );
                return refuse(self.cidr.as_ref().unwrap_or(&self.name), rule);
            }
            let mut free = cidr.hosts();
            address = free.next().map(|host| IpNet::V4(Ipv4Net::new_assert(host, cidr.prefix_len())));
            hosts = Some((cidr, free));
        }
        let mut number = 0;
        for cluster in &mut topology.clusters {
            let named = |list: &Option<Vec<Spanned<String>>>, name: &str| {
                list.as_ref().is_none_or(|list| list.iter().any(|entry| entry.value == name))
            };
            let wanted = named(&self.clusters, &cluster.name);
            for node in &mut cluster.nodes {
                number += 1;
                if !wanted || !named(&self.nodes, &node.name) {
                    continue;
                }
                if let Some(other) = node.nics.iter().find(|nic| nic.name == self.nic.value) {
                    let rule = format!(
                        "nic {} of node {:?} is on network {:?} already",
                        other.name, node.name, other.network
                    );
                    return refuse(&self.nic, rule);
                }
                let mut own = None;
                if let Some((cidr, free)) = &mut hosts {
                    let Some(host) = free.next() else {
                        let rule = format!("cidr {cidr} has no address left for node {:?}", node.name);
                        return refuse(self.cidr.as_ref().unwrap_or(&self.name), rule);
                    };
                    own = Some(IpNet::V4(Ipv4Net::new_assert(host, cidr.prefix_len())));
                }
                if !management {
                    // As Harvester marks the nodes that a cluster network reaches.
                    node.labels.insert(cluster_network_label(&self.name.value), "true".to_owned());
                }
                node.nics.push(Nic {
                    name: self.nic.value.clone(),
                    network: self.name.value.clone(),
                    port: format!("n{number}.{}", self.nic.value),
                    mac: mac(index, number).to_string(),
                    address: own,
                    address_ipv6: ipv6(number + 1),
                    bridge: self.bridge.as_ref().map(|bridge| bridge.value.clone()),
                });
            }
        }
        let mtu = self.mtu.as_ref().map_or(MTU, |mtu| mtu.value);
        let rate = self.rate()?;
        topology.networks.push(Network {
            name: self.name.value.clone(),
            address,
            address_ipv6: ipv6(1),
            mtu,
            rate,
        });
        Ok(())
    }

    fn cidr(&self, index: usize) -> Result<Ipv4Net, Refusal> {
        let Some(text) = &self.cidr else {
            let third = u8::try_from(index).unwrap_or(u8::MAX);
            return Ok(Ipv4Net::new_assert([172, 30, third, 0].into(), 24));
        };
        match text.value.parse() {
            Ok(IpNet::V4(cidr)) if cidr.trunc() == cidr && cidr.prefix_len() <= 29 => Ok(cidr),
            _ => refuse(
                text,
                format!("cidr {:?}: it must be an IPv4 network such as 172.30.0.0/24", text.value),
            ),
        }
    }

    fn rate(&self) -> Result<Option<Rate>, Refusal> {
        let htb = self.shaper.as_ref().is_some_and(|shaper| shaper.value == "htb");
        let Some(text) = &self.rate else {
            return match &self.shaper {
                Some(shaper) => refuse(shaper, "a shaper needs a rate"),
                None => Ok(None),
            };
        };
        match bits_per_second(&text.value) {
            Some(bits_per_second) => Ok(Some(Rate { bits_per_second, htb })),
            None => refuse(
                text,
                format!("rate {:?}: write 200Mbit or 10Gbit; at least 1Mbit, at most 100Gbit", text.value),
            ),
        }
    }
}

fn bits_per_second(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "kbit" | "Kbit" => 1_000,
        "mbit" | "Mbit" => 1_000_000,
        "gbit" | "Gbit" => 1_000_000_000,
        _ => return None,
    };
    let rate = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1_000_000..=100_000_000_000).contains(&rate).then_some(rate)
}

/// The address of the fabric (1) or a node on a network.
fn management_ipv6(network: usize, number: usize) -> Ipv6Net {
    let part = |number: usize| u128::try_from(number).unwrap_or_default();
    let address = MANAGEMENT_IPV6.network().to_bits() | part(network) << 64 | part(number);
    Ipv6Net::new_assert(Ipv6Addr::from_bits(address), 64)
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other) || other.contains(&one)
}

fn check_nodes(entries: &[ClusterEntry], clusters: &[Cluster]) -> Result<(), Refusal> {
    let mut seen = std::collections::BTreeSet::new();
    for (entry, cluster) in entries.iter().zip(clusters) {
        for node in &cluster.nodes {
            if !seen.insert(&node.name) {
                return refuse(&entry.name, format!("node {:?} is there twice in the lab", node.name));
            }
        }
    }
    Ok(())
}

fn check_pod_cidrs(entries: &[ClusterEntry], clusters: &[Cluster]) -> Result<(), Refusal> {
    let ranges = |cluster: &Cluster| {
        std::iter::once(IpNet::V4(cluster.pod_cidr)).chain(cluster.pod_cidr_ipv6.map(IpNet::V6))
    };
    for (index, cluster) in clusters.iter().enumerate() {
        for (place, range) in ranges(cluster).enumerate() {
            let overlaps = |other: &&Cluster| {
                ranges(other).any(|other| other.contains(&range) || range.contains(&other))
            };
            let Some(other) = clusters[..index].iter().find(overlaps) else { continue };
            let entry = &entries[index];
            let written = entry.pod_cidrs.as_ref().and_then(|list| list.value.get(place));
            let rule = format!(
                "podCIDR {range} of cluster {:?} overlaps that of cluster {:?}",
                cluster.name, other.name
            );
            return refuse(written.or(entry.pod_cidr.as_ref()).unwrap_or(&entry.name), rule);
        }
    }
    Ok(())
}

/// Every node must be managed, and a cluster's nodes by one network, on which its API server is.
fn check_management(entries: &[ClusterEntry], topology: &mut Topology) -> Result<(), Refusal> {
    let networks = &topology.networks;
    for (entry, cluster) in entries.iter().zip(&mut topology.clusters) {
        let mut managed_by = None;
        for node in &mut cluster.nodes {
            node.nics
                .sort_by(|one, other| one.name.len().cmp(&other.name.len()).then(one.name.cmp(&other.name)));
            let Some(nic) = node.nics.iter().find(|nic| nic.name == MANAGEMENT) else {
                let rule = format!("node {:?} has no eth0: a network with nic eth0 must have it", node.name);
                return refuse(&entry.name, rule);
            };
            if *managed_by.get_or_insert_with(|| nic.network.clone()) != nic.network {
                let rule = format!("the nodes of cluster {:?} must share one network on eth0", cluster.name);
                return refuse(&entry.name, rule);
            }
        }
        let network = networks.iter().find(|network| Some(&network.name) == managed_by.as_ref());
        if let Some(address) = network.and_then(|network| network.address) {
            cluster.api_address = address.addr();
        }
    }
    Ok(())
}

/// For what no file says.
fn unwritten<T>(value: T) -> Spanned<T> {
    Spanned::new(value, serde_saphyr::Location::UNKNOWN, serde_saphyr::Location::UNKNOWN)
}
