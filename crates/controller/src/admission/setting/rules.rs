//! Whether a migration network fits a cluster: every rule, each with its field and what to do about it.
//!
//! Asked by admission before a value is let in, and by the controller ever after: nodes come, and networks go. It must never
//! depend on how large a range is.

use addressing::headroom::{Demand, Share};
use addressing::overlap::NamedNetwork;
use addressing::{AddressSet, Interval, Network, Pool, PoolSettings};
use api::condition::{self, ConditionEntry};
use api::harvester::Setting;
use api::names::{annotations, conditions, objects};
use kube::ResourceExt as _;
use serde::Deserialize;

use super::cluster::{Cluster, Presence};
use super::value::{MigrationNetwork, segment};
use crate::admission::{Cause, Causes};

/// How many handlers are replaced at once in a rolling update, once the first has shown that it works.
const REPLACED: Share = Share::Percent(10);
/// The longest name of a link.
const LONGEST_LINK: usize = 15;
/// So many names or addresses are told; who reads more of them in one sentence reads none.
const TOLD: usize = 5;

/// Everything in which the network does not fit the cluster.
pub fn judge(network: &MigrationNetwork, cluster: &Cluster, root: &str) -> Vec<Cause> {
    let mut causes = Causes::default();
    judge_cluster_network(network, cluster, root, &mut causes);
    judge_head_room(network, cluster, root, &mut causes);
    judge_overlaps(network, cluster, root, &mut causes);
    causes.0
}

fn judge_cluster_network(network: &MigrationNetwork, cluster: &Cluster, root: &str, causes: &mut Causes) {
    let name = network.cluster_network.as_str();
    let field = format!("{root}.clusterNetwork");
    let Some(found) = cluster.cluster_network(name) else {
        let known: Vec<String> = cluster.cluster_networks.iter().map(kube::ResourceExt::name_any).collect();
        let choice =
            if known.is_empty() { String::new() } else { format!("choose one of {}, or ", list(&known)) };
        causes.push(
            "FieldValueNotFound",
            field,
            format!("Cluster network {name:?} does not exist: {choice}create it first."),
        );
        return;
    };
    judge_attachment(network, found.annotations(), root, causes);
    // The nodes' own network is there wherever a node is.
    if name == objects::MANAGEMENT_CLUSTER_NETWORK {
        return;
    }
    let of_network = found.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if condition::is_false(of_network, conditions::HARVESTER_READY) {
        let why = condition::find(of_network, conditions::HARVESTER_READY).map(ConditionEntry::message);
        let why = because(why.unwrap_or_default());
        causes.invalid(
            &field,
            format!("Cluster network {name:?} is not ready{why}: wait until it is, or choose another."),
        );
    }
    if !cluster.is_attached(name) {
        causes.invalid(&field, format!("No VlanConfig attaches a node to cluster network {name:?}: add one with the uplinks of all nodes."));
        return;
    }
    let (mut absent, mut unknown) = (Vec::new(), Vec::new());
    for node in cluster.hosts() {
        match cluster.presence(name, node) {
            Presence::Ready => {}
            Presence::Absent => absent.push(node.name_any()),
            Presence::Unknown => unknown.push(node.name_any()),
            Presence::NotReady(why) => causes.invalid(
                &field,
                format!(
                    "Cluster network {name:?} is not ready on node {}{}: mend its uplinks there, or choose another.",
                    node.name_any(),
                    because(&why)
                ),
            ),
        }
    }
    if !absent.is_empty() {
        causes.invalid(
            &field,
            format!(
                "Cluster network {name:?} does not reach {}, where virtual machines can run: add the nodes to a VlanConfig of it.",
                nodes(&absent)
            ),
        );
    }
    if !unknown.is_empty() {
        causes.invalid(
            &field,
            format!(
                "Whether cluster network {name:?} is ready on {} is not known yet: wait until its VlanStatus there says so.",
                nodes(&unknown)
            ),
        );
    }
}

