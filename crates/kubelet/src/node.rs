//! This node in the API: the object, its status, and the lease that says that the agent lives.
//!
//! One task owns both. It sets what a node knows of itself, and leaves alone what others set: labels, taints,
//! conditions and `spec.unschedulable`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::error::chain;
use crate::network::Network;

/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";
/// After so many seconds without renewal others may think that the node is lost.
const LEASE_SECONDS: i32 = 40;
/// How often the node looks at itself.
const GLANCE: Duration = Duration::from_secs(1);
/// How often the status is written although it is the same, so that its times are not too old.
const STATUS_AT_LEAST: Duration = Duration::from_mins(5);

/// What the node can give to pods.
#[derive(Debug, Clone)]
pub struct Capacity {
    pub cores: u32,
    /// Bytes.
    pub memory: u64,
    pub pods: u32,
    /// Bytes.
    pub ephemeral_storage: u64,
}

/// What is known of the node when the agent starts.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub capacity: Capacity,
    /// Where the agent serves.
    pub port: u16,
    pub heartbeat: Duration,
}

/// Keeps the node's object and lease true, for as long as it is polled.
pub(crate) async fn keep(client: Client, facts: Facts, network: Network) {
    let mut keeper = Keeper { client, facts, network, node: None, written: None };
    let mut beat = tokio::time::interval(keeper.facts.heartbeat.min(GLANCE));
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut renewed: Option<tokio::time::Instant> = None;
    loop {
        beat.tick().await;
        let due = renewed.is_none_or(|renewed| renewed.elapsed() >= keeper.facts.heartbeat);
        if due && let Err(cause) = keeper.look().await {
            tracing::warn!(cause = chain(&cause), "the node cannot be read");
            continue;
        }
        if let Err(cause) = keeper.report().await {
            tracing::warn!(cause = chain(&cause), "the node's status cannot be written");
            keeper.node = None;
            continue;
        }
        if due {
            match keeper.renew().await {
                Ok(()) => renewed = Some(tokio::time::Instant::now()),
                Err(cause) => tracing::warn!(cause = chain(&cause), "the node's lease cannot be renewed"),
            }
        }
    }
}

struct Keeper {
    client: Client,
    facts: Facts,
    network: Network,
    /// The object as it was last read or written.
    node: Option<Node>,
    /// What was last written, and when: the reason why the node is not ready, if it is not.
    written: Option<(Option<String>, tokio::time::Instant)>,
}

impl Keeper {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Reads the object: somebody may have deleted it, or given the node up while its agent was away.
    async fn look(&mut self) -> kube::Result<()> {
        if self.node.is_some() {
            self.node = self.nodes().get_opt(&self.facts.name).await?;
        }
        let known = self.node.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_ref());
        let ready = known.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let told = self.written.as_ref().map(|(problem, _)| if problem.is_none() { "True" } else { "False" });
        if ready.map(|ready| ready.status.as_str()) != told {
            self.written = None;
        }
        Ok(())
    }

    /// Writes the status if it is not what the API has.
    async fn report(&mut self) -> kube::Result<()> {
        let problem = self.network.problem().await;
        let fresh = self
            .written
            .as_ref()
            .is_some_and(|(written, when)| *written == problem && when.elapsed() < STATUS_AT_LEAST);
        if fresh && self.node.is_some() {
            return Ok(());
        }
        let node = match self.node.take() {
            Some(node) => node,
            None => self.register().await?,
        };
        let status = status(&self.facts, &node, problem.as_deref(), Timestamp::now());
        let patch = Patch::Strategic(json!({ "status": status }));
        let node = self.nodes().patch_status(&self.facts.name, &PatchParams::default(), &patch).await?;
        self.node = Some(node);
        self.written = Some((problem, tokio::time::Instant::now()));
        Ok(())
    }

    /// Makes the object, or adds our labels to the one that is there.
    async fn register(&self) -> kube::Result<Node> {
        let labels = labels(&self.facts);
        let node = Node {
            metadata: ObjectMeta {
                name: Some(self.facts.name.clone()),
                labels: Some(labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.facts.taints.is_empty()).then(|| self.facts.taints.clone()),
                ..NodeSpec::default()
            }),
            status: None,
        };
        match self.nodes().create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            outcome => return outcome,
        }
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        self.nodes().patch(&self.facts.name, &PatchParams::default(), &patch).await
    }

    async fn renew(&self) -> kube::Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let owner = self.node.as_ref().and_then(|node| {
            Some(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.facts.name.clone(),
                uid: node.metadata.uid.clone()?,
                ..OwnerReference::default()
            })
        });
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.facts.name.clone()),
                namespace: Some(LEASES.to_owned()),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.facts.name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let patch = Patch::Merge(&lease);
        match leases.patch(&self.facts.name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                leases.create(&PostParams::default(), &lease).await.map(drop)
            }
            outcome => outcome.map(drop),
        }
    }
}

