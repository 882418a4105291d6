//! Who has which address, and which addresses rest.
//!
//! It owns the two views of the same facts, by address and by owner, and keeps them equal. It is filled from the objects
//! that are the truth; nothing here decides who gets an address (see [`crate::decision`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::Interval;

/// What is known of an address that is not free as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding<Owner> {
    /// It has an owner, who keeps it until it is released.
    Owned(Owner),
    /// It was released, and rests: neighbours may still take it for the former owner's.
    Released(Rest),
}

/// Since when a released address rests, and for how long: it was given with that period, and others may be given with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub since: SystemTime,
    pub period: Duration,
}

impl Rest {
    /// When the address may be given again; none: it has rested. A release in the future, by a clock that is ahead of ours,
    /// rests for longer and never shorter.
    pub fn until(&self, now: SystemTime) -> Option<SystemTime> {
        match self.since.checked_add(self.period) {
            Some(until) => (until > now).then_some(until),
            // A time past what can be said is far off, not over.
            None => Some(self.since.max(now)),
        }
    }
}

/// Who has which address of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger<Owner> {
    holdings: BTreeMap<IpAddr, Holding<Owner>>,
    owned: BTreeMap<Owner, BTreeSet<IpAddr>>,
}

impl<Owner> Default for Ledger<Owner> {
    fn default() -> Self {
        Self { holdings: BTreeMap::new(), owned: BTreeMap::new() }
    }
}

impl<Owner: Ord + Clone> Ledger<Owner> {
    /// Notes what is known of an address now, and returns what was known before.
    pub fn note(&mut self, address: IpAddr, holding: Holding<Owner>) -> Option<Holding<Owner>> {
        let before = self.forget(address);
        if let Holding::Owned(owner) = &holding {
            self.owned.entry(owner.clone()).or_default().insert(address);
        }
        self.holdings.insert(address, holding);
        before
    }

    /// Nothing is known of the address any more: it is free as new.
    pub fn forget(&mut self, address: IpAddr) -> Option<Holding<Owner>> {
        let before = self.holdings.remove(&address)?;
        if let Holding::Owned(owner) = &before
            && let Some(addresses) = self.owned.get_mut(owner)
        {
            addresses.remove(&address);
            if addresses.is_empty() {
                self.owned.remove(owner);
            }
        }
        Some(before)
    }

    pub fn holding(&self, address: IpAddr) -> Option<&Holding<Owner>> {
        self.holdings.get(&address)
    }

    /// The addresses of an owner, lowest first.
    pub fn owned_by(&self, owner: &Owner) -> impl Iterator<Item = IpAddr> {
        self.owned.get(owner).into_iter().flatten().copied()
    }

    /// What is known of the addresses of an interval, lowest first.
    pub fn within(&self, interval: &Interval) -> impl Iterator<Item = (IpAddr, &Holding<Owner>)> {
        let ends = interval.first()..=interval.last();
        self.holdings.range(ends).map(|(address, holding)| (*address, holding))
    }
}

impl<Owner: Ord + Clone> FromIterator<(IpAddr, Holding<Owner>)> for Ledger<Owner> {
    fn from_iter<T: IntoIterator<Item = (IpAddr, Holding<Owner>)>>(known: T) -> Self {
        let mut ledger = Self::default();
        for (address, holding) in known {
            ledger.note(address, holding);
        }
        ledger
    }
}

#[cfg(test)]
mod tests;
