//! Containers by an OCI runtime. Every container has a shim: a process that outlives the agent, writes the container's
//! log, and writes down how it ended. An agent that starts again finds its containers through the files of their shims.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// How containers are run on this node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where bundles, logs and exits are kept; on a file system that an overlay's upper directory may be on.
    pub state: PathBuf,
    /// Where the OCI runtime keeps what must not survive a restart of the node.
    pub run: PathBuf,
    /// The registered images: one symbolic link or directory for each, see `Images`.
    pub images: PathBuf,
    /// The OCI runtime: `runc`, or another with the same command line.
    pub runtime: PathBuf,
    /// The command line that starts a shim, without the shim's own arguments.
    pub shim: Vec<String>,
    /// Parent of the cgroups of all containers.
    pub cgroup_parent: String,
}

/// What a container is known by: the pod's UID, the container's name, and how many there were before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId {
    pub pod: String,
    pub container: String,
    pub attempt: u32,
}

/// Everything that the runtime needs to know of a container; nothing in it refers to the API any more.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: ContainerId,
    pub image: String,
    /// Empty: the image's own, which for a plain root filesystem is a shell.
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub working_directory: Option<PathBuf>,
    pub hostname: String,
    pub mounts: Vec<Mount>,
    /// The pod's network namespace; none: the node's.
    pub network: Option<PathBuf>,
    /// Whether the container sees the node's processes.
    pub host_pid: bool,
    pub host_ipc: bool,
    pub security: Security,
    pub resources: Resources,
    /// Extra pod-wide files: /etc/hosts, /etc/resolv.conf, the termination log.
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Mount {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub read_only: bool,
    pub propagation: Propagation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, Default)]
pub struct Security {
    pub privileged: bool,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub supplemental_groups: Vec<u32>,
    pub add_capabilities: Vec<String>,
    pub drop_capabilities: Vec<String>,
    pub read_only_root: bool,
    pub no_new_privileges: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Resources {
    pub memory_limit: Option<i64>,
    pub cpu_quota_millis: Option<i64>,
    pub cpu_shares: Option<u64>,
}

/// Where a container is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Running { pid: u32, started: Timestamp },
    Exited(Exit),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// As a shell would say it: 128 + n for signal n.
    pub code: i32,
    pub started: Timestamp,
    pub finished: Timestamp,
    /// `Completed`, `Error`, `OOMKilled`, `ContainerStatusUnknown` (its shim is gone, or the node was restarted).
    pub reason: String,
}

#[derive(Debug)]
pub struct ExecResult {
    pub code: i32,
    pub output: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Placeholder(String),
}

/// The containers of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    _options: std::sync::Arc<Options>,
}

impl Runtime {
    pub fn open(options: Options) -> Result<Self, Error> {
        Ok(Self { _options: std::sync::Arc::new(options) })
    }

    /// Every container of which there is a trace, also of attempts that have ended, until it is removed.
    pub async fn list(&self) -> Result<Vec<(ContainerId, State)>, Error> {
        Err(Error::Placeholder("list".into()))
    }

    /// Makes and starts it. A container of that id that is there already is left as it is.
    pub async fn start(&self, container: &Container) -> Result<(), Error> {
        Err(Error::Placeholder(format!("start {:?}", container.id)))
    }

    pub async fn state(&self, id: &ContainerId) -> Result<Option<State>, Error> {
        Err(Error::Placeholder(format!("state {id:?}")))
    }

    /// Resolves when the container has ended, also when an earlier agent started it.
    pub async fn wait(&self, id: &ContainerId) -> Result<Exit, Error> {
        Err(Error::Placeholder(format!("wait {id:?}")))
    }

    /// Sends a signal to the container's first process; one that has ended is no error.
    pub async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), Error> {
        Err(Error::Placeholder(format!("signal {signal} {id:?}")))
    }

    pub async fn exec(&self, id: &ContainerId, command: &[String], timeout: Duration) -> Result<ExecResult, Error> {
        Err(Error::Placeholder(format!("exec {command:?} {id:?} {timeout:?}")))
    }

    /// Ends it if it runs, and removes every trace but its log.
    pub async fn remove(&self, id: &ContainerId) -> Result<(), Error> {
        Err(Error::Placeholder(format!("remove {id:?}")))
    }

    /// Where its log is, in the format of the container runtime interface: `TIME stdout|stderr F|P TEXT`.
    pub fn log(&self, id: &ContainerId) -> PathBuf {
        self._options.state.join(format!("{id:?}"))
    }
}
