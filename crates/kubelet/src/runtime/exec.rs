//! A command inside a running container.
//!
//! Invariant: a command that is not waited for any more is killed: when its time is over, and when its caller goes away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::process;
use super::{ContainerId, Error, ExecResult};

/// What is kept of the output.
const LONGEST: usize = 1024 * 1024;
/// How long what was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a command is to be run.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) runtime: PathBuf,
    pub(super) run: PathBuf,
    pub(super) name: String,
    pub(super) directory: PathBuf,
}

pub(super) async fn run(
    place: &Place,
    id: &ContainerId,
    command: &[String],
    timeout: Duration,
) -> Result<ExecResult, Error> {
    let failed = |source| Error::System { id: id.clone(), operation: "running a command in it", source };
    let mut running = Running::start(place, command).map_err(failed)?;
    if let Ok(result) = tokio::time::timeout(timeout, running.finish()).await {
        return result.map_err(failed);
    }
    running.end().await;
    Err(Error::ExecTimeout { id: id.clone(), after: timeout })
}

/// A command that runs; dropped, it is killed.
struct Running {
    runtime: Child,
    output: pipe::Receiver,
    /// Has the number of the command, which is in a process group of its own.
    pid_file: PathBuf,
    finished: bool,
}

impl Running {
    fn start(place: &Place, command: &[String]) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let pid_file = place.directory.join(format!("exec-{:016x}", fastrand::u64(..)));
        let mut exec = Command::new(&place.runtime);
        exec.arg("--root").arg(&place.run).arg("exec").arg("--pid-file").arg(&pid_file);
        exec.arg(&place.name).args(command);
        exec.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        let runtime = exec.spawn()?;
        let output = pipe::Receiver::from_owned_fd(reader.into())?;
        Ok(Self { runtime, output, pid_file, finished: false })
    }

    /// Reads while the command runs, then what is left.
    async fn finish(&mut self) -> io::Result<ExecResult> {
        let (mut output, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
        let mut open = true;
        let status = loop {
            tokio::select! {
                status = self.runtime.wait() => break status?,
                read = self.output.read(&mut buffer), if open => match read? {
                    0 => open = false,
                    count => keep(&mut output, &buffer[..count]),
                },
            }
        };
        self.finished = true;
        while open && output.len() < LONGEST {
            match self.output.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => keep(&mut output, &buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        // None: the runtime itself was killed.
        Ok(ExecResult { code: status.code().unwrap_or(255), output })
    }

    /// Kills it and waits until it is gone.
    async fn end(mut self) {
        if let Some(thread) = self.kill() {
            // It cannot panic, and it has reported what went wrong.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Kills it on a thread of its own: waiting for the end of processes has no place in a task.
    fn kill(&mut self) -> Option<JoinHandle<()>> {
        if std::mem::replace(&mut self.finished, true) {
            return None;
        }
        let (runtime, pid_file) = (self.runtime.id()?, self.pid_file.clone());
        let work = move || {
            end(runtime, &pid_file);
            remove(&pid_file);
        };
        std::thread::Builder::new().name("exec-end".into()).spawn(work).ok()
    }
}

/// A command that never ran has no file.
fn remove(pid_file: &Path) {
    let _ = fs::remove_file(pid_file);
}

fn keep(output: &mut Vec<u8>, bytes: &[u8]) {
    let room = LONGEST.saturating_sub(output.len());
    output.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.kill().is_none() {
            remove(&self.pid_file);
        }
    }
}

/// Kills the runtime first, so that it starts nothing any more, then the command with its group.
fn end(runtime: u32, pid_file: &Path) {
    let command = || fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse().ok());
    for group in std::iter::once(runtime).chain(std::iter::once_with(command).flatten()) {
        if let Err(error) = process::end_group(group, PATIENCE) {
            tracing::warn!(group, %error, "a command in a container goes on though its time is over");
        }
    }
}
