//! A command inside a running container: to its end, for those who want to know how it went, or as a session with its streams.
//!
//! Invariant: a command that is not waited for any more is killed: when its time is over, when its caller goes away, and by
//! the next agent when this one is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::process::{self, Handle};
use super::{ContainerId, Error, ExecResult};

mod session;

pub use session::{Input, Output, Session, Streams, Terminal};

/// What is kept of the output.
const LONGEST: usize = 1024 * 1024;
/// How long what was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the container runtime has said which process the command is: it tells nobody.
const LOOK: Duration = Duration::from_millis(5);
const PID_FILE: &str = "exec-";

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
    let (mut running, mut output) = start_quietly(place, command).map_err(failed)?;
    if let Ok(result) = tokio::time::timeout(timeout, finish(&mut running, &mut output)).await {
        return result.map_err(failed);
    }
    running.end().await;
    Err(Error::ExecTimeout { id: id.clone(), after: timeout })
}

/// Both outputs into one pipe, and no input.
fn start_quietly(place: &Place, command: &[String]) -> io::Result<(Running, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let output = pipe::Receiver::from_owned_fd(reader.into())?;
    let running = Running::start(place, command, |exec| {
        exec.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        Ok(())
    })?;
    Ok((running, output))
}

/// Reads while the command runs, then what is left.
async fn finish(running: &mut Running, source: &mut pipe::Receiver) -> io::Result<ExecResult> {
    let (mut output, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    let mut open = true;
    let code = loop {
        tokio::select! {
            code = running.code() => break code?,
            read = source.read(&mut buffer), if open => match read? {
                0 => open = false,
                count => keep(&mut output, &buffer[..count]),
            },
        }
    };
    while open && output.len() < LONGEST {
        match source.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => keep(&mut output, &buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(ExecResult { code, output })
}

fn keep(output: &mut Vec<u8>, bytes: &[u8]) {
    let room = LONGEST.saturating_sub(output.len());
    output.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// A command that runs; dropped, it is killed.
pub struct Running {
    runtime: Child,
    /// Has the number of the command, which leads a session of its own.
    pid_file: PathBuf,
    finished: bool,
}

impl Running {
    /// `streams` gives the container runtime what the command gets as its streams.
    fn start(
        place: &Place,
        command: &[String],
        streams: impl FnOnce(&mut Command) -> io::Result<()>,
    ) -> io::Result<Self> {
        let pid_file = place.directory.join(format!("{PID_FILE}{:016x}", fastrand::u64(..)));
        let mut exec = Command::new(&place.runtime);
        exec.arg("--root").arg(&place.run).arg("exec").arg("--pid-file").arg(&pid_file);
        streams(&mut exec)?;
        exec.arg(&place.name).args(command).process_group(0);
        Ok(Self { runtime: exec.spawn()?, pid_file, finished: false })
    }

    /// Waits for its end.
    pub async fn code(&mut self) -> io::Result<i32> {
        let status = self.runtime.wait().await?;
        self.finished = true;
        // None: the runtime itself was killed.
        Ok(status.code().unwrap_or(255))
    }

    /// Whether the container runtime came so far as to start the command; if not, the reason is in its output.
    pub fn has_begun(&self) -> bool {
        self.pid_file.exists()
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
        // Opened while it is our child, so the number is still its own.
        let (number, pid_file) = (self.runtime.id()?, self.pid_file.clone());
        let runtime = Handle::open(number);
        let work = move || {
            let ended = runtime.and_then(|runtime| end(runtime.as_ref(), number, &pid_file));
            if let Err(error) = ended {
                tracing::warn!(%error, "a command in a container goes on though its time is over");
            }
            remove(&pid_file);
        };
        std::thread::Builder::new().name("exec-end".into()).spawn(work).ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.kill().is_none() {
            remove(&self.pid_file);
        }
    }
}

/// A command that never ran has no file.
fn remove(pid_file: &Path) {
    let _ = fs::remove_file(pid_file);
}

/// Kills the command with its session, then the container runtime that waits for it. Killed before it has said which process the
/// command is, the runtime could leave one behind that nobody knows; so it is let come that far.
fn end(runtime: Option<&Handle>, number: u32, pid_file: &Path) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    if let Some(runtime) = runtime {
        while !pid_file.exists() && Instant::now() < deadline && !runtime.ended_within(LOOK)? {}
    }
    if let Some(command) = command_of(pid_file) {
        process::end_session(command, PATIENCE)?;
    }
    process::end_group(number, PATIENCE)
}

fn command_of(pid_file: &Path) -> Option<u32> {
    fs::read_to_string(pid_file).ok()?.trim().parse().ok()
}

/// Ends the commands that an agent left behind in this container when it was killed.
pub(super) fn end_abandoned(directory: &Path, cgroup: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PID_FILE) {
            continue;
        }
        // The number may be another's by now, but not in this container.
        if let Some(command) = command_of(&entry.path())
            && process::is_in(command, cgroup)
        {
            process::end_session(command, PATIENCE)?;
        }
        remove(&entry.path());
    }
    Ok(())
}
