//! What changed in one place, newest last: a bounded history that watches read at their own pace.
//!
//! A reader that falls further behind than the history is told so; it is never buffered for.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use super::Stored;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

/// One committed change. `object` carries the revision of the change, also for a deletion.
#[derive(Debug)]
pub struct Event {
    pub revision: u64,
    pub change: Change,
    pub object: Arc<Stored>,
    pub previous: Option<Arc<Stored>>,
}

/// The history that a reader asks for is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOld {
    /// The newest revision that is no longer kept.
    pub trimmed: u64,
}

#[derive(Debug)]
pub struct Feed {
    kept: RwLock<Kept>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    trimmed: u64,
}

impl Default for Feed {
    fn default() -> Self {
        Self { kept: RwLock::default(), newest: watch::Sender::new(0) }
    }
}

impl Feed {
    /// A feed as it was before a restart.
    pub(super) fn restore(events: VecDeque<Arc<Event>>, trimmed: u64) -> Self {
        let newest = events.back().map_or(trimmed, |event| event.revision);
        Self { kept: RwLock::new(Kept { events, trimmed }), newest: watch::Sender::new(newest) }
    }

    /// Appends an event; returns the revisions that fell out of the history.
    pub(super) fn push(&self, event: Arc<Event>, history: usize) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.events.push_back(event);
        while kept.events.len() > history {
            if let Some(oldest) = kept.events.pop_front() {
                kept.trimmed = oldest.revision;
            }
        }
    }

    /// The revisions that the next `incoming` events will push out.
    pub(super) fn would_trim(&self, incoming: usize, history: usize) -> Vec<u64> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let excess = (kept.events.len() + incoming).saturating_sub(history);
        kept.events.iter().take(excess).map(|event| event.revision).collect()
    }

    /// Wakes readers once the view shows what was pushed.
    pub(super) fn announce(&self, revision: u64) {
        self.newest.send_replace(revision);
    }

    /// A receiver that changes with every announcement.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Up to `limit` events with `after < revision <= upto`, oldest first.
    pub fn after(&self, after: u64, upto: u64, limit: usize) -> Result<Vec<Arc<Event>>, TooOld> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if after < kept.trimmed {
            return Err(TooOld { trimmed: kept.trimmed });
        }
        let start = kept.events.partition_point(|event| event.revision <= after);
        let wanted = kept.events.range(start..).take_while(|event| event.revision <= upto);
        Ok(wanted.take(limit).cloned().collect())
    }
}
