//! Who gets which address.
//!
//! An owner keeps what it has: it gets the same addresses however often it asks. Others get what nobody has and what has
//! rested; a wanted address or one that the round comes to. It is one address of every range of the pool, or none at all.
//! Cost: the addresses that are taken, never those that there are. It decides; the one who writes the objects must still
//! find that nobody was faster.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::ledger::{Holding, Ledger, Rest};
use crate::pool::{Exclusion, Field, Standing};
use crate::{Interval, Network, Pool, PoolRange};

mod usage;

pub use usage::{Usage, usage};

/// Who asks, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a, Owner> {
    pub owner: &'a Owner,
    /// Addresses that it must be, at most one of a range; the other ranges are free to choose.
    pub wanted: &'a [IpAddr],
    pub start: Start<'a>,
}

/// Where to begin to look for a free address.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// At the lowest, as whereabouts does.
    Lowest,
    /// After the address of each range that was given last: a freed one is used again as late as can be.
    After(&'a [IpAddr]),
    /// Anywhere, by a number of the asker's: those who ask at the same time seldom collide.
    Spread(u128),
}

/// The addresses, in the order of the pool's ranges, or why there are none.
pub type Decision<Owner> = Result<Vec<Choice>, Refusal<Owner>>;

/// A chosen address, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub address: IpAddr,
    pub network: Network,
    pub gateway: Option<IpAddr>,
    pub taking: Taking,
}

/// `address/length`, as it is given to an interface.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.network.prefix_length())
    }
}

/// What has to be written to have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Nothing: the owner has it.
    Kept,
    /// A new record: nothing is known of it.
    New,
    /// The record of one that has rested, changed.
    Rested,
}

/// Why no address is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal<Owner> {
    #[error("{address} is taken by {by}")]
    Taken { address: IpAddr, by: Owner },
    #[error("{address} was released a short while ago and can be given in {} s", seconds(*wait))]
    Resting { address: IpAddr, until: SystemTime, wait: Duration },
    #[error("{address} is outside of {ranges}, which the pool gives")]
    OutOfRange { address: IpAddr, ranges: crate::AddressSet },
    #[error("{address} is never given: {why}")]
    Excluded { address: IpAddr, why: Exclusion },
    #[error("{one} and {two} are both of {field}, which gives one address")]
    TwoOfOneRange { one: IpAddr, two: IpAddr, field: Field },
    #[error("{held} is held already, so {wanted} cannot be had before it is released")]
    HoldsAnother { held: IpAddr, wanted: IpAddr },
    #[error("{network} has no free address: {usage}")]
    Exhausted { field: Field, network: Network, usage: Box<Usage> },
}

fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Decides which addresses an owner gets.
pub fn decide<Owner: Ord + Clone>(
    pool: &Pool,
    ledger: &Ledger<Owner>,
    request: &Request<'_, Owner>,
    now: SystemTime,
) -> Decision<Owner> {
    let held = held(pool, ledger, request);
    let wanted = wanted(pool, &held, request.wanted)?;
    let ranges = || pool.ranges().iter().zip(held.iter().zip(&wanted));
    // All that was asked for by name before anything is chosen: the answer to a wrong wish is not that the pool is full.
    for (_, (held, wanted)) in ranges() {
        match (*held, *wanted) {
            (Some(held), Some(wanted)) if held != wanted => {
                return Err(Refusal::HoldsAnother { held, wanted });
            }
            (None, Some(wanted)) => {
                taking(ledger, wanted, now)?;
            }
            _ => {}
        }
    }
    let choices = ranges().map(|(range, (held, wanted))| {
        let (address, taking) = match (*held, *wanted) {
            (Some(held), _) => (held, Taking::Kept),
            (None, Some(wanted)) => (wanted, taking(ledger, wanted, now)?),
            (None, None) => free(range, ledger, request.start, now).ok_or_else(|| Refusal::Exhausted {
                field: range.field(),
                network: range.network(),
                usage: Box::new(usage(range, ledger, now)),
            })?,
        };
        Ok(Choice { address, network: range.network(), gateway: range.gateway(), taking })
    });
    choices.collect()
}

/// The address of each range that the owner has. A pool may have changed since: an address that is not given any more, but
/// is of a range's network, stays with its owner.
/// Of two in one range, the wanted one counts.
fn held<Owner: Ord + Clone>(
    pool: &Pool,
    ledger: &Ledger<Owner>,
    request: &Request<'_, Owner>,
) -> Vec<Option<IpAddr>> {
    let mut left: Vec<IpAddr> = ledger.owned_by(request.owner).collect();
    left.sort_by_key(|address| !request.wanted.contains(address));
    let mut take = |fits: &dyn Fn(IpAddr) -> bool| {
        let position = left.iter().position(|address| fits(*address))?;
        Some(left.remove(position))
    };
    let mut held: Vec<Option<IpAddr>> =
        pool.ranges().iter().map(|range| take(&|address| range.allocatable().contains(address))).collect();
    for (range, held) in pool.ranges().iter().zip(&mut held) {
        *held = held.or_else(|| take(&|address| range.network().contains(address)));
    }
    held
}

