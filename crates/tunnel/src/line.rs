//! An open connection as its owner sees it: something that moves, that may be idle, and that can be cut.
//!
//! The bytes are moved by threads that block in the kernel. A line holds the sockets that those threads use, so that others can
//! end it: a socket that is shut down wakes whoever waits on it. Invariant: once cut, a line's sockets are shut down, also those
//! that it is given later.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::Socket;
use tokio::sync::watch;

use crate::error::Broken;

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Bytes that moved, in either direction: a line is idle when this stands still.
    moved: AtomicU64,
    sockets: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    cut: bool,
    sockets: Vec<Arc<Socket>>,
}

impl Line {
    pub(crate) fn hold(&self, socket: Socket) -> Arc<Socket> {
        let socket = Arc::new(socket);
        let mut held = self.held();
        if held.cut {
            shut(&socket);
        }
        held.sockets.push(Arc::clone(&socket));
        socket
    }

    pub(crate) fn cut(&self) {
        let mut held = self.held();
        held.cut = true;
        held.sockets.iter().for_each(|socket| shut(socket));
    }

    pub(crate) fn moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Repeats an operation that ran into the socket's timeout, which is the idle timeout, for as long as bytes still moved
    /// meanwhile in the other direction.
    pub(crate) fn patiently<T>(
        &self,
        failed: fn(io::Error) -> Broken,
        mut operation: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Broken> {
        loop {
            let before = self.moved.load(Ordering::Relaxed);
            match operation() {
                Ok(done) => return Ok(done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.moved.load(Ordering::Relaxed) == before {
                        return Err(Broken::Idle);
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shut(socket: &Socket) {
    // It fails only on a socket that is not connected, or no longer: what was wanted.
    let _ = socket.shutdown(Shutdown::Both);
}

/// The lines that are open, and the means to wait for their end.
#[derive(Debug)]
pub(crate) struct Lines {
    open: Mutex<(u64, HashMap<u64, Arc<Line>>)>,
    count: watch::Sender<usize>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { open: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl Lines {
    /// Counts the line as open until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>, line: &Arc<Line>) -> OpenLine {
        let mut open = self.open();
        open.0 += 1;
        let number = open.0;
        open.1.insert(number, Arc::clone(line));
        self.count.send_replace(open.1.len());
        OpenLine { lines: Arc::clone(self), number }
    }

    pub(crate) fn cut(&self) {
        self.open().1.values().for_each(|line| line.cut());
    }

    /// Waits until none is open; cuts those that still are after `patience`.
    pub(crate) async fn drain(&self, patience: Duration) {
        let mut count = self.count.subscribe();
        // The sender lives as long as `self`: waiting does not fail.
        if tokio::time::timeout(patience, count.wait_for(|open| *open == 0)).await.is_err() {
            self.cut();
            let _ = count.wait_for(|open| *open == 0).await;
        }
    }

    fn open(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<Line>>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct OpenLine {
    lines: Arc<Lines>,
    number: u64,
}

impl Drop for OpenLine {
    fn drop(&mut self) {
        let mut open = self.lines.open();
        open.1.remove(&self.number);
        self.lines.count.send_replace(open.1.len());
    }
}
