//! Bytes in both directions between two sockets, until both have said all or one of them breaks.
//!
//! Each direction has a thread of its own that blocks in the kernel: the kernel's scheduler then decides who goes first, and a channel
//! with a page that a guest waits for does not queue behind one that moves gigabytes. A direction that ends hands its end on (half-close);
//! one that breaks cuts the line, which wakes the other.
//!
//! `near` is this node's side of a connection, `far` the other node's.

use std::sync::Arc;
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

impl Joint {
    fn sent(&self, bytes: usize) {
        self.line.moved(bytes);
        self.counters.add_sent(bytes);
    }

    fn received(&self, bytes: usize) {
        self.line.moved(bytes);
        self.counters.add_received(bytes);
    }

    /// Runs both directions to their ends: `send` on a new thread, `receive` on this one.
    pub(crate) fn run(
        &self,
        send: impl FnOnce() -> Result<(), Broken> + Send,
        receive: impl FnOnce() -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let _open = self.counters.enter();
        let cut_if_broken = |outcome: Result<(), Broken>| outcome.inspect_err(|_| self.line.cut());
        thread::scope(|scope| {
            let sending = thread::Builder::new().name("tunnel-send".to_owned()).stack_size(STACK);
            let sending = sending.spawn_scoped(scope, || cut_if_broken(send()));
            let sending = sending.map_err(|error| {
                self.line.cut();
                Broken::Thread(error)
            })?;
            let received = cut_if_broken(receive());
            match sending.join() {
                // The first error is the cause; the other is only the cut.
                Ok(sent) => received.and(sent),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}
