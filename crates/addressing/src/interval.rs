//! Addresses as numbers, and intervals of them.
//!
//! An interval has at least one address, and all of one family; both ends belong to it. Arithmetic is on the ends
//! alone, so the whole of IPv6 costs what one address costs. Nothing here may overflow at either end of a family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// IPv4 or IPv6. Families sort as `IpAddr` does: IPv4 first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Bits of an address.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// The number of the highest address.
    pub(crate) fn highest(self) -> u128 {
        match self {
            Self::V4 => u128::from(u32::MAX),
            Self::V6 => u128::MAX,
        }
    }

    pub(crate) fn address(self, number: u128) -> IpAddr {
        match self {
            // Numbers are checked where they are made; were one too large, the highest address is the nearest.
            Self::V4 => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            Self::V6 => Ipv6Addr::from_bits(number).into(),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// All addresses from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    family: Family,
    first: u128,
    last: u128,
}

impl Interval {
    /// None: the ends are of two families, or the last comes before the first.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let family = Family::of(first);
        let ordered = family == Family::of(last) && first <= last;
        ordered.then(|| Self { family, first: number(first), last: number(last) })
    }

    pub fn single(address: IpAddr) -> Self {
        Self { family: Family::of(address), first: number(address), last: number(address) }
    }

    /// Every address of a family.
    pub fn whole(family: Family) -> Self {
        Self { family, first: 0, last: family.highest() }
    }

    pub(crate) fn of_numbers(family: Family, first: u128, last: u128) -> Option<Self> {
        (first <= last && last <= family.highest()).then_some(Self { family, first, last })
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn first(&self) -> IpAddr {
        self.family.address(self.first)
    }

    pub fn last(&self) -> IpAddr {
        self.family.address(self.last)
    }

    pub(crate) fn numbers(&self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// How many addresses; the whole of IPv6 counts as `u128::MAX`, one less than it has.
    pub fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.family == Family::of(address) && (self.first..=self.last).contains(&number(address))
    }

    /// Whether every address of the other is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.family != other.family {
            return None;
        }
        Self::of_numbers(self.family, self.first.max(other.first), self.last.min(other.last))
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.intersection(other).is_some()
    }

    /// Whether both together are one interval.
    pub(crate) fn touches(&self, other: &Self) -> bool {
        self.family == other.family
            && self.first <= other.last.saturating_add(1)
            && other.first <= self.last.saturating_add(1)
    }

    /// The address at a position; the first is at 0.
    pub fn nth(&self, position: u128) -> Option<IpAddr> {
        (position <= self.last - self.first).then(|| self.family.address(self.first + position))
    }

    /// The address that follows one of this interval, if it is in it too.
    pub(crate) fn after(&self, address: IpAddr) -> Option<IpAddr> {
        let next = number(address).checked_add(1)?;
        (self.contains(address) && next <= self.last).then(|| self.family.address(next))
    }

    /// The network that has exactly these addresses.
    pub fn network(&self) -> Option<Network> {
        let span = self.last - self.first;
        let network = Network::around(self.first(), self.family.bits() - host_bits(span)?)?;
        (network.interval() == *self).then_some(network)
    }
}

/// The bits that a network leaves to its hosts, from the distance between its first and its last address.
fn host_bits(span: u128) -> Option<u8> {
    let ones = span.trailing_ones();
    (ones == u128::BITS - span.leading_zeros()).then(|| u8::try_from(ones).ok()).flatten()
}

/// An address, a network, or `first-last`: the shortest that says it.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first())
        } else if let Some(network) = self.network() {
            write!(f, "{network}")
        } else {
            write!(f, "{}-{}", self.first(), self.last())
        }
    }
}

#[cfg(test)]
mod tests;
