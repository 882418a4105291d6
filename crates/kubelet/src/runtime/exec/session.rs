//! A command with whom somebody talks: its input, its outputs, and its terminal if it has one.
//!
//! A terminal is a pair of ours, of which the container runtime gets the far end; it makes another one inside the container and
//! carries bytes and sizes between the two.
//!
//! Invariant: dropped, the command is killed.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

use super::{Place, Running};
use crate::runtime::process::Handle;

/// Which streams somebody wants of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is asked for on its own")]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// One terminal instead of three streams; what it shows comes as standard output.
    pub tty: bool,
}

pub type Input = Pin<Box<dyn AsyncWrite + Send>>;
pub type Output = Pin<Box<dyn AsyncRead + Send>>;

/// A command that runs with its streams; those that nobody asked for are none.
pub struct Session {
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    pub terminal: Option<Terminal>,
    pub command: Running,
}

impl Session {
    pub(in crate::runtime) fn start(place: &Place, command: &[String], streams: Streams) -> io::Result<Self> {
        if streams.tty {
            Self::on_terminal(place, command, streams)
        } else {
            Self::on_pipes(place, command, streams)
        }
    }

    fn on_pipes(place: &Place, command: &[String], streams: Streams) -> io::Result<Self> {
        let wanted = |is_wanted| if is_wanted { Stdio::piped() } else { Stdio::null() };
        let mut running = Running::start(place, command, |exec| {
            exec.stdin(wanted(streams.stdin)).stdout(wanted(streams.stdout)).stderr(wanted(streams.stderr));
            Ok(())
        })?;
        let child = &mut running.runtime;
        Ok(Self {
            stdin: child.stdin.take().map(|pipe| Box::pin(pipe) as _),
            stdout: child.stdout.take().map(|pipe| Box::pin(pipe) as _),
            stderr: child.stderr.take().map(|pipe| Box::pin(pipe) as _),
            terminal: None,
            command: running,
        })
    }

    fn on_terminal(place: &Place, command: &[String], streams: Streams) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let near = openpt(flags)?;
        unlockpt(&near)?;
        let far = ioctl_tiocgptpeer(&near, flags)?;
        rustix::io::ioctl_fionbio(&near, true)?;
        // What is typed before the container runtime is at it is for the inner terminal to understand, not for ours.
        let mut raw = tcgetattr(&far)?;
        raw.make_raw();
        tcsetattr(&far, OptionalActions::Now, &raw)?;
        let running = Running::start(place, command, |exec| {
            exec.arg("--tty").stdin(far.try_clone()?).stdout(far.try_clone()?).stderr(far);
            Ok(())
        })?;
        // Neither is a pipe, but both are read and written like one.
        let stdin =
            streams.stdin.then(|| pipe::Sender::from_owned_fd_unchecked(near.try_clone()?)).transpose()?;
        // Also one that nobody wants to see must be read, or the command would wait for somebody to.
        let stdout = pipe::Receiver::from_owned_fd_unchecked(near.try_clone()?)?;
        let runtime = running.runtime.id().map(Handle::open).transpose()?.flatten();
        Ok(Self {
            stdin: stdin.map(|stdin| Box::pin(stdin) as _),
            stdout: Some(Box::pin(stdout)),
            stderr: None,
            terminal: Some(Terminal { near, runtime }),
            command: running,
        })
    }
}

/// The near end of a command's terminal.
pub struct Terminal {
    near: OwnedFd,
    runtime: Option<Handle>,
}

impl Terminal {
    pub fn resize(&self, rows: u16, columns: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.near, size)?;
        // It is the terminal of no session, so the kernel tells nobody. A runtime that does not listen yet looks when it does.
        self.runtime.as_ref().map_or(Ok(()), |runtime| runtime.signal(rustix::process::Signal::WINCH))
    }
}
