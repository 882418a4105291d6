//! Views that a paged list still needs: a page continues in the state in which the first page was read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::View;

/// As long as the real server keeps history.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// A view shares what did not change, so many are cheap; this bounds what changed since.
const KEPT: usize = 128;

#[derive(Default)]
pub(super) struct Snapshots(Mutex<VecDeque<(Instant, Arc<View>)>>);

impl Snapshots {
    /// Keeps a view for later pages.
    pub(super) fn keep(&self, view: &Arc<View>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(since, known)| since.elapsed() < KEPT_FOR && known.revision != view.revision);
        while kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((Instant::now(), view.clone()));
    }

    /// The view of exactly this revision, if it is still kept.
    pub(super) fn at(&self, revision: u64) -> Option<Arc<View>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = kept.iter().filter(|(since, _)| since.elapsed() < KEPT_FOR);
        fresh
            .map(|(_, view)| view)
            .find(|view| view.revision == revision)
            .cloned()
    }
}