/// Whether pods can be attached to it with that VLAN.
fn judge_attachment(
    network: &MigrationNetwork,
    of_network: &std::collections::BTreeMap<String, String>,
    root: &str,
    causes: &mut Causes,
) {
    let name = &network.cluster_network;
    if let (Some(uplink), Some(vlan)) = (of_network.get(annotations::UPLINK), network.vlan) {
        causes.invalid(
            format!("{root}.vlan"),
            format!(
                "Cluster network {name:?} is the NIC {uplink} of each node, without a bridge that could tag VLAN {vlan}: set vlan to 0."
            ),
        );
    }
    let named = of_network.contains_key(annotations::UPLINK) || of_network.contains_key(annotations::BRIDGE);
    if !named && name.len() + "-br".len() > LONGEST_LINK {
        causes.invalid(
            format!("{root}.clusterNetwork"),
            format!(
                "The bridge of cluster network {name:?} would be called {name}-br, and a link has at most {LONGEST_LINK} characters: choose another."
            ),
        );
    }
}

/// Whether there are enough addresses, also while pods are replaced.
fn judge_head_room(network: &MigrationNetwork, cluster: &Cluster, root: &str, causes: &mut Causes) {
    let gateways = cluster.synchronization_controllers();
    let demand = Demand {
        nodes: u64::try_from(cluster.hosts().count()).unwrap_or(u64::MAX),
        surge: Share::Count(0),
        replaced: REPLACED,
        others: vec![
            ("synchronization controllers".to_owned(), gateways),
            ("more of those in a rolling update".to_owned(), u64::from(gateways > 0)),
        ],
    };
    for (field, judged) in network.head_room(&demand) {
        if !judged.suffices() {
            causes.invalid(
                format!("{root}.{field}"),
                format!("Too few addresses: the network {judged}. Choose a larger range, or exclude less."),
            );
        }
    }
}

/// Whether other addresses are in the way: of networks on the same segment what is given, of routed ones all.
fn judge_overlaps(network: &MigrationNetwork, cluster: &Cluster, root: &str, causes: &mut Causes) {
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
        causes.invalid(
            format!("{root}.{}", network.field_of(&overlap.addresses)),
            format!(
                "The range overlaps with {} in {}: choose addresses that nothing else has.",
                overlap.other.name,
                list(&super::texts(&overlap.addresses))
            ),
        );
    }
}

/// The networks that packets are routed to, wherever they are.
fn routed(cluster: &Cluster) -> Vec<NamedNetwork> {
    let intervals = |texts: Vec<&String>| -> AddressSet {
        texts
            .into_iter()
            .filter_map(|text| text.parse::<Network>().ok())
            .map(|network| network.interval())
            .collect()
    };
    let pods = cluster.nodes.iter().filter_map(|node| node.spec.as_ref());
    let pods = pods.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr)).collect();
    let services = cluster.service_ranges.iter().filter_map(|range| range.spec.as_ref());
    let services = services.flat_map(|spec| spec.cidrs.iter().flatten()).collect();
    let nodes = cluster.nodes.iter().filter_map(|node| node.status.as_ref());
    let nodes: AddressSet = nodes
        .flat_map(|status| status.addresses.iter().flatten())
        .filter_map(|address| address.address.parse().ok())
        .map(Interval::single)
        .collect();
    [
        ("the pod network", intervals(pods)),
        ("the service network", intervals(services)),
        ("addresses of nodes", nodes),
    ]
    .map(|(name, addresses)| NamedNetwork { name: name.to_owned(), segment: None, addresses })
    .into()
}

/// The network of another setting, as far as it concerns us: Harvester may add fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OtherNetwork {
    cluster_network: String,
    vlan: u16,
    range: String,
    exclude: Vec<String>,
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
    let Some(other) = read.map_err(|error| error.to_string())?.filter(|other| !other.range.is_empty()) else {
        return Ok(None);
    };
    let settings =
        PoolSettings { range: Some(other.range), exclude: other.exclude, ..PoolSettings::default() };
    let pool = Pool::read(&settings).map_err(|problems| problems.to_string())?;
    let vlan = Some(other.vlan).filter(|vlan| *vlan > 1);
    Ok(Some(NamedNetwork {
        name: format!("the setting {name}"),
        segment: Some(segment(&other.cluster_network, vlan)),
        addresses: pool.allocatable(),
    }))
}

fn nodes(names: &[String]) -> String {
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, list(names))
}

/// The first few, and how many more there are.
fn list(names: &[String]) -> String {
    match names.len().checked_sub(TOLD) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..TOLD].join(", ")),
    }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}
