//! Addresses, networks and ranges as people write them.
//!
//! An error names the text and the rule, and where one can guess, what was meant. Text that whereabouts accepts although
//! it says two things (host bits in a network) is read as whereabouts reads it, with the fault beside the value: the
//! caller decides whether that is enough. Nothing is trimmed or completed.

use std::net::{IpAddr, Ipv4Addr};

use crate::interval::{Family, Interval};
use crate::network::Network;

/// Why a text does not say which addresses it means.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("{text:?} is not an IP address")]
    Address { text: String },
    #[error("{end:?} in {text:?} is not an IP address: a range is written as first-last")]
    End { text: String, end: String },
    #[error("{text:?} has a leading zero, which some read as octal: did you mean {meant}?")]
    LeadingZero { text: String, meant: Ipv4Addr },
    #[error("{text:?} is an IPv4 address written as IPv6: did you mean {meant}?")]
    Mapped { text: String, meant: Ipv4Addr },
    #[error("{text:?} lacks the length of its prefix: a network is written as address/length")]
    NoPrefixLength { text: String },
    #[error("{text:?} has no valid prefix length: for {family} it is a number from 0 to {}", family.bits())]
    PrefixLength { text: String, family: Family },
    #[error("{text:?} has host bits set: did you mean {meant}?")]
    HostBits { text: String, meant: Network },
    #[error("{text:?} begins in one family and ends in the other")]
    TwoFamilies { text: String },
    #[error("{text:?} ends before it begins")]
    Backwards { text: String },
    #[error("{text:?} begins outside of {network}, the network of its end")]
    StartOutside { text: String, network: Network },
}

/// A value, and what is wrong with the text that it could be read from all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    pub value: T,
    pub fault: Option<TextError>,
}

impl<T> Read<T> {
    fn clean(value: T) -> Self {
        Self { value, fault: None }
    }

    /// The value, if nothing was wrong.
    pub fn strictly(self) -> Result<T, TextError> {
        self.fault.map_or(Ok(self.value), Err)
    }
}

/// What the `range` of a pool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeText {
    pub network: Network,
    /// The ends, of the form `first-last/length`. The last may come before the first.
    pub ends: Option<(IpAddr, IpAddr)>,
}

/// Reads an address.
pub fn address(text: &str) -> Result<IpAddr, TextError> {
    match text.parse() {
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(meant) => Err(TextError::Mapped { text: text.to_owned(), meant }),
            None => Ok(address.into()),
        },
        Ok(address) => Ok(address),
        Err(_) => Err(without_leading_zeros(text).map_or_else(
            || TextError::Address { text: text.to_owned() },
            |meant| TextError::LeadingZero { text: text.to_owned(), meant },
        )),
    }
}

fn without_leading_zeros(text: &str) -> Option<Ipv4Addr> {
    let octets: Option<Vec<u8>> = text
        .split('.')
        .map(|octet| octet.bytes().all(|byte| byte.is_ascii_digit()).then(|| octet.parse().ok()).flatten())
        .collect();
    <[u8; 4]>::try_from(octets?).ok().map(Ipv4Addr::from)
}

/// Reads one end of a range.
fn end(text: &str, end: &str) -> Result<IpAddr, TextError> {
    address(end).map_err(|error| match error {
        TextError::Address { text: end } => TextError::End { text: text.to_owned(), end },
        other => other,
    })
}

/// Reads `address/length`; host bits are a fault.
pub fn network(text: &str) -> Result<Read<Network>, TextError> {
    let (address, network) = address_and_network(text)?;
    let fault =
        (address != network.base()).then(|| TextError::HostBits { text: text.to_owned(), meant: network });
    Ok(Read { value: network, fault })
}

fn address_and_network(text: &str) -> Result<(IpAddr, Network), TextError> {
    let Some((base, length)) = text.split_once('/') else {
        // What is no address either has a deeper fault than the missing length.
        address(text)?;
        return Err(TextError::NoPrefixLength { text: text.to_owned() });
    };
    let address = address(base)?;
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| length.parse().ok())
        .flatten()
        .and_then(|length| Network::around(address, length))
        .map(|network| (address, network))
        .ok_or_else(|| TextError::PrefixLength { text: text.to_owned(), family: Family::of(address) })
}

/// Reads what is not to be given: an address, a network, or `first-last`. Host bits are a fault.
pub fn exclusion(text: &str) -> Result<Read<Interval>, TextError> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (end(text, first)?, end(text, last)?);
        if Family::of(first) != Family::of(last) {
            return Err(TextError::TwoFamilies { text: text.to_owned() });
        }
        let interval = Interval::new(first, last);
        return interval.map(Read::clean).ok_or_else(|| TextError::Backwards { text: text.to_owned() });
    }
    if text.contains('/') {
        let Read { value, fault } = network(text)?;
        return Ok(Read { value: value.interval(), fault });
    }
    address(text).map(|address| Read::clean(Interval::single(address)))
}

/// Reads the `range` of a pool: a network, or `first-last/length`. Host bits and an end before the start are faults.
pub fn range(text: &str) -> Result<Read<RangeText>, TextError> {
    let Some((first, rest)) = text.split_once('-') else {
        let Read { value, fault } = network(text)?;
        return Ok(Read { value: RangeText { network: value, ends: None }, fault });
    };
    let first = end(text, first)?;
    let (last, network) = address_and_network(rest)?;
    if Family::of(first) != network.family() {
        return Err(TextError::TwoFamilies { text: text.to_owned() });
    }
    if !network.contains(first) {
        return Err(TextError::StartOutside { text: text.to_owned(), network });
    }
    let fault = (last < first).then(|| TextError::Backwards { text: text.to_owned() });
    Ok(Read { value: RangeText { network, ends: Some((first, last)) }, fault })
}

#[cfg(test)]
mod tests;
