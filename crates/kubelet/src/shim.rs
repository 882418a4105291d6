//! The process that stays with a container: it has the OCI runtime make and start it, keeps its log, and writes down
//! how it ended.
//!
//! ```text
//!   agent                     shim                                 files of the container
//!     │ ── starts ────────────► │ takes the lock                     lock
//!     │ ◄─────────── locked ─── │
//!     │ ─── go ───────────────► │ says who it is                     shim.json
//!     │                         │ runtime create, says who it is     pid.json
//!     │                         │ runtime start
//!     │ ◄─ started, or why not  │
//!     ╎ (may end, may be back)  │ copies output                      the log
//!                               │ the container ends                 exit.json
//!                               │ runtime delete
//! ```
//!
//! It is synchronous and small: there is one for every container. It leads a process group of its own, which the OCI
//! runtime's processes are in, so that all of it can be ended at once; the container's processes are in other groups.
//!
//! Invariant: it does nothing before it holds the lock and was told to go, so a container has one shim at most.

mod log;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;

use k8s_openapi::jiff::Timestamp;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use serde::Deserialize;

use crate::runtime::Exit;
use crate::runtime::cgroup;
use crate::runtime::process::Identity;
use crate::runtime::record::{self, Directory, Started, Task};
use log::{Log, Streams};

pub(crate) const LOCKED: &str = "locked";
pub(crate) const GO: &str = "go";
pub(crate) const STARTED: &str = "started";
/// Followed by the JSON of the text: it may hold line ends.
pub(crate) const NOT_CREATED: &str = "not created ";
pub(crate) const NOT_STARTED: &str = "not started ";

/// Runs a shim, given the directory of its container. Standard input is the socket to the agent; what it writes to
/// standard error is for a person who looks why it failed.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: the shim is started by the agent with the directory of a container");
        return ExitCode::from(2);
    };
    match serve(&Directory::at(directory.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} {error}", Timestamp::now());
            ExitCode::FAILURE
        }
    }
}

fn serve(directory: &Directory) -> io::Result<()> {
    // Fails only for a process that leads its group already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let _lock = directory.hold()?;
    let mut agent = Agent::on_standard_input()?;
    if !agent.lets_go()? {
        return Ok(());
    }
    let task: Task = required(&directory.task())?;
    record::write(&directory.shim(), &Identity::of(std::process::id())?)?;
    // Before anything runs: a container without a log is not wanted.
    let mut log = Log::open(&task.log)?;
    let streams = Streams::new()?;
    let (started, streams) = match start(directory, &task, streams) {
        Ok(running) => running,
        Err(refusal) => {
            let cleared = delete(directory, &task).and_then(|()| remove_if_there(&directory.started()));
            agent.tell(&refusal.line()?);
            return cleared;
        }
    };
    let reaper = reap_until(started.process.pid)?;
    agent.tell(STARTED);
    drop(agent);

    streams.copy_until(&reaper.ended, &mut log)?;
    let status =
        reaper.thread.join().map_err(|_| io::Error::other("the thread that waits has panicked"))??;
    let code = code(status);
    let exit = Exit {
        code,
        started: started.started,
        finished: Timestamp::now(),
        reason: reason(code, cgroup::ran_out_of_memory(&task.cgroup)).to_owned(),
    };
    record::write(&directory.exit(), &exit)?;
    delete(directory, &task)
}

/// The agent that started this shim; it may be gone at any moment.
struct Agent(BufReader<UnixStream>);

impl Agent {
    fn on_standard_input() -> io::Result<Self> {
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self(BufReader::new(UnixStream::from(socket))))
    }

    /// Whether it still wants this container to be started, now that nobody else can.
    fn lets_go(&mut self) -> io::Result<bool> {
        self.tell(LOCKED);
        let mut answer = String::new();
        self.0.read_line(&mut answer)?;
        Ok(answer.trim_end() == GO)
    }

    /// An agent that is gone reads the files later.
    fn tell(&mut self, line: &str) {
        let _ = writeln!(self.0.get_mut(), "{line}");
    }
}

/// Why a container does not run.
enum Refusal {
    NotCreated(String),
    NotStarted(String),
}

