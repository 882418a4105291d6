//! Nodes: they get a part of the pod network, they are watched for signs of life, and their pods leave when they must.
//!
//! What follows from what is decided in [`health`] and [`ranges`]. A pod that is being deleted on a node that nobody
//! hears stays until the node is back, or is deleted: nobody else can know that its containers have ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::ResourceExt as _;
use serde_json::json;

use crate::cluster::{Agenda, Cluster, Controller, NODE_LEASES};
use crate::herald::Herald;
use crate::schedule::is_ready;
use crate::{Error, Options, PodNetwork, pods};

mod health;
mod ranges;

use health::{Leave, last_sign, leaves, silent_conditions};

pub struct Nodes {
    cluster: Arc<Cluster>,
    herald: Herald,
    networks: Vec<PodNetwork>,
    grace: SignedDuration,
    /// Nobody was heard before we listened: every node has its grace from here on.
    started: Timestamp,
    /// Nodes that are named by a pod or a lease but are not there, and since when we know.
    missing: HashMap<String, Timestamp>,
}

impl Nodes {
    pub fn new(cluster: Arc<Cluster>, options: &Options) -> Self {
        Self {
            herald: cluster.herald("node-controller"),
            cluster,
            networks: options.pod_networks.clone(),
            grace: SignedDuration::try_from(options.node_grace).unwrap_or(SignedDuration::MAX),
            started: Timestamp::now(),
            missing: HashMap::new(),
        }
    }

    /// Gives a part of each range of the pod network to every node that has none.
    async fn number(&self, nodes: &[Arc<Node>]) -> Result<(), Error> {
        if self.networks.is_empty() {
            return Ok(());
        }
        let mut taken: Vec<IpNet> = nodes.iter().flat_map(|node| ranges_of(node)).collect();
        for node in nodes.iter().filter(|node| ranges_of(node).is_empty()) {
            let parts: Result<Vec<IpNet>, IpNet> = (self.networks.iter())
                .map(|network| ranges::free(*network, &taken).ok_or(network.range))
                .collect();
            match parts {
                // All at once: what a node has it keeps, and more is not given later.
                Ok(parts) => {
                    let texts: Vec<String> = parts.iter().map(IpNet::to_string).collect();
                    let change = json!({"spec": {"podCIDR": texts.first(), "podCIDRs": texts}});
                    self.cluster.nodes.patch(node, change).await?;
                    taken.extend(parts);
                }
                Err(range) => {
                    let note = format!("No part of {range} is left for the pods of this node");
                    self.herald.warn(&**node, "CIDRNotAvailable", note).await;
                }
            }
        }
        Ok(())
    }

    /// Marks a node that is silent, and gives every node the taints of its state.
    async fn examine(&self, node: &Arc<Node>, agenda: &mut Agenda) -> Result<(), Error> {
        let lease = self.cluster.leases.get(NODE_LEASES, &node.name_any());
        let silent_from = last_sign(node, lease.as_deref()).max(self.started).saturating_add(self.grace);
        let silent_from = silent_from.unwrap_or(Timestamp::MAX);
        let mut node = node.clone();
        if silent_from > agenda.now {
            agenda.at(silent_from);
        } else if let Some(conditions) = silent_conditions(&node, agenda.now) {
            let mut silent = (*node).clone();
            silent.status.get_or_insert_default().conditions = Some(conditions);
            node = self.cluster.nodes.replace_status(&silent).await?;
            let note = format!("Node {} status is now: NodeNotReady", node.name_any());
            self.herald.note(&*node, "NodeNotReady", note).await;
        }
        if let Some(taints) = health::taints(&node, agenda.now) {
            self.cluster.nodes.patch(&node, json!({"spec": {"taints": taints}})).await?;
        }
        Ok(())
    }

