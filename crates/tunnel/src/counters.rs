//! What was counted: bytes of a channel, and connections that were refused. Written by the threads that move bytes, read by
//! anyone at any time. [`Ledger`] has the sums of a node, which outlive migrations, listeners and diallers.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::authorise::Refusal;
use crate::error::DialError;
use crate::route::Channel;

/// Refusals that were logged are remembered up to this many, so that a stranger with many addresses cannot fill memory or disk.
const REMEMBERED: usize = 1024;

/// Of one channel of one migration, all its connections together, seen from this node.
#[derive(Debug, Default)]
pub struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    opened: AtomicU64,
    open: AtomicU64,
    /// What counts the same for more than this channel of this migration.
    sum: Option<Arc<Counters>>,
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
    /// New ones, that add to a sum too.
    fn of(sum: Arc<Self>) -> Self {
        Self { sum: Some(sum), ..Self::default() }
    }

    /// These, and the sum that they add to.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.sum.as_deref())
    }

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
        self.all().for_each(|counters| _ = counters.sent.fetch_add(bytes as u64, Ordering::Relaxed));
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.all().for_each(|counters| _ = counters.received.fetch_add(bytes as u64, Ordering::Relaxed));
    }

    pub(crate) fn enter(&self) -> OpenConnection<'_> {
        for counters in self.all() {
            counters.opened.fetch_add(1, Ordering::Relaxed);
            counters.open.fetch_add(1, Ordering::Relaxed);
        }
        OpenConnection(self)
    }
}

/// Counts a connection as open until it is dropped.
pub(crate) struct OpenConnection<'a>(&'a Counters);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.all().for_each(|counters| _ = counters.open.fetch_sub(1, Ordering::Relaxed));
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

/// What a node has counted since it began, whatever became of the migrations. Clones are the same.
///
/// Its channels are those that were registered or forwarded here, its reasons those that there are: a stranger adds none.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Sums>);

#[derive(Debug, Default)]
struct Sums {
    channels: Mutex<BTreeMap<Channel, Arc<Counters>>>,
    failures: Mutex<BTreeMap<&'static str, u64>>,
    refusals: Arc<Refusals>,
    probes: Arc<Probes>,
}

impl Ledger {
    /// What moved on each channel, both directions, as source and as target.
    pub fn channels(&self) -> BTreeMap<Channel, Traffic> {
        let channels = self.0.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.iter().map(|(channel, counters)| (*channel, counters.traffic())).collect()
    }

    /// Connections from here that could not be made, by [`DialError::name`].
    pub fn failures(&self) -> BTreeMap<&'static str, u64> {
        self.0.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.0.refusals
    }

    pub fn probes(&self) -> &Arc<Probes> {
        &self.0.probes
    }

    /// Counters for one channel of one migration.
    pub(crate) fn counters(&self, channel: Channel) -> Arc<Counters> {
        let mut channels = self.0.channels.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::new(Counters::of(Arc::clone(channels.entry(channel).or_default())))
    }

    pub(crate) fn add_failure(&self, error: &DialError) {
        let mut failures = self.0.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry(error.name()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_outlives_what_it_is_the_sum_of() {
        let ledger = Ledger::default();
        let (one, two) = (ledger.counters(Channel::MEMORY), ledger.counters(Channel::MEMORY));
        one.add_sent(5);
        let open = two.enter();
        two.add_received(7);
        assert_eq!(one.traffic(), Traffic { sent: 5, ..Traffic::default() });
        let sum = || ledger.channels()[&Channel::MEMORY];
        assert_eq!(sum(), Traffic { sent: 5, received: 7, opened: 1, open: 1 });
        drop(open);
        drop((one, two));
        assert_eq!(sum(), Traffic { sent: 5, received: 7, opened: 1, open: 0 });
        ledger.add_failure(&DialError::NoToken);
        assert_eq!(ledger.failures(), [("no_token", 1)].into());
    }

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
