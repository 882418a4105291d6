//! Bytes in both directions between two sockets, until both have said all or one of them breaks.
//!
//! Each direction has a thread of its own that blocks in the kernel: the kernel's scheduler then decides who goes first, and a channel
//! with a page that a guest waits for does not queue behind one that moves gigabytes. A direction that ends hands its end on (half-close);
//! one that breaks cuts the line, which wakes the other.
//!
//! `near` is this node's side of a connection, `far` the other node's.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, OnceLock, mpsc};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::Socket;

use crate::counters::Counters;
use crate::crew::Crew;
use crate::error::Broken;
use crate::line::Line;

mod courtesy;
pub(crate) mod encrypted;
pub(crate) mod plain;

/// Two sockets that belong together.
#[derive(Clone)]
pub(crate) struct Joint {
    pub(crate) line: Arc<Line>,
    pub(crate) near: Arc<Socket>,
    pub(crate) far: Arc<Socket>,
    pub(crate) counters: Arc<Counters>,
    /// Who does what this thread does not.
    pub(crate) crew: Crew,
}

/// What the calling thread does itself: whichever comes first, because setting another thread to work takes a while.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Here {
    Sends,
    Receives,
}

impl Joint {
    fn sent(&self, bytes: usize) {
        self.line.moved(bytes);
        self.counters.add_sent(bytes);
    }

    fn received(&self, bytes: usize) {
        self.line.moved(bytes);
        self.counters.add_received(bytes);
    }

    /// Runs both directions to their ends, one on this thread and one on another.
    pub(crate) fn run(
        &self,
        here: Here,
        send: impl FnOnce(&Self) -> Result<(), Broken> + Send + 'static,
        receive: impl FnOnce(&Self) -> Result<(), Broken> + Send + 'static,
    ) -> Result<(), Broken> {
        let _open = self.counters.enter();
        let broke_first = Arc::new(OnceLock::new());
        let send = direction("send", Arc::clone(&broke_first), send);
        let receive = direction("receive", Arc::clone(&broke_first), receive);
        let (sent, received) = match here {
            Here::Sends => swapped(self.side_by_side(receive, send)?),
            Here::Receives => self.side_by_side(send, receive)?,
        };
        match (sent, received) {
            // One is the cause and the other only felt the cut. That the other node said no explains everything.
            (Err(sent), Err(received)) => {
                let told = matches!(received, Broken::Refused | Broken::Alert(_));
                Err(if told || broke_first.get() == Some(&"receive") { received } else { sent })
            }
            (sent, received) => sent.and(received),
        }
    }

    fn side_by_side<T: Send + 'static>(
        &self,
        there: impl FnOnce(&Self) -> T + Send + 'static,
        here: impl FnOnce(&Self) -> T,
    ) -> Result<(T, T), Broken> {
        let (done, outcome) = mpsc::sync_channel(1);
        let joint = self.clone();
        // This side waits for the outcome until it is there.
        let set_to = self.crew.set_to(move || drop(done.send(there(&joint))));
        set_to.map_err(|error| {
            self.line.cut();
            Broken::Thread(error)
        })?;
        let here = here(self);
        let there = outcome.recv().map_err(|_| Broken::Thread(io::Error::other("it panicked")))?;
        Ok((there, here))
    }
}

/// One direction, which cuts the line when it breaks.
fn direction(
    name: &'static str,
    broke_first: Arc<OnceLock<&'static str>>,
    run: impl FnOnce(&Joint) -> Result<(), Broken>,
) -> impl FnOnce(&Joint) -> Result<(), Broken> {
    move |joint| {
        run(joint).inspect_err(|_| {
            broke_first.get_or_init(|| name);
            joint.line.cut();
        })
    }
}

fn swapped<T>((one, other): (T, T)) -> (T, T) {
    (other, one)
}

/// Waits in a poll for something to read, as long as a read would. Who waits in a read of a unix socket is woken for nothing whenever the
/// other side takes what was written to it, and takes the processor from the one who has a message.
struct Wait<'a> {
    socket: &'a Socket,
    patience: PollTimeout,
}

impl<'a> Wait<'a> {
    fn on(socket: &'a Socket) -> io::Result<Self> {
        let patience = socket.read_timeout()?;
        let patience =
            patience.map_or(Ok(PollTimeout::NONE), PollTimeout::try_from).unwrap_or(PollTimeout::MAX);
        Ok(Self { socket, patience })
    }

    fn for_bytes(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], self.patience)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    }
}
