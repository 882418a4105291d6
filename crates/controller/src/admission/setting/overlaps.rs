//! Whether other addresses are in the way of a migration network: of networks on the same segment what is given, of routed ones all.
//!
//! It knows of each only what is published, and says so by being no stricter than that: where the length of a network is not told,
//! what lies between known addresses counts, and nothing beyond. It must never depend on how large a range is.

use std::collections::BTreeMap;

use addressing::overlap::NamedNetwork;
use addressing::{AddressSet, Family, Interval, Network, Pool, PoolSettings, RangeSettings};
use api::harvester::Setting;
use api::names::objects;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Deserialize;

use super::cluster::Cluster;
use super::rules::list;
use super::value::{MigrationNetwork, segment};
use crate::admission::Causes;

/// By how many bits a node's slice may be longer than the pod network that it is cut from. For IPv6 it is Kubernetes' own limit; for
/// IPv4 it is a /8 that is cut into the usual /24s.
const LONGEST_CUT: u8 = 16;
/// A node's address on its own network, with the length of that, as Calico and Canal note it. No field of a node has the length.
const ADDRESS_WITH_LENGTH: [&str; 2] = ["projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address"];

pub(super) fn judge(network: &MigrationNetwork, cluster: &Cluster, root: &str, causes: &mut Causes) {
    let given = NamedNetwork {
        name: String::new(),
        segment: Some(network.segment()),
        addresses: network.allocatable(),
    };
    let mut settings = Vec::new();
    for setting in &cluster.other_settings {
        match network_of(setting) {
            Ok(other) => settings.extend(other),
            Err(why) => causes.invalid(
                format!("{root}.range"),
                format!(
                    "The setting {} cannot be read ({why}), so nobody can tell whether its addresses are in the way: correct it first.",
                    setting.name_any()
                ),
            ),
        }
    }
    // On its segment every address of the range is thought to be near, so what lies elsewhere would not be reached.
    let whole = NamedNetwork { addresses: network.networks(), ..given.clone() };
    let routed = routed(cluster);
    for overlap in given.overlaps(&settings).into_iter().chain(whole.overlaps(&routed)) {
        // A range is of one family, and each is told of its own.
        for family in [Family::V4, Family::V6] {
            let addresses = overlap.addresses.intersection(&Interval::whole(family).into());
            if !addresses.is_empty() {
                causes.invalid(
                    format!("{root}.{}", network.field_of(&addresses)),
                    format!(
                        "The range overlaps with {} in {}: choose addresses that nothing else has.",
                        overlap.other.name,
                        list(&super::texts(&addresses))
                    ),
                );
            }
        }
    }
}

/// The networks that packets are routed to, wherever they are.
fn routed(cluster: &Cluster) -> Vec<NamedNetwork> {
    [
        ("the pod network", pods(&cluster.nodes)),
        ("the service network", services(cluster)),
        ("the nodes' network", nodes(&cluster.nodes)),
    ]
    .map(|(name, addresses)| NamedNetwork { name: name.to_owned(), segment: None, addresses })
    .into()
}