/// The address of each range that is asked for by name.
fn wanted<Owner>(
    pool: &Pool,
    held: &[Option<IpAddr>],
    asked: &[IpAddr],
) -> Result<Vec<Option<IpAddr>>, Refusal<Owner>> {
    let mut wanted: Vec<Option<IpAddr>> = vec![None; held.len()];
    for &address in asked {
        let position = held
            .iter()
            .position(|held| *held == Some(address))
            .or_else(|| pool.ranges().iter().position(|range| range.allocatable().contains(address)))
            .ok_or_else(|| not_given(pool, address))?;
        match wanted[position].replace(address) {
            Some(one) if one != address => {
                return Err(Refusal::TwoOfOneRange {
                    one,
                    two: address,
                    field: pool.ranges()[position].field(),
                });
            }
            _ => {}
        }
    }
    Ok(wanted)
}

fn not_given<Owner>(pool: &Pool, address: IpAddr) -> Refusal<Owner> {
    let why = pool.ranges().iter().find_map(|range| match range.standing(address) {
        Standing::Excluded(why) => Some(why),
        Standing::Allocatable | Standing::Foreign | Standing::OutOfBounds => None,
    });
    why.map_or_else(
        || {
            let ranges = pool.ranges().iter().map(PoolRange::bounds).collect();
            Refusal::OutOfRange { address, ranges }
        },
        |why| Refusal::Excluded { address, why },
    )
}

/// How an address can be taken that the asker does not have.
fn taking<Owner: Ord + Clone>(
    ledger: &Ledger<Owner>,
    address: IpAddr,
    now: SystemTime,
) -> Result<Taking, Refusal<Owner>> {
    match ledger.holding(address) {
        None => Ok(Taking::New),
        Some(Holding::Owned(by)) => Err(Refusal::Taken { address, by: by.clone() }),
        Some(Holding::Released(rest)) => rest.until(now).map_or(Ok(Taking::Rested), |until| {
            let wait = until.duration_since(now).unwrap_or_default();
            Err(Refusal::Resting { address, until, wait })
        }),
    }
}

/// The first free address of a round through the range.
fn free<Owner: Ord + Clone>(
    range: &PoolRange,
    ledger: &Ledger<Owner>,
    start: Start<'_>,
    now: SystemTime,
) -> Option<(IpAddr, Taking)> {
    let allocatable = range.allocatable();
    let start = match start {
        Start::Lowest => None,
        Start::After(last) => (last.iter().find(|last| range.network().contains(**last)))
            .and_then(|last| allocatable.next_round(*last)),
        Start::Spread(number) => {
            number.checked_rem(allocatable.count()).and_then(|position| allocatable.nth(position))
        }
    };
    let start = start.or_else(|| allocatable.nth(0))?;
    allocatable.round_from(start).find_map(|interval| free_in(&interval, ledger, now))
}

/// The lowest free address of an interval: the end of a run of taken ones.
fn free_in<Owner: Ord + Clone>(
    interval: &Interval,
    ledger: &Ledger<Owner>,
    now: SystemTime,
) -> Option<(IpAddr, Taking)> {
    let mut candidate = interval.first();
    for (address, holding) in ledger.within(interval) {
        if candidate < address {
            break;
        }
        if matches!(holding, Holding::Released(rest) if rest.until(now).is_none()) {
            return Some((address, Taking::Rested));
        }
        candidate = interval.after(address)?;
    }
    Some((candidate, Taking::New))
}

/// What becomes of an address that someone releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release<Owner> {
    /// It rests from now on; this is to be noted.
    Rests(Holding<Owner>),
    /// It was released before, or never given: nothing is to be done, so a release can be repeated.
    NotHeld,
    /// It is another's by now, who keeps it: a late release must not take it away.
    Anothers(Owner),
}

/// Decides what becomes of an address that its owner, or who takes itself for it, releases.
pub fn release<Owner: Ord + Clone>(
    ledger: &Ledger<Owner>,
    owner: &Owner,
    address: IpAddr,
    rest: Rest,
) -> Release<Owner> {
    match ledger.holding(address) {
        Some(Holding::Owned(by)) if by == owner => Release::Rests(Holding::Released(rest)),
        Some(Holding::Owned(by)) => Release::Anothers(by.clone()),
        Some(Holding::Released(_)) | None => Release::NotHeld,
    }
}

#[cfg(test)]
mod tests;
