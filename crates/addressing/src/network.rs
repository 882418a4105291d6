//! A network in CIDR notation.
//!
//! The base never has host bits set: text that has them is a question to whoever wrote it (see [`crate::text`]).
//! What is usable is decided here once, for those who count addresses and those who give them; counted in two ways,
//! a network is admitted that then lacks an address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::interval::{Family, Interval, number};
use crate::text::{self, TextError};

/// A network: a base address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    family: Family,
    base: u128,
    prefix_length: u8,
}

impl Network {
    /// The network of that prefix length that has the address. None: the family has no such length.
    pub fn around(address: IpAddr, prefix_length: u8) -> Option<Self> {
        let family = Family::of(address);
        let host_bits = family.bits().checked_sub(prefix_length)?;
        Some(Self { family, base: number(address) & !span(host_bits), prefix_length })
    }

    /// The smallest network that has every address of an interval.
    pub fn covering(interval: &Interval) -> Self {
        let (first, last) = interval.numbers();
        let family = interval.family();
        // What differs between the ends is the host's part.
        let shared = (first ^ last).leading_zeros().saturating_sub(u128::BITS - u32::from(family.bits()));
        let prefix_length = u8::try_from(shared).unwrap_or(0);
        Self { family, base: first & !span(family.bits() - prefix_length), prefix_length }
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    /// The lowest address: the network address of IPv4, the anycast address of the routers of IPv6.
    pub fn base(&self) -> IpAddr {
        self.family.address(self.base)
    }

    /// The highest address: the broadcast address of IPv4.
    pub fn top(&self) -> IpAddr {
        self.interval().last()
    }

    /// Every address of the network, usable or not.
    pub fn interval(&self) -> Interval {
        let top = self.base | span(self.family.bits() - self.prefix_length);
        Interval::of_numbers(self.family, self.base, top).unwrap_or(Interval::single(self.base()))
    }

    /// The addresses that a host can have: all but the lowest and the highest, in both families. IPv6 has no broadcast,
    /// so its highest could be given; whereabouts does not, and a range means the same here.
    /// None: a network of one or two addresses.
    pub fn usable(&self) -> Option<Interval> {
        let (first, last) = self.interval().numbers();
        (last - first >= 2).then(|| Interval::of_numbers(self.family, first + 1, last - 1)).flatten()
    }

    pub fn first_usable(&self) -> Option<IpAddr> {
        self.usable().map(|usable| usable.first())
    }

    pub fn last_usable(&self) -> Option<IpAddr> {
        self.usable().map(|usable| usable.last())
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.interval().contains(address)
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.interval().overlaps(&other.interval())
    }
}

/// The distance between the first and the last address of so many bits.
fn span(host_bits: u8) -> u128 {
    u128::MAX.checked_shr(u128::BITS - u32::from(host_bits)).unwrap_or(0)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base(), self.prefix_length)
    }
}

/// Strict: host bits are refused.
impl FromStr for Network {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        text::network(text)?.strictly()
    }
}

#[cfg(test)]
mod tests;
