//! Containers by an OCI runtime. Every container has a shim: a process that outlives the agent, writes the container's
//! log, and writes down how it ended. An agent that starts again finds its containers through the files of their shims.
//!
//! ```text
//!             start                      its first process ends
//!   nothing ────────► Created ──► Running ──────────────► Exited
//!      ▲                 │            │  shim or node gone   │
//!      └──── remove ─────┴────────────┴──────────────────────┘
//! ```
//!
//! A change to a container runs to its end on a thread of its own, also when the caller stops waiting for it, and changes
//! to one container are made one after another.
//!
//! Invariant: killed between any two steps, the agent finds on disk what it has to end, and `start` or `remove` of the
//! same id ends it.

pub(crate) mod cgroup;
mod exec;
mod lifecycle;
pub(crate) mod process;
pub(crate) mod record;
pub(crate) mod rootfs;
pub mod spec;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::images;
use lifecycle::Lifecycle;

pub use exec::{Input, Output, Running, Session, Streams, Terminal};

/// How containers are run on this node.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where bundles, logs and exits are kept; on a file system that an overlay's upper directory may be on.
    pub state: PathBuf,
    /// Where the OCI runtime keeps what must not survive a restart of the node.
    pub run: PathBuf,
    /// The registered images: one symbolic link or directory for each, see [`crate::images::Images`].
    pub images: PathBuf,
    /// The OCI runtime: `runc`, or another with the same command line.
    pub runtime: PathBuf,
    /// The command line that starts a shim, without the shim's own arguments: what follows goes to [`crate::shim::run`].
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

impl fmt::Display for ContainerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}_{}_{}", self.pod, self.container, self.attempt)
    }
}

/// Everything that the runtime needs to know of a container; nothing in it refers to the API any more.
#[derive(Debug, Clone)]
pub struct Container {
    pub id: ContainerId,
    pub image: String,
    /// The whole command line. Empty: the image's own, which for a plain root filesystem is a shell.
    pub command: Vec<String>,
    /// Wins over the image's own.
    pub environment: Vec<(String, String)>,
    pub working_directory: Option<PathBuf>,
    pub hostname: String,
    /// Volumes, and the pod-wide files: /etc/hosts, /etc/resolv.conf, the termination log.
    pub mounts: Vec<Mount>,
    /// The pod's network namespace; none: the node's.
    pub network: Option<PathBuf>,
    /// Whether the container sees the node's processes.
    pub host_pid: bool,
    pub host_ipc: bool,
    pub security: Security,
    pub resources: Resources,
    /// Said to the OCI runtime as annotations: they help a person who looks at a container with it.
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
    /// With or without `CAP_`; `ALL` is all of them.
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
    /// Its start began and did not come to its end: start it again, or remove it.
    Created,
    Running {
        pid: u32,
        started: Timestamp,
    },
    Exited(Exit),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What it wrote to standard output and standard error, each in order; at most the first MiB.
    pub output: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no container {id} on this node")]
    Unknown { id: ContainerId },
    #[error("container {id} does not run")]
    NotRunning { id: ContainerId },
    #[error("{id} cannot be the id of a container: pod and container are letters, digits, '-' and '.'")]
    Name { id: ContainerId },
    #[error(transparent)]
    Image(#[from] images::Error),
    #[error("container {id} cannot be described")]
    Spec {
        id: ContainerId,
        #[source]
        source: spec::Error,
    },
    /// What Kubernetes calls `CreateContainerError`.
    #[error("container {id} could not be created: {text}")]
    Create { id: ContainerId, text: String },
    /// What Kubernetes calls `RunContainerError`.
    #[error("container {id} could not be started: {text}")]
    Run { id: ContainerId, text: String },
    #[error("{} is not a signal", signal)]
    Signal { signal: i32 },
    #[error("a command in container {id} did not end within {} s and was killed", after.as_secs_f32())]
    ExecTimeout { id: ContainerId, after: Duration },
    #[error("container {id}: {operation} failed")]
    System {
        id: ContainerId,
        operation: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{operation} {} failed", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the work on a container was given up: the program is ending")]
    Ending,
}

/// The containers of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Runtime {
    lifecycle: Arc<Lifecycle>,
}

