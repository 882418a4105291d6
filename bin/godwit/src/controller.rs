//! `godwit virt-controller`: from machines to instances to launcher pods, and the admission of both.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::Context as _;
use api::names::{objects, ports};
use controller::{Launcher, Options, Timing, Webhook};
use tokio::signal::unix::{SignalKind, signal};

/// Run the controller: machines, their instances, launcher pods, admission
///
/// As the Deployment of deploy/virt-controller.yaml. Of several replicas one leads; all of them answer the webhooks. It stops with
/// SIGTERM, and VMs go on.
#[derive(clap::Args)]
pub struct Arguments {
    /// Namespace of the installation
    #[arg(long, env = "POD_NAMESPACE", default_value = objects::DEFAULT_NAMESPACE, value_name = "NAME")]
    namespace: String,
    /// Who this replica is
    #[arg(long, env = "POD_NAME", default_value = objects::CONTROLLER, value_name = "NAME")]
    identity: String,
    /// Image of launcher pods
    #[arg(long, env = "LAUNCHER_IMAGE", value_name = "IMAGE")]
    launcher_image: String,
    /// Address of the controller's pod: its numbers are shown there
    #[arg(long, env = "POD_IP", value_name = "ADDRESS")]
    pod_ip: Option<IpAddr>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, ports::WEBHOOKS));
    let listener = TcpListener::bind(address).with_context(|| format!("listening on {address}"))?;
    let options = Options {
        namespace: arguments.namespace,
        launcher: Launcher { image: arguments.launcher_image },
        identity: arguments.identity,
        election: Some(Timing::default()),
        webhook: Some(Webhook { listener, service: objects::CONTROLLER.to_owned(), port: 443 }),
        metrics: arguments.pod_ip.map(|address| SocketAddr::new(address, ports::METRICS)),
        operator: true,
    };
    let client = kube::Client::try_default().await.context("finding the API server")?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(controller::run(client, options, stop).await?)
}
