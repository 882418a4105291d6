//! `godwit apiserver`: the embedded Kubernetes API server alone, as others use envtest.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use apiserver::{ApiServer, HISTORY, Options};
use tokio::signal::unix::{SignalKind, signal};

/// Run the embedded Kubernetes API server alone
///
/// It speaks to kubectl and to any Kubernetes client, needs nothing installed, and stops with SIGTERM or Ctrl-C. The
/// kubeconfig is written once the server answers; it holds an administrator's key, readable by you only.
///
/// Example:
///
///   godwit apiserver --memory --kubeconfig-out /tmp/kubeconfig &
///   kubectl --kubeconfig /tmp/kubeconfig get namespaces
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    port: u16,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    address: IpAddr,
    /// Directory for the objects and the keys, made if it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "memory")]
    data: Option<PathBuf>,
    /// Keep everything in memory; all is gone when the server stops
    #[arg(long, conflicts_with = "data")]
    memory: bool,
    /// Where to write the administrator's kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
    /// How many changes of each resource a watch can go back
    #[arg(long, default_value_t = HISTORY, value_name = "N")]
    history: usize,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let options = Options { data: arguments.data, history: Some(arguments.history), ..Options::default() };
    let server = ApiServer::start(options).await?;
    let listening = server.listen(SocketAddr::new(arguments.address, arguments.port)).await?;
    tracing::info!(address = %listening.address, "the API server is ready");
    if let Some(path) = &arguments.kubeconfig_out {
        identity::write_private(path, listening.kubeconfig.as_bytes())?;
        println!("export KUBECONFIG={}", path.display());
    }
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    };
    listening.run(stop).await;
    Ok(())
}
