//! What was counted: bytes of a channel, and connections that were refused. Written by the threads that move bytes, read by
//! anyone at any time.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::authorise::Refusal;

/// Refusals that were logged are remembered up to this many, so that a stranger with many addresses cannot fill memory or disk.
const REMEMBERED: usize = 1024;

/// Of one channel of one migration, all its connections together, seen from this node.
#[derive(Debug, Default)]
pub struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    opened: AtomicU64,
    open: AtomicU64,
}

/// The counters at one moment. Bytes are the guest's: what TLS adds is not in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that went to the other node.
    pub sent: u64,
    /// Bytes that came from the other node.
    pub received: u64,
    /// Connections so far.
    pub opened: u64,
    /// Connections now.
    pub open: u64,
}

impl Counters {
    pub fn traffic(&self) -> Traffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            sent: read(&self.sent),
            received: read(&self.received),
            opened: read(&self.opened),
            open: read(&self.open),
        }
    }

    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self) -> OpenConnection<'_> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }
}

/// Counts a connection as open until it is dropped.
pub(crate) struct OpenConnection<'a>(&'a Counters);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Questions of other nodes whether this one can be reached, that were answered.
#[derive(Debug, Default)]
pub struct Probes(AtomicU64);

impl Probes {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Connections that a listener did not let in, by reason.
#[derive(Debug, Default)]
pub struct Refusals {
    state: Mutex<RefusalState>,
}

#[derive(Debug, Default)]
struct RefusalState {
    counts: BTreeMap<Refusal, u64>,
    logged: HashSet<(Refusal, IpAddr)>,
}

impl Refusals {
    pub fn count(&self, reason: Refusal) -> u64 {
        self.counts().get(&reason).copied().unwrap_or_default()
    }

    /// Those that happened.
    pub fn counts(&self) -> BTreeMap<Refusal, u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// Counts one; says whether it is the first for this reason from this peer, and so worth a line in the log.
    pub(crate) fn add(&self, reason: Refusal, peer: IpAddr) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.counts.entry(reason).or_default() += 1;
        state.logged.len() < REMEMBERED && state.logged.insert((reason, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_counted_each_time_and_logged_once_for_each_reason_and_peer() {
        let refusals = Refusals::default();
        let (one, two) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        assert!(refusals.add(Refusal::Token, one));
        assert!(!refusals.add(Refusal::Token, one));
        assert!(refusals.add(Refusal::Token, two));
        assert!(refusals.add(Refusal::Protocol, one));
        assert_eq!(refusals.count(Refusal::Token), 3);
        assert_eq!(refusals.count(Refusal::Timeout), 0);
        for number in 0..2 * u32::try_from(REMEMBERED).unwrap() {
            refusals.add(Refusal::Handshake, IpAddr::from(number.to_be_bytes()));
        }
        assert!(!refusals.add(Refusal::Handshake, IpAddr::from([255, 0, 0, 1])), "memory is bounded");
    }
}