/// The pod network of each family: the smallest that all slices are cut from, for the next node gets the next slice. Slices that
/// cannot be of one network stay what they are.
fn pods(nodes: &[Node]) -> AddressSet {
    let specs = nodes.iter().filter_map(|node| node.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    let slices: Vec<Network> = texts.filter_map(|text| text.parse().ok()).collect();
    let mut networks = AddressSet::default();
    for family in [Family::V4, Family::V6] {
        let slices: Vec<Network> = slices.iter().copied().filter(|slice| slice.family() == family).collect();
        let first = slices.iter().map(Network::base).min();
        let last = slices.iter().map(Network::top).max();
        let longest = slices.iter().map(Network::prefix_length).max().unwrap_or_default();
        let whole = first.zip(last).and_then(|(first, last)| Interval::new(first, last));
        let whole = whole.map(|whole| Network::covering(&whole));
        networks = match whole.filter(|whole| longest - whole.prefix_length() <= LONGEST_CUT) {
            Some(whole) => networks.union(&whole.into()),
            None => networks.union(&slices.iter().map(Network::interval).collect()),
        };
    }
    networks
}

/// The service network; where its ranges are not told, the one address of it that every cluster has.
fn services(cluster: &Cluster) -> AddressSet {
    let told = cluster.service_ranges.iter().filter_map(|range| range.spec.as_ref());
    let told: AddressSet = told
        .flat_map(|spec| spec.cidrs.iter().flatten())
        .filter_map(|text| text.parse::<Network>().ok())
        .map(|network| network.interval())
        .collect();
    if !told.is_empty() {
        return told;
    }
    let service = cluster.api_service.as_ref().and_then(|service| service.spec.as_ref());
    let addresses =
        service.into_iter().flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    addresses.filter_map(|text| text.parse().ok()).map(Interval::single).collect()
}

/// The networks of nodes: as noted with their length; else what lies between the addresses of nodes that are near each other.
fn nodes(nodes: &[Node]) -> AddressSet {
    let noted = nodes.iter().flat_map(|node| {
        ADDRESS_WITH_LENGTH.iter().filter_map(|name| around(node.annotations().get(*name)?))
    });
    let noted: AddressSet = noted.map(|network| network.interval()).collect();
    let statuses = nodes.iter().filter_map(|node| node.status.as_ref());
    let addresses = statuses.flat_map(|status| status.addresses.iter().flatten());
    // Names of hosts are among them.
    let addresses = addresses.filter_map(|address| address.address.parse().ok());
    let mut near: BTreeMap<Network, Interval> = BTreeMap::new();
    for address in addresses {
        // Networks of nodes are seldom smaller than these.
        let length = match Family::of(address) {
            Family::V4 => 24,
            Family::V6 => 64,
        };
        let Some(neighbourhood) = Network::around(address, length) else { continue };
        let known = near.entry(neighbourhood).or_insert_with(|| Interval::single(address));
        let (first, last) = (known.first().min(address), known.last().max(address));
        *known = Interval::new(first, last).unwrap_or(*known);
    }
    let between = near.values().map(|interval| Network::covering(interval).interval()).collect();
    noted.union(&between)
}

/// The network that an address with a length is of.
fn around(written: &str) -> Option<Network> {
    let (address, length) = written.split_once('/')?;
    Network::around(address.parse().ok()?, length.parse().ok()?)
}

/// The network of another setting, as far as it concerns us: Harvester may add fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OtherNetwork {
    cluster_network: String,
    vlan: u16,
    range: String,
    exclude: Vec<String>,
    #[serde(rename = "rangeV6")]
    range_v6: Option<String>,
    #[serde(rename = "rangeV6Start")]
    range_v6_start: Option<String>,
    #[serde(rename = "rangeV6End")]
    range_v6_end: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SharedVolumes {
    /// They have no network of their own.
    #[serde(rename = "share-storage-network")]
    share: bool,
    network: Option<OtherNetwork>,
}

/// What a setting of another network takes; none: nothing.
fn network_of(setting: &Setting) -> Result<Option<NamedNetwork>, String> {
    let (name, value) = (setting.name_any(), setting.spec.effective_value());
    if value.trim().is_empty() {
        return Ok(None);
    }
    let read = if name == objects::RWX_NETWORK_SETTING {
        serde_json::from_str::<SharedVolumes>(value).map(|volumes| volumes.network.filter(|_| !volumes.share))
    } else {
        serde_json::from_str(value).map(Some)
    };
    let Some(other) = read.map_err(|error| error.to_string())? else { return Ok(None) };
    let first = Some(other.range).filter(|range| !range.is_empty());
    let second = other.range_v6.filter(|range| !range.is_empty());
    if first.is_none() && second.is_none() {
        return Ok(None);
    }
    // Either family may stand alone in `range`; of two ranges, each has the exclusions of its family.
    let of_second = |text: &String| second.is_some() && (first.is_none() || text.contains(':'));
    let (of_second, of_first): (Vec<String>, Vec<String>) = other.exclude.into_iter().partition(of_second);
    let second = second.map(|range| RangeSettings {
        range,
        range_start: other.range_v6_start,
        range_end: other.range_v6_end,
        exclude: of_second,
        gateway: None,
    });
    let settings = PoolSettings {
        range: first,
        exclude: of_first,
        ip_ranges: second.into_iter().collect(),
        ..PoolSettings::default()
    };
    // In the words of the setting.
    let pool = Pool::read(&settings)
        .map_err(|problems| problems.to_string().replace("ipRanges[0].", "rangeV6: "))?;
    let vlan = Some(other.vlan).filter(|vlan| *vlan > 1);
    Ok(Some(NamedNetwork {
        name: format!("the setting {name}"),
        segment: Some(segment(&other.cluster_network, vlan)),
        addresses: pool.allocatable(),
    }))
}
