//! Processes that somebody else started: who they are, whether they live, their end.
//!
//! Invariant: a signal goes to the process that was meant, also when its number was given to another one meanwhile.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process, told apart from one that has its number later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// In clock ticks since the machine booted.
    start: u64,
    boot: String,
}

impl Identity {
    /// Of the process that has this number now; none if nobody has.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        let Some(stat) = Stat::of(pid)? else { return Ok(None) };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Some(Self { pid, start: stat.start, boot }))
    }

    /// Whether its number is free or still its own.
    pub fn is_not_another(&self) -> io::Result<bool> {
        Ok(Self::of(self.pid)?.is_none_or(|now| now == *self))
    }

    /// A handle of the process, if it still is the one that was meant.
    pub fn open(&self) -> io::Result<Option<Handle>> {
        let Some(handle) = Handle::open(self.pid)? else { return Ok(None) };
        Ok((Self::of(self.pid)?.as_ref() == Some(self)).then_some(handle))
    }
}

/// What is needed of `/proc/PID/stat`.
struct Stat {
    group: i32,
    session: i32,
    start: u64,
}

impl Stat {
    fn of(pid: u32) -> io::Result<Option<Self>> {
        let text = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => text,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // The name, in parentheses, may hold anything; the fields after it are the third and on.
        let fields: Vec<_> = text.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let field =
            |number: usize| fields.get(number - 3).and_then(|field| field.parse::<i64>().ok()).unwrap_or(0);
        Ok(Some(Self {
            group: i32::try_from(field(5)).unwrap_or(0),
            session: i32::try_from(field(6)).unwrap_or(0),
            start: u64::try_from(field(22)).unwrap_or(0),
        }))
    }
}

/// An open process: it stays the same one whatever happens to its number.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// None if no process has this number.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(handle) => Ok(Some(Self(handle))),
            // The second: a number that is a thread's now.
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a signal; a process that has ended is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for its end; whether it came in time.
    pub fn ended_within(&self, time: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut poll = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut poll, timeout) {
                Ok(0) if left.is_zero() => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Resolves when it has ended.
    #[allow(
        unsafe_code,
        reason = "the descriptor must stay open while tokio knows it: it is owned, and only dropped with it"
    )]
    pub async fn ended(self) -> io::Result<()> {
        let descriptor = unsafe { AsyncFd::register_with_interest(self.0, Interest::READABLE) }?;
        descriptor.readable().await.map(|_| ())
    }
}

/// Kills the members of a process group, and waits for their end.
pub fn end_group(group: u32, patience: Duration) -> io::Result<()> {
    let Ok(group) = i32::try_from(group) else { return Ok(()) };
    end_all(|process| process.group == group, patience)
}

/// Kills the members of a session, which a shell with jobs divides into many groups, and waits for their end.
pub fn end_session(session: u32, patience: Duration) -> io::Result<()> {
    let Ok(session) = i32::try_from(session) else { return Ok(()) };
    end_all(|process| process.session == session, patience)
}

/// Whether the process of this number is in this cgroup, in any hierarchy.
pub fn is_in(pid: u32, cgroup: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| path.ends_with(cgroup))
}

fn end_all(is_meant: impl Fn(&Stat) -> bool, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    // A member may start another one before the signal reaches it, hence again until there is none.
    loop {
        let members = members(&is_meant)?;
        if members.is_empty() {
            return Ok(());
        }
        for member in &members {
            member.signal(Signal::KILL)?;
        }
        for member in &members {
            if !member.ended_within(deadline.saturating_duration_since(Instant::now()))? {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a process does not end though it was killed",
                ));
            }
        }
    }
}

/// The processes that are meant and have not ended.
fn members(is_meant: &impl Fn(&Stat) -> bool) -> io::Result<Vec<Handle>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // Opened before it is looked at: what is looked at is then what is open.
        let Some(handle) = Handle::open(pid)? else { continue };
        if Stat::of(pid)?.is_some_and(|stat| is_meant(&stat)) && !handle.ended_within(Duration::ZERO)? {
            members.push(handle);
        }
    }
    Ok(members)
}

/// Runs a command to its end and returns what it said on standard error; it is killed when it takes too long.
pub fn run(command: &mut Command, patience: Duration) -> io::Result<(ExitStatus, String)> {
    let (mut reader, writer) = io::pipe()?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn()?;
    // The command holds the writing end, and would keep it open as long as it is not dropped.
    command.stderr(Stdio::null());
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        // What cannot be read is not said; the exit status tells the outcome.
        let _ = io::Read::read_to_string(&mut reader, &mut said);
        said
    });
    if let Some(handle) = Handle::open(child.id())?
        && !handle.ended_within(patience)?
    {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not end in time and was killed"));
    }
    let status = child.wait()?;
    Ok((status, said.join().unwrap_or_default().trim().to_owned()))
}
