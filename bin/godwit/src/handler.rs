//! `godwit virt-handler`: the agent of Godwit on a node.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use api::names::{objects, paths, ports};
use cni::Processes;
use tokio::signal::unix::{SignalKind, signal};

/// Run the agent of a node: its launcher pods, their networks, what their instances show
///
/// One a node, as the DaemonSet that virt-controller makes. It stops with SIGTERM, and VMs go on. Paths are those of the node, and
/// the same in its own container.
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the node
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,
    /// The kubelet's directory
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "DIR")]
    kubelet: PathBuf,
    /// CNI configurations; the first is the pod network
    #[arg(long, default_value = "/etc/cni/net.d", value_name = "DIR")]
    cni_configurations: PathBuf,
    /// CNI plugins
    #[arg(long, value_delimiter = ',', default_value = "/opt/cni/bin,/usr/lib/cni", value_name = "DIR")]
    cni_plugins: Vec<PathBuf>,
    /// Network namespaces of pods
    #[arg(long, default_value = "/run/netns", value_name = "DIR")]
    namespaces: PathBuf,
    /// What is attached: a directory of its own that survives it
    #[arg(long, default_value = "/var/lib/godwit/handler", value_name = "DIR")]
    state: PathBuf,
    /// Namespace of the installation
    #[arg(long, env = "POD_NAMESPACE", default_value = objects::DEFAULT_NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Address of the handler's pod
    #[arg(long, env = "POD_IP", value_name = "ADDRESS")]
    pod_ip: IpAddr,
    /// The pod's annotation of networks that it is attached to, by the downward API
    #[arg(long, default_value = paths::NETWORK_STATUS, value_name = "FILE")]
    network_status: PathBuf,
    /// Definition of the migration network that the pod was made with, NAMESPACE/NAME
    #[arg(long, env = "MIGRATION_NETWORK", value_name = "DEFINITION")]
    migration_network: Option<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let options = handler::Options {
        node: arguments.node,
        client: kube::Client::try_default().await.context("finding the API server")?,
        kubelet: arguments.kubelet,
        cni_configurations: arguments.cni_configurations,
        cni_plugins: arguments.cni_plugins,
        // The first process of the node has the node's network and files, whatever this container has.
        cni_processes: Processes::beside(1),
        namespaces: arguments.namespaces,
        state: arguments.state,
        road: handler::road::Options {
            namespace: arguments.namespace,
            pod: arguments.pod_ip,
            network_status: arguments.network_status,
            made_with: arguments.migration_network.filter(|network| !network.is_empty()),
            port: ports::MIGRATION_TUNNEL,
            health: ports::METRICS,
        },
    };
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(handler::run(options, stop).await?)
}