    /// A pod on a node: is not ready once nobody hears of it, and leaves when the node's taints say so.
    async fn attend(&self, pod: &Arc<Pod>, node: &Node, agenda: &mut Agenda) -> Result<(), Error> {
        if pods::is_finished(pod) {
            return Ok(());
        }
        let mut pod = pod.clone();
        if is_silent(node) && pods::is_ready(&pod) {
            pod = self.say(&pod, "Ready", "False", "NodeNotReady", "", agenda).await?;
        }
        match leaves(&pod, node, agenda.now) {
            _ if pods::is_terminating(&pod) => {}
            Leave::Never => {}
            Leave::At(when) if when > agenda.now => agenda.at(when),
            Leave::At(_) => {
                let (reason, message) =
                    ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
                pod = self.say(&pod, "DisruptionTarget", "True", reason, message, agenda).await?;
                let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
                self.herald
                    .note(&*pod, "TaintManagerEviction", format!("Marking for deletion Pod {name}"))
                    .await;
                self.cluster.pods.delete(&pod, None).await?;
            }
        }
        Ok(())
    }

    async fn say(
        &self,
        pod: &Pod,
        type_: &str,
        status: &str,
        reason: &str,
        message: &str,
        agenda: &Agenda,
    ) -> Result<Arc<Pod>, Error> {
        let mut said = pod.clone();
        let condition = PodCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()).filter(|text: &String| !text.is_empty()),
            last_transition_time: Some(pods::stamp(agenda.now)),
            ..PodCondition::default()
        };
        let status = said.status.get_or_insert_default();
        if pods::set_condition(status.conditions.get_or_insert_default(), condition) {
            return self.cluster.pods.replace_status(&said).await;
        }
        Ok(Arc::new(said))
    }

    /// Removes what a deleted node leaves behind: its pods, which nobody else can end, and its lease.
    async fn clear(
        &mut self,
        names: &HashSet<String>,
        pods: &[Arc<Pod>],
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let leases = self.cluster.leases.all();
        let lost_pods: Vec<&Arc<Pod>> =
            pods.iter().filter(|pod| pods::node_of(pod).is_some_and(|node| !names.contains(node))).collect();
        let lost_leases: Vec<&Arc<Lease>> =
            leases.iter().filter(|lease| !names.contains(&lease.name_any())).collect();
        let named = lost_pods.iter().filter_map(|pod| pods::node_of(pod).map(str::to_owned));
        let named: HashSet<String> = named.chain(lost_leases.iter().map(|lease| lease.name_any())).collect();
        self.missing.retain(|name, _| named.contains(name));
        let mut gone = HashSet::new();
        for name in named {
            let since = *self.missing.entry(name.clone()).or_insert(agenda.now);
            let due = since.saturating_add(self.grace).unwrap_or(Timestamp::MAX);
            let node = Node {
                metadata: kube::core::ObjectMeta { name: Some(name.clone()), ..Default::default() },
                ..Node::default()
            };
            if due > agenda.now {
                agenda.at(due);
            } else if !self.cluster.nodes.exists(&node).await? {
                gone.insert(name);
            }
        }
        for pod in
            lost_pods.into_iter().filter(|pod| pods::node_of(pod).is_some_and(|node| gone.contains(node)))
        {
            self.cluster.pods.delete(pod, Some(0)).await?;
        }
        for lease in lost_leases.into_iter().filter(|lease| gone.contains(&lease.name_any())) {
            self.cluster.leases.delete(lease, None).await?;
        }
        Ok(())
    }
}

/// The parts of the pod network that a node has.
fn ranges_of(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    all.filter_map(|range| range.parse().ok()).collect()
}

fn is_silent(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let unknown = |known: &k8s_openapi::api::core::v1::NodeCondition| {
        known.type_ == "Ready" && known.status == "Unknown"
    };
    !is_ready(node) && conditions.into_iter().flatten().any(unknown)
}

impl Controller for Nodes {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let nodes = self.cluster.nodes.all();
        let numbered = self.number(&nodes).await;
        agenda.check(numbered);
        for node in self.cluster.nodes.all() {
            let examined = self.examine(&node, agenda).await;
            agenda.check(examined);
        }
        let nodes: HashMap<String, Arc<Node>> =
            self.cluster.nodes.all().into_iter().map(|node| (node.name_any(), node)).collect();
        let pods = self.cluster.pods.all();
        for pod in &pods {
            if let Some(node) = pods::node_of(pod).and_then(|name| nodes.get(name)) {
                let attended = self.attend(pod, node, agenda).await;
                agenda.check(attended);
            }
        }
        let names = nodes.into_keys().collect();
        let cleared = self.clear(&names, &pods, agenda).await;
        agenda.check(cleared);
    }
}