fn labels(facts: &Facts) -> BTreeMap<String, String> {
    let mut labels = facts.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), facts.name.clone());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    labels.insert("kubernetes.io/arch".to_owned(), arch().to_owned());
    labels
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The status as a strategic merge patch. `problem` is why the node is not ready.
fn status(facts: &Facts, node: &Node, problem: Option<&str>, now: Timestamp) -> Value {
    let internal = facts.addresses.iter().map(|ip| json!({ "type": "InternalIP", "address": ip }));
    // Merged by type otherwise, and a node may have two addresses of one type.
    let mut addresses = vec![json!({ "$patch": "replace" })];
    addresses.extend(internal);
    addresses.push(json!({ "type": "Hostname", "address": facts.name }));
    let capacity = json!({
        "cpu": facts.capacity.cores.to_string(),
        "memory": facts.capacity.memory.to_string(),
        "pods": facts.capacity.pods.to_string(),
        "ephemeral-storage": facts.capacity.ephemeral_storage.to_string(),
    });
    let ready = match problem {
        None => ("True", "KubeletReady", "the agent is ready to run pods".to_owned()),
        Some(problem) => ("False", "KubeletNotReady", format!("the pod network is not ready: {problem}")),
    };
    let enough = |what: &str| ("False", "KubeletHasEnough", format!("there is enough {what}"));
    let conditions: Vec<NodeCondition> = [
        ("MemoryPressure", enough("memory")),
        ("DiskPressure", enough("room on disk")),
        ("PIDPressure", enough("room for processes")),
        ("Ready", ready),
    ]
    .into_iter()
    .map(|(name, (status, reason, message))| condition(node, name, status, reason, message, now))
    .collect();
    json!({
        "addresses": addresses,
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "daemonEndpoints": { "kubeletEndpoint": { "Port": facts.port } },
        "nodeInfo": info(),
    })
}

fn condition(
    node: &Node,
    name: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> NodeCondition {
    let known = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let same = known.into_iter().flatten().find(|known| known.type_ == name && known.status == status);
    NodeCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: same.and_then(|known| known.last_transition_time.clone()).or(Some(Time(now))),
    }
}

/// What the machine says of itself.
fn info() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "machineID": read("/etc/machine-id"),
        "systemUUID": read("/etc/machine-id"),
        "bootID": read("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "osImage": pretty.unwrap_or("Linux").trim_matches('"'),
        "containerRuntimeVersion": "runc://1.1.5",
        "kubeletVersion": concat!("v1.36.0-godwit", ".", env!("CARGO_PKG_VERSION")),
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": arch(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "node1".to_owned(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            taints: Vec::new(),
            capacity: Capacity { cores: 2, memory: 1 << 30, pods: 110, ephemeral_storage: 1 << 32 },
            port: 10250,
            heartbeat: Duration::from_secs(10),
        }
    }

    #[test]
    fn readiness_follows_the_network_and_keeps_its_time() {
        let (then, now) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(1_000).unwrap());
        let first = status(&facts(), &Node::default(), Some("no configuration"), then);
        assert_eq!(first["conditions"][3]["status"], "False");
        assert_eq!(first["conditions"][3]["reason"], "KubeletNotReady");
        assert_eq!(first["addresses"][2]["address"], "2001:db8::1");

        let known = json!({ "metadata": {}, "status": { "conditions": first["conditions"] } });
        let known: Node = serde_json::from_value(known).unwrap();
        let later = status(&facts(), &known, None, now);
        assert_eq!(later["conditions"][3]["status"], "True");
        assert_eq!(later["conditions"][3]["lastTransitionTime"], "1970-01-01T00:16:40Z");
        assert_eq!(later["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(later["conditions"][0]["lastHeartbeatTime"], "1970-01-01T00:16:40Z");
    }

    #[test]
    fn the_node_has_the_labels_that_everyone_looks_for() {
        let labels = labels(&facts());
        assert_eq!(labels["kubernetes.io/hostname"], "node1");
        assert_eq!(labels["zone"], "a");
    }
}
