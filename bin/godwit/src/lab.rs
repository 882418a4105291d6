//! `godwit lab`: a cluster on this machine, from a person's side.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::{Lab, Topology};
use anyhow::Context as _;
use clap::Subcommand;

mod internal;
mod show;
mod up;

/// A Kubernetes cluster on this machine: real nodes, pods and networks, and nothing left behind
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Which lab.
#[derive(clap::Args, Clone)]
struct Which {
    /// Name of the lab
    #[arg(long, default_value = "lab", env = "GODWIT_LAB", value_name = "NAME")]
    name: String,
}

impl Which {
    fn lab(&self) -> anyhow::Result<Lab> {
        Ok(Lab::named(&self.name)?)
    }

    /// One that must be there.
    fn existing(&self) -> anyhow::Result<Lab> {
        let lab = self.lab()?;
        if !lab.exists() {
            return Err(::lab::Error::NoLab { name: self.name.clone() }.into());
        }
        Ok(lab)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Make a lab, or start it again, and wait until every node is ready
    Up {
        #[command(flatten)]
        which: Which,
        /// What the lab is made of: clusters, nodes, networks; without it, three nodes on two networks
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Give up after this many seconds
        #[arg(long, default_value_t = 120, value_name = "SECONDS")]
        timeout: u64,
    },
    /// Run one node that joins the control plane of a kubeconfig, until it is told to end
    ///
    /// The scheduler and the controllers of that control plane do their part; the lab's stay off. To remove the Node object
    /// afterwards: kubectl delete node NAME.
    Node {
        /// The control plane to join, with the rights of a node or of an administrator
        #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Name of the node
        #[arg(long, default_value = "godwit-node", value_name = "NAME")]
        name: String,
    },
    /// Show clusters, nodes, pods, and every process
    Status {
        #[command(flatten)]
        which: Which,
        /// For scripts
        #[arg(long)]
        json: bool,
    },
    /// Remove a lab and everything of it
    Down {
        #[command(flatten)]
        which: Which,
        /// Every lab of this machine
        #[arg(long)]
        all: bool,
    },
    /// Print where a cluster's kubeconfig is
    Kubeconfig {
        #[command(flatten)]
        which: Which,
        /// Which cluster; the first unless told
        cluster: Option<String>,
    },
    /// Run a command, or a shell, inside a node, a pod, or the fabric
    Shell {
        #[command(flatten)]
        which: Which,
        /// A node; a pod as NAMESPACE/POD or POD; or `fabric`, where the control planes and the networks' bridges are
        place: String,
        /// The container of a pod; the first unless told
        #[arg(long, short)]
        container: Option<String>,
        /// What to run; a shell unless told
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Print the logs of the lab's own processes
    Logs {
        #[command(flatten)]
        which: Which,
        /// `keeper`, `init`, a cluster or a node; all unless told
        process: Option<String>,
        /// Go on with what is written from now on
        #[arg(long, short)]
        follow: bool,
    },
    /// Register a root file system as an image for pods, or list the images
    Image {
        #[command(flatten)]
        which: Which,
        /// What pods call it
        image: Option<String>,
        /// The directory of its root file system
        #[arg(requires = "image")]
        directory: Option<PathBuf>,
    },
    #[command(hide = true)]
    Internal {
        #[command(subcommand)]
        process: internal::Process,
    },
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Up { which, config, timeout } => {
            let topology = config.as_deref().map(read_config).transpose()?;
            up::run(&which.lab()?, topology.as_ref(), timeout)?;
        }
        Command::Node { kubeconfig, name } => up::join(&Lab::named(&name)?, &kubeconfig)?,
        Command::Status { which, json } => show::status(&which.lab()?, json)?,
        Command::Down { all: true, .. } => {
            for lab in Lab::all()? {
                up::down(&lab)?;
            }
        }
        Command::Down { which, .. } => up::down(&which.lab()?)?,
        Command::Kubeconfig { which, cluster } => show::kubeconfig(&which.existing()?, cluster.as_deref())?,
        Command::Shell { which, place, container, command } => {
            show::shell(&which.existing()?, &place, container.as_deref(), &command)?;
        }
        Command::Logs { which, process, follow } => {
            show::logs(&which.existing()?, process.as_deref(), follow)?;
        }
        Command::Image { which, image: Some(image), directory: Some(directory) } => {
            ::lab::register_image(&which.existing()?, &image, &directory)?;
        }
        Command::Image { which, .. } => show::images(&which.existing()?)?,
        Command::Internal { process } => return process.run(),
    }
    Ok(ExitCode::SUCCESS)
}

fn read_config(path: &Path) -> anyhow::Result<Topology> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    ::lab::topology::read(&text)
        .with_context(|| format!("{} is refused, and nothing was made", path.display()))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}
