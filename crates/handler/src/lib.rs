//! virt-handler: the agent of Godwit on every node.
//!
//! ```text
//!            ┌─ pods: watches launcher pods and instances; one task each ─┐
//!  API ──────┤                                                            ├─► instance ──launcher.sock──► launcher
//!            ├─ garbage: what pods left behind, every minute              │      │ proxy ◄──cni.sock──── (in its pod)
//!            ├─ node: label and heartbeat                                 │      ▼
//!            └─ road: where guest memory comes and goes                   └─► attachments ──► CNI plugins, journal
//! ```
//!
//! It must never hold state that is not also in the API, in a launcher or in its journal, nor stop a guest because it itself
//! stops: it may die at any moment, and the next one goes on. It does only for a pod what that pod's instance says, and in no
//! namespace but that pod's.

mod attachments;
mod error;
mod garbage;
mod instance;
mod node;
mod place;
mod pods;
mod proxy;
pub mod road;
mod sysctls;
mod vnics;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cni::Processes;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Recorder, Reporter};
use kube::{Api, Client};
use tokio::sync::watch;

pub use attachments::Error as AttachmentError;
use attachments::{Attachments, Networks};
use instance::{Launcher, Shared};
use place::Places;
use proxy::Turned;
pub use proxy::dialogue::{Desk, converse};
use road::Road;
pub use vnics::{Maker, Planned};

/// How long a handler that is told to stop waits for moves that go through it; its pod has a little longer.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a handler needs to know.
#[derive(Clone)]
pub struct Options {
    /// Name of its node.
    pub node: String,
    /// The API.
    pub client: Client,
    /// The kubelet's directory.
    pub kubelet: PathBuf,
    /// CNI configurations of the node; the first is the pod network.
    pub cni_configurations: PathBuf,
    /// Directories of CNI plugins.
    pub cni_plugins: Vec<PathBuf>,
    /// Where CNI plugins run: they must see the node's network and files.
    pub cni_processes: Processes,
    /// Where network namespaces of pods are bound.
    pub namespaces: PathBuf,
    /// A directory of its own, that survives it: what is attached.
    pub state: PathBuf,
    /// The road that guest memory takes.
    pub road: road::Options,
}

/// Why a handler cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its attachments.
    #[error("the handler cannot start")]
    Attachments(#[source] attachments::Error),
    /// The process is ending.
    #[error("the handler is ending")]
    Interrupted(#[source] tokio::task::JoinError),
}

/// Runs until it is told to stop, and until what moves has moved, unless that takes too long. VMs go on.
pub async fn run(options: Options, stop: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let Options { node, client, kubelet, namespaces, .. } = options;
    let networks = Networks {
        configurations: options.cni_configurations,
        plugins: options.cni_plugins,
        processes: options.cni_processes,
        state: options.state,
    };
    let opened = tokio::task::spawn_blocking(move || Attachments::open(&networks)).await;
    let attachments = opened.map_err(Error::Interrupted)?.map_err(Error::Attachments)?;
    let reporter =
        Reporter { controller: api::names::objects::HANDLER.to_owned(), instance: Some(node.clone()) };
    let namespace = options.road.namespace.clone();
    let (road, keeping) = Road::new(client.clone(), &node, options.road);
    let shared = Shared {
        node: node.clone(),
        namespace,
        client: client.clone(),
        recorder: Recorder::new(client.clone(), reporter),
        places: Places { kubelet, namespaces },
        attachments: attachments.clone(),
        turned: Arc::new(Turned::default()),
        accelerator: watch::Sender::new(None),
        road,
        transfers: watch::Sender::new(0),
    };
    let stop = async {
        stop.await;
        let mut transfers = shared.transfers.subscribe();
        tracing::info!(transfers = *transfers.borrow(), "the handler is told to stop");
        // Those that take longer fail, and their guests stay where they were.
        let _ = tokio::time::timeout(PATIENCE, transfers.wait_for(|count| *count == 0)).await;
    };
    tracing::info!(node, "the handler runs");
    let attend = |pod: Arc<Pod>, view| Launcher::new(shared.clone(), &pod, view).attend();
    tokio::select! {
        () = pods::follow(client.clone(), &node, attend) => {}
        () = collect(client.clone(), &node, &attachments) => {}
        () = node::beat(client.clone(), &node) => {}
        () = Box::pin(keeping.run()) => {}
        () = stop => {}
    }
    tracing::info!(node, "the handler stops; VMs go on");
    Ok(())
}

async fn collect(client: Client, node: &str, attachments: &Attachments) {
    let pods: Api<Pod> = Api::all(client);
    loop {
        garbage::sweep(&pods, node, attachments).await;
        tokio::time::sleep(garbage::PERIOD).await;
    }
}
