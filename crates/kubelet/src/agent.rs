//! The agent: what it is started with, and the tasks that it is made of.
//!
//! ```text
//!  run ─┬─ node      the Node object and its lease
//!       ├─ workers   one task a pod
//!       ├─ garbage   what is left of pods that are no longer here
//!       ├─ server    logs and health, over TLS
//!       └─ events    what people are told
//! ```
//!
//! Ending the agent ends none of its pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::board::Board;
use crate::error::chain;
use crate::events::Events;
use crate::network::{self, CniOptions, Network};
use crate::node::{self, Capacity, Facts};
use crate::pod::Workers;
use crate::provision::Provisions;
use crate::runtime::{self, Runtime};
use crate::server::{self, Server, Serving};

/// How often garbage is looked for.
const COLLECT: Duration = Duration::from_mins(1);

/// How an agent is set up.
#[derive(Clone)]
pub struct Options {
    /// Of the node.
    pub name: String,
    pub client: Client,
    /// Addresses of the node, the first of them the most important.
    pub addresses: Vec<IpAddr>,
    /// Given to the node besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Given to the node when it is new.
    pub taints: Vec<Taint>,
    pub capacity: Capacity,
    pub runtime: runtime::Options,
    /// What the agent keeps of its pods; survives a restart of the node.
    pub state: PathBuf,
    /// What must not survive a restart of the node.
    pub run: PathBuf,
    pub cni: CniOptions,
    pub serving: Serving,
    /// Where pods find the API server: host and port.
    pub api_server: (String, u16),
    pub cluster_dns: Option<IpAddr>,
    /// How often the lease is renewed: see [`Options::HEARTBEAT`].
    pub heartbeat: Duration,
}

impl Options {
    /// How often the lease of a node is renewed, unless there is a reason.
    pub const HEARTBEAT: Duration = Duration::from_secs(10);
}

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the containers of this node cannot be managed")]
    Runtime(#[from] runtime::Error),
    #[error("the networks of this node cannot be managed")]
    Network(#[from] network::Error),
    #[error("the agent cannot serve")]
    Server(#[from] server::Error),
    #[error("the directory {} cannot be made", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the part of the agent called {part} ended by itself")]
    Ended { part: &'static str },
}

/// What all parts of the agent share.
pub(crate) struct Agent {
    pub name: String,
    pub client: Client,
    pub addresses: Vec<IpAddr>,
    pub runtime: Runtime,
    pub network: Network,
    pub provisions: Provisions,
    pub events: Events,
    pub board: Board,
    /// Tasks that end with the agent, whoever started them.
    tasks: Mutex<JoinSet<()>>,
    /// Closed once nobody has the agent any more.
    _alive: mpsc::Sender<()>,
}

/// Runs the agent of a node until `stop` resolves. Its pods go on without it.
pub async fn run(options: Options, stop: impl Future<Output = ()>) -> Result<(), Error> {
    for path in [&options.state, &options.run] {
        let made = std::fs::create_dir_all(path);
        made.map_err(|source| Error::Directory { path: path.clone(), source })?;
    }
    let server = Server::bind(&options.serving).await?;
    let (events, write_events) = Events::new(options.client.clone(), options.name.clone());
    let network =
        Network::open(&options.cni, &options.run, options.addresses.clone(), options.client.clone())?;
    let (alive, mut dead) = mpsc::channel(1);
    let agent = Arc::new(Agent {
        name: options.name.clone(),
        client: options.client.clone(),
        addresses: options.addresses.clone(),
        runtime: Runtime::open(options.runtime.clone())?,
        network: network.clone(),
        provisions: Provisions::new(&options),
        events,
        board: Board::default(),
        tasks: Mutex::default(),
        _alive: alive,
    });
    let facts = Facts {
        name: options.name,
        addresses: options.addresses,
        labels: options.labels,
        taints: options.taints,
        capacity: options.capacity,
        port: server.port,
        heartbeat: options.heartbeat,
    };
    let (complete, known) = watch::channel(false);
    let mut parts: JoinSet<&'static str> = JoinSet::new();
    let workers = Workers::new(agent.clone(), complete);
    let (board, runtime) = (agent.board.clone(), agent.runtime.clone());
    part(&mut parts, "events", write_events);
    part(&mut parts, "node", node::keep(options.client, facts, network));
    part(&mut parts, "workers", workers.run());
    part(&mut parts, "garbage", collect_garbage(agent, known));
    part(&mut parts, "server", server.run(board, runtime));
    let outcome = tokio::select! {
        () = stop => Ok(()),
        // None of them has an end; one that panicked takes the agent down, and it is started again.
        ended = parts.join_next() => Err(Error::Ended { part: ended.and_then(Result::ok).unwrap_or("unknown") }),
    };
    parts.shutdown().await;
    // The next agent needs what this one holds: the journal, the port.
    let _closed = dead.recv().await;
    outcome
}

fn part(
    parts: &mut JoinSet<&'static str>,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    parts.spawn(async move {
        work.await;
        name
    });
}

/// Removes what is left of pods that are not on this node any more, now and then.
async fn collect_garbage(agent: Arc<Agent>, mut known: watch::Receiver<bool>) {
    // Before the API has named every pod, a pod that has no worker may just not have one yet.
    if known.wait_for(|known| *known).await.is_err() {
        return;
    }
    let mut beat = tokio::time::interval(COLLECT);
    loop {
        beat.tick().await;
        if let Err(cause) = agent.collect().await {
            tracing::warn!(cause, "garbage cannot be looked for");
        }
    }
}

impl Agent {
    /// Starts a task that ends with the agent.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work)
    }

    /// A pod is on the board before anything of it is on the node, and leaves it after everything has: so traces are
    /// looked for first, and the board is read after that.
    async fn collect(&self) -> Result<(), String> {
        let containers = self.runtime.list().await.map_err(|cause| chain(&cause))?;
        let mut uids: BTreeSet<String> = containers.into_iter().map(|(id, _)| id.pod).collect();
        uids.extend(self.network.traces().await.map_err(|cause| chain(&cause))?);
        uids.extend(self.provisions.traces().map_err(|cause| chain(&cause))?);
        let here = self.board.uids();
        for uid in uids.difference(&here) {
            tracing::info!(uid, "removing what is left of a pod that is not on this node any more");
            if let Err(cause) = self.remove_all(uid).await {
                tracing::warn!(uid, cause, "it is not all removed");
            }
        }
        Ok(())
    }

    async fn remove_all(&self, uid: &str) -> Result<(), String> {
        // Containers first: they use the rest.
        for (id, _) in self.runtime.list().await.map_err(|cause| chain(&cause))? {
            if id.pod == uid {
                self.runtime.remove(&id).await.map_err(|cause| chain(&cause))?;
            }
        }
        self.network.release(uid).await.map_err(|cause| chain(&cause))?;
        self.provisions.release(uid).await.map_err(|cause| chain(&cause))?;
        self.remove_traces(uid).await
    }

    /// Removes what is left of the containers of a pod, its logs and its own directory.
    pub async fn remove_traces(&self, uid: &str) -> Result<(), String> {
        for (id, _) in self.runtime.list().await.map_err(|cause| chain(&cause))? {
            if id.pod == uid {
                self.runtime.remove(&id).await.map_err(|cause| chain(&cause))?;
            }
        }
        self.runtime.remove_logs(uid).await.map_err(|cause| chain(&cause))?;
        self.provisions.remove(uid).map_err(|cause| chain(&cause))
    }
}
