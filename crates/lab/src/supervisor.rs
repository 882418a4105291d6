//! Keeps processes running: starts them, waits for their end, starts them again. The one loop of the keeper and of every init.
//!
//! It also reaps what was orphaned, as the first process of a machine must. It has one thread, because it starts machines.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::Error;

/// A service that ended sooner than this after its start waits for as long before the next.
const BACK_OFF: Duration = Duration::from_secs(1);
/// How long services have to end when we are told to.
const GRACE: Duration = Duration::from_secs(5);

/// What starts a service: its process, and what is kept for as long as that runs.
type Start<'a> = dyn FnMut() -> Result<(Pid, Box<dyn Kept>), Error> + 'a;

/// Something that must run. What `start` returns next to the process is kept for as long as that process runs.
pub(crate) struct Service<'a> {
    name: String,
    start: Box<Start<'a>>,
    state: State,
}

/// Anything that is kept.
pub(crate) trait Kept {}
impl<T> Kept for T {}

enum State {
    Waiting { until: Instant },
    Running { pid: Pid, since: Instant, _kept: Box<dyn Kept> },
}

impl<'a> Service<'a> {
    pub fn new<K: 'static>(
        name: impl Into<String>,
        mut start: impl FnMut() -> Result<(Pid, K), Error> + 'a,
    ) -> Self {
        let start = Box::new(move || {
            let (pid, kept) = start()?;
            Ok((pid, Box::new(kept) as Box<dyn Kept>))
        });
        Self { name: name.into(), start, state: State::Waiting { until: Instant::now() } }
    }
}

/// Runs until SIGTERM or SIGINT, then ends the services and returns.
pub(crate) fn run(mut services: Vec<Service<'_>>) -> Result<(), Error> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    signals.thread_block().map_err(Error::kernel("blocking signals"))?;
    let inbox = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(Error::kernel("listening for signals"))?;
    let mut ending: Option<Instant> = None;
    loop {
        reap(&mut services, ending.is_some())?;
        let running = services.iter().any(|service| matches!(service.state, State::Running { .. }));
        let now = Instant::now();
        match ending {
            None => start_due(&mut services, now),
            Some(_) if !running => return Ok(()),
            Some(until) if now >= until => {
                signal_all(&services, Signal::SIGKILL);
                ending = Some(now + GRACE);
            }
            Some(_) => {}
        }
        let due = services.iter().filter_map(|service| match service.state {
            State::Waiting { until } if ending.is_none() => Some(until),
            _ => None,
        });
        let next = due.chain(ending).min();
        wait_for_signal(&inbox, next)?;
        while let Some(info) = inbox.read_signal().map_err(Error::kernel("reading a signal"))? {
            let asked = [Signal::SIGTERM as u32, Signal::SIGINT as u32].contains(&info.ssi_signo);
            if asked && ending.is_none() {
                tracing::info!("ending");
                signal_all(&services, Signal::SIGTERM);
                ending = Some(Instant::now() + GRACE);
            }
        }
    }
}

fn wait_for_signal(inbox: &SignalFd, until: Option<Instant>) -> Result<(), Error> {
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        // One more: rounding down would turn the last millisecond into a busy loop.
        let millis = until.saturating_duration_since(Instant::now()).as_millis() + 1;
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut [PollFd::new(inbox.as_fd(), PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::kernel("waiting for a signal")(errno)),
    }
}

fn start_due(services: &mut [Service<'_>], now: Instant) {
    for service in services {
        if !matches!(service.state, State::Waiting { until } if until <= now) {
            continue;
        }
        service.state = match (service.start)() {
            Ok((pid, kept)) => {
                tracing::info!(process = service.name, %pid, "started");
                State::Running { pid, since: now, _kept: kept }
            }
            Err(error) => {
                tracing::error!(process = service.name, error = %Chain(&error), "could not be started");
                State::Waiting { until: now + BACK_OFF }
            }
        };
    }
}

/// Takes note of every process that has ended, ours or an orphan.
fn reap(services: &mut [Service<'_>], ending: bool) -> Result<(), Error> {
    loop {
        let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, format!("with code {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("by {signal}")),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(errno) => return Err(Error::kernel("waiting for processes")(errno)),
        };
        for service in &mut *services {
            let State::Running { pid: own, since, .. } = service.state else { continue };
            if own != pid {
                continue;
            }
            if !ending {
                tracing::warn!(process = service.name, %pid, "ended {how}, and is started again");
            }
            let now = Instant::now();
            let until = if now.duration_since(since) < BACK_OFF { now + BACK_OFF } else { now };
            service.state = State::Waiting { until };
        }
    }
}

fn signal_all(services: &[Service<'_>], signal: Signal) {
    for service in services {
        if let State::Running { pid, .. } = service.state {
            // It may have ended this moment: then it is reaped next.
            let _ = kill(pid, signal);
        }
    }
}

/// An error and its causes, on one line.
pub(crate) struct Chain<'a>(pub &'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
