//! How full a range is.
//!
//! It owns the count that a status shows and that an exhausted pool is explained with; both are the same numbers.

use std::fmt;
use std::time::SystemTime;

use crate::PoolRange;
use crate::ledger::{Holding, Ledger};

/// How full a range is. Only allocatable addresses count: one that was given and then excluded is not missing from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Addresses that can be given.
    pub capacity: u128,
    /// Of those, how many have an owner.
    pub taken: u128,
    /// Of those, how many rest.
    pub resting: u128,
    /// When the first of them has rested.
    pub rested_at: Option<SystemTime>,
}

impl Usage {
    pub fn free(&self) -> u128 {
        self.capacity.saturating_sub(self.taken).saturating_sub(self.resting)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, taken, resting, .. } = self;
        write!(f, "of {capacity} that can be given, {taken} are taken and {resting} are resting")
    }
}

/// Counts how full a range is.
pub fn usage<Owner: Ord + Clone>(range: &PoolRange, ledger: &Ledger<Owner>, now: SystemTime) -> Usage {
    let mut usage = Usage { capacity: range.capacity(), ..Usage::default() };
    for (_, holding) in range.allocatable().intervals().iter().flat_map(|interval| ledger.within(interval)) {
        match holding {
            Holding::Owned(_) => usage.taken += 1,
            Holding::Released(rest) => {
                if let Some(until) = rest.until(now) {
                    usage.resting += 1;
                    usage.rested_at = Some(usage.rested_at.map_or(until, |first| first.min(until)));
                }
            }
        }
    }
    usage
}
