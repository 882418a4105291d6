//! Process 1 of a pod: it has children that it did not start, and must take note of their ends.
//!
//! QEMU and dnsmasq are left to process 1 by libvirtd. A process whose end nobody takes note of is still there for libvirt, which would wait
//! for it in vain. The launcher itself waits for children of its own by their numbers, so it runs as a child of this loop, which
//! passes signals on and ends with it, and with it everything else in the pod.

use std::process::{Command, ExitCode};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The exit code of a launcher that was killed by a signal, as shells have it.
const KILLED: i32 = 128;

/// Whether this process is process 1.
pub fn is_needed() -> bool {
    std::process::id() == 1
}

fn watched() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD])
}

/// For the child: what the parent blocked is blocked here too, and in all that would be started here.
pub fn hear_signals() -> anyhow::Result<()> {
    watched().thread_unblock().context("unblocking signals")
}

/// Runs this program once more, as a child, with the same arguments.
pub fn run() -> anyhow::Result<ExitCode> {
    let signals = watched();
    signals.thread_block().context("blocking signals")?;
    let program = std::env::current_exe().context("finding the program")?;
    let child =
        Command::new(program).args(std::env::args_os().skip(1)).spawn().context("starting the launcher")?;
    let launcher = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        let signal = signals.wait().context("waiting for a signal")?;
        if signal != Signal::SIGCHLD {
            // It may have ended just now, which the next signal tells.
            let _ = kill(launcher, signal);
            continue;
        }
        if let Some(code) = reap(launcher)? {
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
        }
    }
}

/// Takes note of all that ended; answers with the launcher's exit code if it was among them.
fn reap(launcher: Pid) -> anyhow::Result<Option<i32>> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, with)) if pid == launcher => code = Some(with),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == launcher => {
                code = Some(KILLED + signal as i32);
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(code),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("waiting for children"),
        }
    }
}
