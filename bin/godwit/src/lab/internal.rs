//! The processes of a lab, which the lab itself starts. No person calls these.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub enum Process {
    Keep { directory: PathBuf },
    Init { directory: PathBuf, listeners: Vec<i32> },
    ControlPlane { directory: PathBuf, cluster: String },
    NodeInit { directory: PathBuf, node: String, fabric: i32 },
    Agent,
    Gate { directory: PathBuf, cluster: String },
    Relay { directory: PathBuf, cluster: String },
    Shim { arguments: Vec<std::ffi::OsString> },
}

impl Process {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Keep { directory } => ::lab::keep(&directory)?,
            Self::Init { directory, listeners } => ::lab::lab_init(&directory, &listeners)?,
            Self::NodeInit { directory, node, fabric } => ::lab::node_init(&directory, &node, fabric)?,
            Self::ControlPlane { directory, cluster } => {
                super::runtime()?.block_on(async {
                    Box::pin(::lab::run_control_plane(&directory, &cluster, terminated()?)).await
                })?;
            }
            Self::Gate { directory, cluster } => {
                super::runtime()?
                    .block_on(async { ::lab::gate(&directory, &cluster, terminated()?).await })?;
            }
            Self::Relay { directory, cluster } => {
                super::runtime()?
                    .block_on(async { ::lab::relay(&directory, &cluster, terminated()?).await })?;
            }
            Self::Agent => super::runtime()?.block_on(async { ::lab::run_agent(terminated()?).await })?,
            Self::Shim { arguments } => return Ok(::lab::run_shim(arguments)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Resolves when the process is told to end.
fn terminated() -> Result<impl Future<Output = ()>, ::lab::Error> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|source| ::lab::Error::Start { process: "the signal handler".into(), source })?;
    Ok(async move {
        terminate.recv().await;
    })
}
