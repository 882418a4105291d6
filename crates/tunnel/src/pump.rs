//! Bytes in both directions between two sockets, until both have said all or one of them breaks.
//!
//! Each direction has a thread of its own that blocks in the kernel: the kernel's scheduler then decides who goes first, and a channel
//! with a page that a guest waits for does not queue behind one that moves gigabytes. A direction that ends hands its end on (half-close);
//! one that breaks cuts the line, which wakes the other.
//!
//! `near` is this node's side of a connection, `far` the other node's.

use std::sync::{Arc, OnceLock};
use std::thread;

use socket2::Socket;

use crate::counters::Counters;
use crate::error::Broken;
use crate::line::Line;

pub(crate) mod encrypted;
pub(crate) mod plain;

/// Enough for a handshake in a debug build; what moves bytes needs far less.
pub(crate) const STACK: usize = 512 << 10;

/// Two sockets that belong together.
pub(crate) struct Joint {
    pub(crate) line: Arc<Line>,
    pub(crate) near: Arc<Socket>,
    pub(crate) far: Arc<Socket>,
    pub(crate) counters: Arc<Counters>,
}

/// What the calling thread does itself: whichever comes first, because starting the other thread takes a while.
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

    /// Runs both directions to their ends, one on this thread and one on a new one.
    pub(crate) fn run(
        &self,
        here: Here,
        send: impl FnOnce() -> Result<(), Broken> + Send,
        receive: impl FnOnce() -> Result<(), Broken> + Send,
    ) -> Result<(), Broken> {
        let _open = self.counters.enter();
        let broke_first = OnceLock::new();
        let send = || self.cut_if_broken(send(), "send", &broke_first);
        let receive = || self.cut_if_broken(receive(), "receive", &broke_first);
        let (sent, received) = match here {
            Here::Sends => swapped(self.side_by_side("tunnel-receive", receive, send)?),
            Here::Receives => self.side_by_side("tunnel-send", send, receive)?,
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

    fn cut_if_broken(
        &self,
        outcome: Result<(), Broken>,
        direction: &'static str,
        broke_first: &OnceLock<&'static str>,
    ) -> Result<(), Broken> {
        outcome.inspect_err(|_| {
            broke_first.get_or_init(|| direction);
            self.line.cut();
        })
    }

    fn side_by_side<T: Send>(
        &self,
        name: &str,
        there: impl FnOnce() -> T + Send,
        here: impl FnOnce() -> T,
    ) -> Result<(T, T), Broken> {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK);
            let thread = thread.spawn_scoped(scope, there).map_err(|error| {
                self.line.cut();
                Broken::Thread(error)
            })?;
            let here = here();
            match thread.join() {
                Ok(there) => Ok((there, here)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

fn swapped<T>((one, other): (T, T)) -> (T, T) {
    (other, one)
}
