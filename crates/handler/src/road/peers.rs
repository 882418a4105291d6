//! What this node says of its road, and whom it reaches on it: every other handler is asked from the migration address, and the answer
//! goes into an annotation of the node.
//!
//! Peers are the nodes whose own annotation says that they are on the same network. A peer is asked at once when it appears or changes,
//! soon again while it does not answer, and seldom after. One task; it keeps nothing but what it wrote last.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::godwit::RoadReport;
use api::names::annotations;
use futures::{StreamExt as _, stream};
use identity::Member;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tunnel::Dialler;

use super::{Road, Unavailable, Way, followed};
use crate::error::chain;

/// How often peers that answer are asked, and the report is renewed.
const SELDOM: Duration = Duration::from_secs(30);
/// How often those that do not are.
const SOON: Duration = Duration::from_secs(5);
/// Handshakes at a time.
const AT_ONCE: usize = 16;

/// Where the others say that they are.
type Peers = BTreeMap<String, Peer>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer {
    address: IpAddr,
    network: Option<String>,
}

/// Asks and reports until dropped.
pub async fn tell(client: Client, node: &str, road: &Road, port: u16) {
    let nodes: Api<Node> = Api::all(client.clone());
    let (mut peers, following) = follow(client, node);
    let telling = async {
        let mut way = road.changed();
        let mut written: Option<RoadReport> = None;
        loop {
            let now = way.borrow_and_update().clone();
            let others = peers.borrow_and_update().clone();
            let report = look(&now, &others, road, port).await;
            let mut next = if report.unreached.is_empty() { SELDOM } else { SOON };
            // Readers look at the report's age, so it is renewed even if nothing changed.
            let stale = |before: &RoadReport| {
                !before.says_the_same(&report)
                    || report.at.0.duration_since(before.at.0).unsigned_abs() >= SELDOM
            };
            if written.as_ref().is_none_or(stale) {
                match write(&nodes, node, &report).await {
                    Ok(()) => written = Some(report),
                    Err(cause) => {
                        tracing::warn!(
                            node,
                            cause = chain(&cause),
                            "the road cannot be reported; trying again"
                        );
                        next = SOON;
                    }
                }
            }
            let end = Instant::now() + next;
            let changed = async {
                tokio::select! { _ = way.changed() => {}, _ = peers.changed() => {} }
            };
            // Either something changed or it is time to look again: both are what was waited for.
            let _ = timeout_at(end, changed).await;
        }
    };
    tokio::join!(following, telling);
}

/// One look at the road, and one question to every peer.
async fn look(way: &Way, peers: &Peers, road: &Road, port: u16) -> RoadReport {
    let mut report = RoadReport {
        network: None,
        address: None,
        interface: None,
        problem: None,
        reached: Vec::new(),
        unreached: BTreeMap::new(),
        at: Time(Timestamp::now()),
    };
    let open = match way {
        Ok(open) => open,
        Err(why) => {
            report.problem = Some(why.to_string());
            return report;
        }
    };
    report.network.clone_from(&open.definition);
    report.address = Some(open.here.address);
    report.interface = Some(open.interface.clone());
    report.problem = open.instead.as_ref().map(ToString::to_string);
    let same = peers.iter().filter(|(_, peer)| peer.network == open.definition);
    let questions: Vec<_> = same
        .map(|(node, peer)| {
            let address = SocketAddr::new(peer.address, port);
            ask(open.prober.clone(), road.member(node), node.clone(), address)
        })
        .collect();
    let answers: Vec<_> = stream::iter(questions).buffer_unordered(AT_ONCE).collect().await;
    for (node, answer) in answers {
        match answer {
            Ok(()) => report.reached.push(node),
            Err(why) => _ = report.unreached.insert(node, why),
        }
    }
    report.reached.sort();
    report
}

async fn ask(
    prober: Dialler,
    member: Result<Member, Unavailable>,
    node: String,
    address: SocketAddr,
) -> (String, Result<(), String>) {
    let member = match member {
        Ok(member) => member,
        Err(why) => return (node, Err(why.to_string())),
    };
    let asked = tokio::task::spawn_blocking(move || prober.probe(address, member)).await;
    let answer = match asked {
        Ok(answer) => answer.map_err(|error| chain(&error)),
        Err(cause) => Err(chain(&cause)),
    };
    (node, answer)
}

async fn write(nodes: &Api<Node>, node: &str, report: &RoadReport) -> Result<(), kube::Error> {
    let text = serde_json::to_string(report).map_err(kube::Error::SerdeError)?;
    let patch = json!({ "metadata": { "annotations": { annotations::MIGRATION_NETWORK_REPORT: text } } });
    nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

/// The other nodes that listen somewhere; and the work that keeps that current until dropped.
fn follow(client: Client, own: &str) -> (watch::Receiver<Peers>, impl Future<Output = ()> + use<>) {
    let (sender, receiver) = watch::channel(Peers::new());
    let (own, nodes) = (own.to_owned(), Api::<PartialObjectMeta<Node>>::all(client));
    let work = followed::follow(nodes, "nodes", move |nodes| {
        let all = nodes.iter().filter_map(|node| peer(node));
        let others: Peers = all.filter(|(node, _)| *node != own).collect();
        sender.send_if_modified(|now| std::mem::replace(now, others.clone()) != others);
    });
    (receiver, work)
}

fn peer(node: &PartialObjectMeta<Node>) -> Option<(String, Peer)> {
    let report = RoadReport::parse(node.annotations().get(annotations::MIGRATION_NETWORK_REPORT)?)?;
    Some((node.name_any(), Peer { address: report.address?, network: report.network }))
}