impl Runtime {
    pub fn open(options: Options) -> Result<Self, Error> {
        Ok(Self { lifecycle: Arc::new(Lifecycle::open(options)?) })
    }

    /// Every container of which there is a trace, also of attempts that have ended, until it is removed.
    pub async fn list(&self) -> Result<Vec<(ContainerId, State)>, Error> {
        self.work(Lifecycle::list).await
    }

    /// Makes and starts it. A container of that id that runs or ran is left as it is; one that fails to start leaves
    /// nothing but what it wrote to its log.
    pub async fn start(&self, container: &Container) -> Result<(), Error> {
        let container = container.clone();
        self.work(move |lifecycle| lifecycle.start(&container)).await
    }

    /// None: there is no trace of it.
    pub async fn state(&self, id: &ContainerId) -> Result<Option<State>, Error> {
        let id = id.clone();
        self.work(move |lifecycle| lifecycle.state(&id)).await
    }

    /// Resolves when the container has ended, also when an earlier agent started it.
    pub async fn wait(&self, id: &ContainerId) -> Result<Exit, Error> {
        let failed = |source| Error::System { id: id.clone(), operation: "waiting for its end", source };
        loop {
            let (lifecycle, of) = (Arc::clone(&self.lifecycle), id.clone());
            let shim = tokio::task::spawn_blocking(move || lifecycle.shim(&of));
            if let Some(shim) = shim.await.map_err(|_| Error::Ending)?? {
                shim.ended().await.map_err(failed)?;
            }
            match self.state(id).await? {
                Some(State::Exited(exit)) => return Ok(exit),
                // A shim that was started meanwhile.
                Some(State::Running { .. }) => {}
                Some(State::Created) => return Err(Error::NotRunning { id: id.clone() }),
                None => return Err(Error::Unknown { id: id.clone() }),
            }
        }
    }

    /// Sends a signal to the container's first process; one that has ended is no error.
    pub async fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), Error> {
        let id = id.clone();
        self.work(move |lifecycle| lifecycle.signal(&id, signal)).await
    }

    /// Runs a command inside the container, as the container's user with the container's environment, until it and all
    /// to whom it gave its output have ended. One that takes too long is killed, and so is one whose caller stops waiting.
    pub async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecResult, Error> {
        exec::run(&self.running(id).await?, id, command, timeout).await
    }

    /// Starts a command inside the container, with streams for somebody to talk to it.
    pub async fn session(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: Streams,
    ) -> Result<Session, Error> {
        let failed = |source| Error::System { id: id.clone(), operation: "running a command in it", source };
        Session::start(&self.running(id).await?, command, streams).map_err(failed)
    }

    /// An error unless it runs.
    pub async fn must_run(&self, id: &ContainerId) -> Result<(), Error> {
        self.running(id).await.map(|_| ())
    }

    /// Where a command is run in a container that runs.
    async fn running(&self, id: &ContainerId) -> Result<exec::Place, Error> {
        match self.state(id).await? {
            Some(State::Running { .. }) => self.lifecycle.exec(id),
            _ => Err(Error::NotRunning { id: id.clone() }),
        }
    }

    /// Ends it if it runs, and removes every trace but its log.
    pub async fn remove(&self, id: &ContainerId) -> Result<(), Error> {
        let id = id.clone();
        self.work(move |lifecycle| lifecycle.remove(&id)).await
    }

    /// Where its log is, in the format of the container runtime interface: `TIME stdout|stderr F|P TEXT`. What no longer
    /// fits is in a file of the same name with `.1` at the end.
    pub fn log(&self, id: &ContainerId) -> PathBuf {
        self.lifecycle.log(id)
    }

    /// Removes the logs of a pod of which no container is left.
    pub async fn remove_logs(&self, pod: &str) -> Result<(), Error> {
        let pod = pod.to_owned();
        self.work(move |lifecycle| lifecycle.remove_logs(&pod)).await
    }

    /// The images that containers can be made of.
    pub fn images(&self) -> &images::Images {
        self.lifecycle.images()
    }

    /// Runs `work` where it may wait for disks and processes. It goes on to its end whether or not somebody waits for it.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Lifecycle) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let lifecycle = Arc::clone(&self.lifecycle);
        tokio::task::spawn_blocking(move || work(&lifecycle)).await.map_err(|_| Error::Ending)?
    }
}
