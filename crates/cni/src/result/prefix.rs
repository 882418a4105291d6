//! An address with the length of its prefix, as results write it.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Serialize, Serializer};

/// An address in its subnet, or a subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The address, host bits and all.
    pub address: IpAddr,
    /// Length of the prefix.
    pub length: u8,
}

/// The text is not an address with the length of its prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IP address with /<prefix length>")]
pub struct PrefixError {
    /// What was given.
    pub text: String,
}

impl Prefix {
    /// Whether it is everything: where a default route leads.
    pub fn is_default(self) -> bool {
        self.length == 0 && self.address.is_unspecified()
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || PrefixError { text: text.to_owned() };
        let (address, digits) = text.split_once('/').ok_or_else(refused)?;
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        // `parse` would take "+24".
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let length = digits.and_then(|digits| digits.parse().ok()).filter(|length| *length <= longest);
        Ok(Self { address, length: length.ok_or_else(refused)? })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
