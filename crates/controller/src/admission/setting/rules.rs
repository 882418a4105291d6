//! Whether a migration network fits a cluster: every rule, each with its field and what to do about it.
//!
//! Asked by admission before a value is let in, and by the controller ever after: nodes come, and networks go. It must never
//! depend on how large a range is.

use addressing::headroom::{Demand, Share};
use api::condition::{self, ConditionEntry};
use api::names::{annotations, conditions, objects};
use kube::ResourceExt as _;

use super::cluster::{Cluster, Presence};
use super::overlaps;
use super::value::MigrationNetwork;
use crate::admission::{Cause, Causes};

/// How many handlers are replaced at once in a rolling update, once the first has shown that it works. As many addresses rest, and
/// no more: see the rest in the definition, and the readiness of handlers.
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
    overlaps::judge(network, cluster, root, &mut causes);
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
    // The nodes' own network is there wherever a node is: they could not have said anything otherwise. Harvester does not ask
    // whether it is ready either.
    if name == objects::MANAGEMENT_CLUSTER_NETWORK {
        return;
    }
    // What nobody has said is no objection: Harvester never asks the cluster network itself, only each node's VlanStatus, and so do we
    // below, where silence is one. But a cluster network that says that it is not ready is believed.
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

fn nodes(names: &[String]) -> String {
    format!("{} {}", if names.len() == 1 { "node" } else { "nodes" }, list(names))
}

/// The first few, and how many more there are.
pub(super) fn list(names: &[String]) -> String {
    match names.len().checked_sub(TOLD) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..TOLD].join(", ")),
    }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}
