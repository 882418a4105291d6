//! Bytes as they are: moved inside the kernel, from one socket to the other through a pipe.
//!
//! Where the kernel cannot splice a kind of socket, the same bytes are copied through a buffer. `SPLICE_F_MORE` is never set: it makes
//! TCP wait for more, and costs two thirds of the throughput.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::pipe2;
use socket2::Socket;

use super::{Joint, Wait};
use crate::error::Broken;
use crate::line::Line;

/// Of the pipe, and of one call. The kernel's limit for those without privileges.
const PIPE: usize = 1 << 20;
/// Of the buffer when splicing is not possible.
const BUFFER: usize = 256 << 10;

/// How plain bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mover {
    /// In the kernel where it can, else as [`Mover::Copy`].
    Splice,
    /// Through a buffer of this process.
    Copy,
}

/// One direction.
struct Way<'a> {
    line: &'a Line,
    from: &'a Socket,
    to: &'a Socket,
    reading: fn(io::Error) -> Broken,
    writing: fn(io::Error) -> Broken,
    count: &'a dyn Fn(usize),
}

impl Joint {
    pub(crate) fn send_plain(&self, mover: Mover) -> Result<(), Broken> {
        let (line, from, to) = (&self.line, &self.near, &self.far);
        let count = &|bytes| self.sent(bytes);
        Way { line, from, to, reading: Broken::Near, writing: Broken::Far, count }.run(mover)
    }

    pub(crate) fn receive_plain(&self, mover: Mover) -> Result<(), Broken> {
        let (line, from, to) = (&self.line, &self.far, &self.near);
        let count = &|bytes| self.received(bytes);
        Way { line, from, to, reading: Broken::Far, writing: Broken::Near, count }.run(mover)
    }
}

impl Way<'_> {
    fn run(&self, mover: Mover) -> Result<(), Broken> {
        let done = match mover {
            Mover::Splice => self.splice(),
            Mover::Copy => Ok(false),
        };
        if !done? {
            self.copy()?;
        }
        self.to.shutdown(Shutdown::Write).map_err(self.writing)
    }

    /// Says whether all was moved; if not, the kernel cannot splice these, and the rest is still to be copied.
    fn splice(&self) -> Result<bool, Broken> {
        let Ok((out_of, into)) = pipe() else {
            return Ok(false);
        };
        let move_between = |from: &dyn Fn() -> nix::Result<usize>| from().map_err(io::Error::from);
        let flags = SpliceFFlags::SPLICE_F_MOVE;
        let wait = Wait::on(self.from).map_err(self.reading)?;
        let mut first = true;
        loop {
            let fill = || splice(self.from, None, &into, None, PIPE, flags);
            let unable = |error: &io::Error| error.raw_os_error() == Some(Errno::EINVAL as i32);
            let filled = self.line.patiently(self.reading, || {
                wait.for_bytes()?;
                match move_between(&fill) {
                    Err(error) if first && unable(&error) => Ok(None),
                    outcome => outcome.map(Some),
                }
            })?;
            let Some(filled) = filled else {
                return Ok(false);
            };
            if filled == 0 {
                return Ok(true);
            }
            let mut left = filled;
            while left > 0 {
                let drain = || splice(&out_of, None, self.to, None, left, flags);
                let drained = self.line.patiently(self.writing, || match move_between(&drain) {
                    Err(error) if first && unable(&error) => Ok(None),
                    outcome => outcome.map(Some),
                })?;
                let Some(moved) = drained else {
                    // What the pipe holds was taken from the socket and must go on.
                    self.empty(&out_of, left)?;
                    return Ok(false);
                };
                left -= moved;
                (self.count)(moved);
                first = false;
            }
        }
    }

    /// Writes what is left in the pipe.
    fn empty(&self, pipe: &OwnedFd, left: usize) -> Result<(), Broken> {
        let mut buffer = vec![0; left];
        let mut filled = 0;
        while filled < left {
            let length = nix::unistd::read(pipe, &mut buffer[filled..]);
            filled += length.map_err(|errno| (self.reading)(errno.into()))?;
        }
        self.write(&buffer)
    }

    fn copy(&self) -> Result<(), Broken> {
        let mut buffer = vec![0; BUFFER];
        let wait = Wait::on(self.from).map_err(self.reading)?;
        loop {
            let read = || {
                wait.for_bytes()?;
                (&mut &*self.from).read(&mut buffer)
            };
            match self.line.patiently(self.reading, read)? {
                0 => return Ok(()),
                length => self.write(&buffer[..length])?,
            }
        }
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let length = self.line.patiently(self.writing, || (&mut &*self.to).write(bytes))?;
            (self.count)(length);
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

/// The two ends of a pipe, the reading one first.
fn pipe() -> nix::Result<(OwnedFd, OwnedFd)> {
    let (out_of, into) = pipe2(OFlag::O_CLOEXEC)?;
    // A smaller pipe works too.
    let _ = fcntl(&into, FcntlArg::F_SETPIPE_SZ(i32::try_from(PIPE).unwrap_or(i32::MAX)));
    Ok((out_of, into))
}
