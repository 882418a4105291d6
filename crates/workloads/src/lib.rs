//! The controllers that a lab's cluster needs and that kube-controller-manager and kube-scheduler bring elsewhere.
//!
//! ```text
//!                    ┌─ scheduler ── schedule (pure)          pods get nodes
//!                    ├─ daemonset ── daemonset/rollout (pure) one pod a node
//!  API ─ watches ─►  ├─ deployment ─ deployment/rollout (pure)
//!  one a kind   cache├─ replicaset ─ replicaset/victims (pure)
//!                    ├─ nodes ────── address ranges, health, taints, eviction, pods of lost nodes
//!                    ├─ budgets ──── what kubectl drain may evict
//!                    └─ endpoints ── EndpointSlices of services
//! ```
//!
//! Each controller is a task that looks at the whole state when something changed; none keeps a truth of its own, so
//! that all may be killed and started again at any moment. They must never know that the lab exists: they speak to an
//! API server, and a real Kubernetes brings its own instead.

use std::time::Duration;

use ipnet::IpNet;
use kube::Client;
use tokio::task::JoinSet;

mod budgets;
mod cache;
mod cluster;
mod daemonset;
mod deployment;
mod endpoints;
mod error;
mod herald;
mod nodes;
mod owner;
mod pods;
mod replicaset;
pub mod schedule;
mod scheduler;

pub use error::Error;

use cluster::{Cluster, Controller, drive};

/// How the controllers are set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The ranges of each of which every node gets a part for its pods; none: nodes bring their own, or need none.
    pub pod_networks: Vec<PodNetwork>,
    /// How long a node may be silent before it counts as lost.
    pub node_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { pod_networks: Vec::new(), node_grace: Duration::from_secs(40) }
    }
}

/// A range of addresses that is cut into equal parts, one a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodNetwork {
    pub range: IpNet,
    /// The prefix length of a node's part.
    pub node_prefix: u8,
}

/// Runs every controller until `stop` resolves.
pub async fn run(client: Client, options: Options, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let cluster = Cluster::new(client);
    let mut tasks = JoinSet::new();
    cluster.follow(&mut tasks);
    let work = async {
        cluster.ready().await;
        start(&mut tasks, &cluster, scheduler::Scheduler::new(cluster.clone()));
        start(&mut tasks, &cluster, daemonset::DaemonSets::new(cluster.clone()));
        start(&mut tasks, &cluster, deployment::Deployments::new(cluster.clone()));
        start(&mut tasks, &cluster, replicaset::ReplicaSets::new(cluster.clone()));
        start(&mut tasks, &cluster, nodes::Nodes::new(cluster.clone(), &options));
        start(&mut tasks, &cluster, budgets::Budgets::new(cluster.clone()));
        start(&mut tasks, &cluster, endpoints::Endpoints::new(cluster.clone()));
        tasks.join_next().await
    };
    tokio::select! {
        () = stop => Ok(()),
        ended = work => match ended {
            Some(Err(source)) => Err(Error::Ended { source }),
            _ => Ok(()),
        }
    }
}

fn start(tasks: &mut JoinSet<()>, cluster: &Cluster, controller: impl Controller) {
    tasks.spawn(drive(controller, cluster.changes()));
}
