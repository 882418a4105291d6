//! A set of addresses of either family, as intervals.
//!
//! The intervals are sorted, disjoint, and no two of them touch: equal sets are equal values. Every operation costs the
//! number of intervals and not of addresses.

use std::fmt;
use std::net::IpAddr;

use crate::interval::Interval;
use crate::network::Network;

/// A set of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct AddressSet(Vec<Interval>);

impl AddressSet {
    pub fn intervals(&self) -> &[Interval] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many addresses; more than `u128::MAX` count as that many.
    pub fn count(&self) -> u128 {
        self.0.iter().fold(0, |sum, interval| sum.saturating_add(interval.count()))
    }

    /// The interval of the set that has the address.
    pub fn interval_with(&self, address: IpAddr) -> Option<Interval> {
        self.reaching(address).first().copied().filter(|interval| interval.contains(address))
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.interval_with(address).is_some()
    }

    /// Whether every address of the interval is in the set.
    pub fn covers(&self, interval: &Interval) -> bool {
        self.interval_with(interval.first()).is_some_and(|own| own.covers(interval))
    }

    pub fn union(&self, other: &Self) -> Self {
        self.0.iter().chain(&other.0).copied().collect()
    }

    /// The addresses that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.as_slice(), other.0.as_slice());
        let mut both = Vec::new();
        while let ([one, ..], [two, ..]) = (left, right) {
            both.extend(one.intersection(two));
            if one.last() <= two.last() {
                left = &left[1..];
            } else {
                right = &right[1..];
            }
        }
        Self(both)
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The addresses that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.0.as_slice();
        for interval in &self.0 {
            let (mut cursor, last) = interval.numbers();
            while let [hole, rest @ ..] = others {
                if hole.last() < interval.first() {
                    others = rest;
                    continue;
                }
                let Some(hole_here) = hole.intersection(interval) else { break };
                let (hole_first, hole_last) = hole_here.numbers();
                if let Some(before) = hole_first.checked_sub(1) {
                    left.extend(Interval::of_numbers(interval.family(), cursor, before));
                }
                match hole_last.checked_add(1) {
                    Some(next) if next <= last => cursor = next,
                    _ => break,
                }
                others = rest;
            }
            // Unless the last hole reached the end.
            if !others.first().is_some_and(|hole| hole.contains(interval.last())) {
                left.extend(Interval::of_numbers(interval.family(), cursor, last));
            }
        }
        Self(left)
    }

    /// The address at a position, counted from the lowest, which is at 0.
    pub fn nth(&self, mut position: u128) -> Option<IpAddr> {
        for interval in &self.0 {
            if let Some(address) = interval.nth(position) {
                return Some(address);
            }
            // No overflow: a position past the interval is at least its count.
            position -= interval.count();
        }
        None
    }

    /// The lowest address of the set that is this one or higher; IPv6 is higher than IPv4.
    pub fn at_or_after(&self, address: IpAddr) -> Option<IpAddr> {
        self.reaching(address).first().map(|interval| interval.first().max(address))
    }

    /// The next address of the set after this one; after the last comes the first.
    pub fn next_round(&self, address: IpAddr) -> Option<IpAddr> {
        let beyond = |interval: &Interval| interval.after(address).unwrap_or_else(|| interval.first());
        let next = self.reaching(address).iter().map(beyond).find(|next| *next > address);
        next.or_else(|| self.0.first().map(Interval::first))
    }

    /// The same set in the order of a round that starts at an address: what lies from there to the end, then the rest.
    pub fn round_from(&self, start: IpAddr) -> impl Iterator<Item = Interval> {
        let reaching = self.reaching(start);
        let passed = &self.0[..self.0.len() - reaching.len()];
        let split = reaching.first().filter(|interval| interval.contains(start) && interval.first() < start);
        let upper = split.and_then(|interval| Interval::new(start, interval.last()));
        let lower = split.and_then(|interval| {
            let before = crate::interval::number(start).checked_sub(1)?;
            Interval::of_numbers(interval.family(), interval.numbers().0, before)
        });
        let whole = &reaching[usize::from(split.is_some())..];
        upper.into_iter().chain(whole.iter().copied()).chain(passed.iter().copied()).chain(lower)
    }

    /// The intervals that end at this address or higher.
    fn reaching(&self, address: IpAddr) -> &[Interval] {
        &self.0[self.0.partition_point(|interval| interval.last() < address)..]
    }
}

/// Sorts and joins: intervals may come in any order, overlap and repeat.
impl FromIterator<Interval> for AddressSet {
    fn from_iter<T: IntoIterator<Item = Interval>>(intervals: T) -> Self {
        let mut sorted: Vec<Interval> = intervals.into_iter().collect();
        sorted.sort_unstable();
        let mut joined: Vec<Interval> = Vec::with_capacity(sorted.len());
        for next in sorted {
            match joined.last_mut() {
                Some(last) if last.touches(&next) => {
                    *last = Interval::new(last.first(), last.last().max(next.last())).unwrap_or(*last);
                }
                _ => joined.push(next),
            }
        }
        Self(joined)
    }
}

impl FromIterator<IpAddr> for AddressSet {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        addresses.into_iter().map(Interval::single).collect()
    }
}

impl From<Interval> for AddressSet {
    fn from(interval: Interval) -> Self {
        Self(vec![interval])
    }
}

impl From<Network> for AddressSet {
    fn from(network: Network) -> Self {
        network.interval().into()
    }
}

/// The intervals, separated by commas; `none` if it is empty.
impl fmt::Display for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.intervals() else { return f.write_str("none") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|interval| write!(f, ", {interval}"))
    }
}

#[cfg(test)]
mod tests;
