//! A pool: the addresses of a network that can be given, one of each range.
//!
//! It owns what is allocatable: usable, between start and end, not excluded, not the gateway. It knows nothing of who has
//! an address. Invariants: every range has at least one allocatable address, and no address is allocatable in two ranges.

use std::net::IpAddr;

use crate::{AddressSet, Interval, Network};

mod problem;
mod read;
mod settings;

pub use problem::{Problem, Problems, Rule};
pub use settings::{Field, Key, PoolSettings, RangeSettings};

/// The addresses of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    network_name: Option<String>,
    ranges: Vec<PoolRange>,
    warnings: Vec<Problem>,
}

impl Pool {
    /// Reads what whereabouts reads, as whereabouts reads it; what that passes over in silence is in [`Self::warnings`].
    pub fn read(settings: &PoolSettings) -> Result<Self, Problems> {
        read::pool(settings)
    }

    /// Reads what says one thing only: a warning is a refusal.
    pub fn read_strictly(settings: &PoolSettings) -> Result<Self, Problems> {
        let mut pool = Self::read(settings)?;
        let warnings = std::mem::take(&mut pool.warnings);
        if warnings.is_empty() { Ok(pool) } else { Err(Problems(warnings)) }
    }

    pub fn network_name(&self) -> Option<&str> {
        self.network_name.as_deref()
    }

    /// At least one. Whoever asks gets an address of each, or none at all.
    pub fn ranges(&self) -> &[PoolRange] {
        &self.ranges
    }

    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Every address that can be given.
    pub fn allocatable(&self) -> AddressSet {
        self.ranges.iter().flat_map(|range| range.allocatable.intervals()).copied().collect()
    }

    /// How many can have their addresses of this pool at once: as many as its smallest range has.
    pub fn capacity(&self) -> u128 {
        self.ranges.iter().map(PoolRange::capacity).min().unwrap_or(0)
    }
}

/// One range of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRange {
    field: Field,
    network: Network,
    bounds: Interval,
    exclusions: AddressSet,
    gateway: Option<IpAddr>,
    allocatable: AddressSet,
}

impl PoolRange {
    /// Where the range is written.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The network that the addresses are given with; larger than the range may be.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The usable addresses between start and end.
    pub fn bounds(&self) -> Interval {
        self.bounds
    }

    /// As written: not only what lies in the bounds.
    pub fn exclusions(&self) -> &AddressSet {
        &self.exclusions
    }

    /// Handed out with the addresses.
    pub fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    pub fn allocatable(&self) -> &AddressSet {
        &self.allocatable
    }

    pub fn capacity(&self) -> u128 {
        self.allocatable.count()
    }

    /// What an address is to this range.
    pub fn standing(&self, address: IpAddr) -> Standing {
        if self.allocatable.contains(address) {
            Standing::Allocatable
        } else if !self.network.contains(address) {
            Standing::Foreign
        } else if self.gateway == Some(address) {
            Standing::Excluded(Exclusion::Gateway)
        } else if !self.network.usable().is_some_and(|usable| usable.contains(address)) {
            Standing::Excluded(Exclusion::EndOfNetwork(self.network))
        } else if let Some(excluded) = self.exclusions.interval_with(address) {
            Standing::Excluded(Exclusion::Listed(excluded))
        } else {
            Standing::OutOfBounds
        }
    }
}

/// What an address is to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can be given.
    Allocatable,
    /// It is of another network.
    Foreign,
    /// It is of the network, before the start or after the end.
    OutOfBounds,
    /// It is never given.
    Excluded(Exclusion),
}

/// Why an address is never given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exclusion {
    #[error("it is the gateway")]
    Gateway,
    #[error("the lowest and the highest address of {0} are never given")]
    EndOfNetwork(Network),
    #[error("{0} is excluded")]
    Listed(Interval),
}

#[cfg(test)]
mod tests;
