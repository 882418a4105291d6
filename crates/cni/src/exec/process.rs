//! Plugins as processes.
//!
//! Each is the head of a process group of its own, and is not reaped before its pipes are closed: until then the group's number
//! cannot be anybody else's, so killing the group is safe. Dropping a run kills it.

use std::{
    env,
    fs::File,
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use rustix::{
    process::{Pid, Signal, kill_process_group},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    runtime::Handle,
    sync::oneshot,
    time::{sleep, timeout},
};

use super::{Exec, ExecError, Invocation, Output, SearchPath, orphan};
use crate::PluginName;

/// No honest result is larger.
const STDOUT_MAX: usize = 1024 * 1024;
/// What is kept of standard error, for the message.
const STDERR_KEPT: usize = 8 * 1024;
/// How long a killed plugin may take to be gone. Longer: the kernel holds it, and it can do nothing any more.
const DEATH: Duration = Duration::from_secs(2);
/// A plugin that is being installed this moment is busy.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_TRIES: u32 = 20;

/// Runs plugins as processes, in our namespaces or in those that are named.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    network_namespace: Option<PathBuf>,
    mount_namespace: Option<PathBuf>,
}

impl Processes {
    /// Plugins see the network namespace of this process as the node's.
    pub fn here() -> Self {
        Self::default()
    }

    /// Plugins see this network namespace as the node's.
    pub fn in_namespace(path: &Path) -> Self {
        Self { network_namespace: Some(path.to_owned()), mount_namespace: None }
    }

    /// Plugins see the network and the files of this process as the node's: from a container, those of process 1. They are
    /// looked for among our own files, so the directories of plugins must be at the same path in both.
    pub fn beside(process: u32) -> Self {
        let namespace = |kind: &str| Some(PathBuf::from(format!("/proc/{process}/ns/{kind}")));
        Self { network_namespace: namespace("net"), mount_namespace: namespace("mnt") }
    }

    async fn start(&self, invocation: &Invocation) -> io::Result<Group> {
        let mut tries = 0;
        loop {
            match self.spawn(command(invocation)).await {
                Err(busy) if busy.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                    tries += 1;
                    sleep(BUSY_PAUSE).await;
                }
                started => return Ok(Group(started?)),
            }
        }
    }

    async fn spawn(&self, mut command: Command) -> io::Result<Child> {
        let Some(network) = &self.network_namespace else { return command.spawn() };
        let network = File::open(network)?;
        let files = self.mount_namespace.as_ref().map(File::open).transpose()?;
        let runtime = Handle::current();
        let (tell, told) = oneshot::channel();
        // A thread of its own, which ends: no other work may ever find itself in that namespace.
        thread::Builder::new().name("cni-spawn".to_owned()).spawn(move || {
            let _runtime = runtime.enter();
            let child = enter(&network, files.as_ref()).and_then(|()| command.spawn());
            // Nobody waits any more: the child is dropped, which kills it.
            drop(tell.send(child));
        })?;
        told.await.unwrap_or_else(|_| Err(io::Error::other("the thread that starts plugins ended")))
    }
}

/// Moves this thread.
fn enter(network: &File, files: Option<&File>) -> io::Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    if let Some(files) = files {
        // A root directory that threads share cannot be changed for one of them.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        move_into_link_name_space(files.as_fd(), Some(LinkNameSpaceType::Mount))?;
    }
    Ok(())
}

fn command(invocation: &Invocation) -> Command {
    let mut command = std::process::Command::new(&invocation.program);
    command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
    command.envs(invocation.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command
}

impl Exec for Processes {
    fn find(&self, plugin: &PluginName, path: &SearchPath) -> Result<PathBuf, ExecError> {
        path.find(plugin)
    }

    async fn run(&self, invocation: Invocation) -> Result<Output, ExecError> {
        let started = self.start(&invocation).await;
        let mut group =
            started.map_err(|source| ExecError::Spawn { program: invocation.program.clone(), source })?;
        let ended = timeout(invocation.timeout, group.converse(invocation.input)).await;
        match ended {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(failed)) => {
                group.end().await;
                Err(failed)
            }
            Err(_) => {
                group.end().await;
                Err(ExecError::Timeout { after: invocation.timeout })
            }
        }
    }

    async fn end_orphans(&self, container_id: String, interface: String) -> Result<(), ExecError> {
        let ended = tokio::task::spawn_blocking(move || orphan::end(&container_id, &interface)).await;
        ended.unwrap_or_else(|source| Err(ExecError::Read { source: io::Error::other(source) }))
    }
}

/// A plugin and what it started.
struct Group(Child);

impl Group {
    /// Gives it its input, takes its output, waits for its end: in this order, see the head of this file.
    async fn converse(&mut self, input: Vec<u8>) -> Result<Output, ExecError> {
        let (mut stdin, stdout, stderr) = (self.0.stdin.take(), self.0.stdout.take(), self.0.stderr.take());
        let write = async {
            if let Some(pipe) = &mut stdin {
                // A plugin need not read what it does not need.
                drop(pipe.write_all(&input).await);
            }
            drop(stdin);
            Ok(())
        };
        let ((), stdout, stderr) = tokio::try_join!(write, read_all(stdout), read_end(stderr))?;
        let status = self.0.wait().await.map_err(|source| ExecError::Read { source })?;
        Ok(Output { code: status.code(), stdout, stderr })
    }

    fn kill(&self) {
        let head = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(head) = head {
            // It fails only if nobody is left.
            let _ = kill_process_group(head, Signal::KILL);
        }
    }

    async fn end(&mut self) {
        self.kill();
        if timeout(DEATH, self.0.wait()).await.is_err() {
            tracing::warn!(process = self.0.id(), "a killed CNI plugin is still there");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn read_all(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ExecError> {
    let mut read = Vec::new();
    if let Some(pipe) = pipe {
        let mut pipe = pipe.take(STDOUT_MAX as u64 + 1);
        pipe.read_to_end(&mut read).await.map_err(|source| ExecError::Read { source })?;
    }
    if read.len() > STDOUT_MAX { Err(ExecError::TooMuch { limit: STDOUT_MAX }) } else { Ok(read) }
}

async fn read_end(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, ExecError> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        loop {
            let read = pipe.read_buf(&mut kept).await.map_err(|source| ExecError::Read { source })?;
            if read == 0 {
                break;
            }
            if kept.len() > 2 * STDERR_KEPT {
                kept.drain(..kept.len() - STDERR_KEPT);
            }
        }
        kept.drain(..kept.len().saturating_sub(STDERR_KEPT));
    }
    Ok(kept)
}