impl Refusal {
    fn line(&self) -> io::Result<String> {
        let (prefix, text) = match self {
            Self::NotCreated(text) => (NOT_CREATED, text),
            Self::NotStarted(text) => (NOT_STARTED, text),
        };
        Ok(format!("{prefix}{}", serde_json::to_string(text)?))
    }
}

/// Makes the container, says who it is, and lets it run.
fn start(directory: &Directory, task: &Task, streams: Streams) -> Result<(Started, Streams), Refusal> {
    let pid_file = directory.path().join("pid");
    let not_created = |error: io::Error| Refusal::NotCreated(error.to_string());
    let create = || -> io::Result<bool> {
        let (stdout, stderr) = streams.writers()?;
        let mut create = runtime(directory, task);
        create.arg("create").arg("--bundle").arg(directory.bundle()).arg("--pid-file").arg(&pid_file);
        create.arg(&task.name).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        Ok(create.status()?.success())
    };
    if !create().map_err(not_created)? {
        return Err(Refusal::NotCreated(complaint(directory)));
    }
    let announce = || -> io::Result<Started> {
        let pid = fs::read_to_string(&pid_file)?.trim().parse().map_err(io::Error::other)?;
        let process = Identity::of(pid)?.ok_or_else(|| io::Error::other("it ended before it was started"))?;
        let started = Started { process, started: Timestamp::now() };
        record::write(&directory.started(), &started)?;
        Ok(started)
    };
    let started = announce().map_err(not_created)?;
    let let_run = || -> io::Result<bool> {
        let mut start = runtime(directory, task);
        start.arg("start").arg(&task.name);
        Ok(start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success())
    };
    match let_run() {
        Ok(true) => Ok((started, streams)),
        Ok(false) => Err(Refusal::NotStarted(complaint(directory))),
        Err(error) => Err(Refusal::NotStarted(error.to_string())),
    }
}

/// The OCI runtime's command line, up to the command.
fn runtime(directory: &Directory, task: &Task) -> Command {
    let mut command = Command::new(&task.runtime);
    command.arg("--root").arg(&task.run).arg("--log").arg(directory.runtime_log());
    command.args(["--log-format", "json"]);
    command
}

/// What the OCI runtime said last, of what went wrong.
fn complaint(directory: &Directory) -> String {
    #[derive(Deserialize)]
    struct Line {
        level: String,
        msg: String,
    }
    let log = fs::read_to_string(directory.runtime_log()).unwrap_or_default();
    log.lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| line.level == "error")
        .map_or_else(|| "the container runtime failed and did not say why".to_owned(), |line| line.msg)
}

/// Ends what is left of the container, and the OCI runtime's own files of it.
fn delete(directory: &Directory, task: &Task) -> io::Result<()> {
    let mut delete = runtime(directory, task);
    delete.args(["delete", "--force"]).arg(&task.name);
    let status = delete.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(complaint(directory))) }
}

struct Reaper {
    /// Closed when the container's first process has ended.
    ended: io::PipeReader,
    thread: JoinHandle<io::Result<WaitStatus>>,
}

/// Waits for the end of the container's first process on a thread of its own. Until then it also takes note of the end
/// of others: in a container without a process namespace, whoever loses its parent becomes a child of the shim.
fn reap_until(first: u32) -> io::Result<Reaper> {
    let (ended, ending) = io::pipe()?;
    let first = i32::try_from(first).ok().and_then(Pid::from_raw);
    let thread = std::thread::Builder::new().name("reaper".into()).spawn(move || {
        let _ending = ending;
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if Some(pid) == first => return Ok(status),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    })?;
    Ok(Reaper { ended, thread })
}

/// As a shell would say it.
fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal)).unwrap_or(255)
}

fn reason(code: i32, ran_out_of_memory: bool) -> &'static str {
    match code {
        0 => "Completed",
        _ if ran_out_of_memory => "OOMKilled",
        _ => "Error",
    }
}

fn required(path: &Path) -> io::Result<Task> {
    record::read(path)?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing(path)))
}

fn missing(path: &Path) -> String {
    format!("{} is not there: nothing is known of this container", PathBuf::from(path).display())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
