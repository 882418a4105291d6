//! Ethernet addresses as the API writes them.
//!
//! It owns parsing and printing; it must never make an address up.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A 48-bit Ethernet address. Reads `02:00:00:aa:bb:cc` and `02-00-00-AA-BB-CC`, writes the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

/// The text is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a MAC address: expected six octets in hexadecimal, such as 02:00:00:12:34:56")]
pub struct MacAddressError {
    /// What was given.
    pub text: String,
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || MacAddressError { text: text.to_owned() };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(refused)?;
            if part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(refused());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() { Err(refused()) } else { Ok(Self(octets)) }
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = &self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|octet| write!(f, ":{octet:02x}"))
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for MacAddress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MacAddress".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{2}(-[0-9a-fA-F]{2}){5})$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one_address() {
        let colons: MacAddress = "02:00:00:aa:bb:cc".parse().unwrap();
        let dashes: MacAddress = "02-00-00-AA-BB-CC".parse().unwrap();
        assert_eq!(colons, dashes);
        assert_eq!(dashes.to_string(), "02:00:00:aa:bb:cc");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "02:00:00:aa:bb",
            "02:00:00:aa:bb:cc:dd",
            "02:00:00:aa:bb:+c",
            "0200.00aa.bbcc",
            "02:00-00:aa:bb:cc",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }
}
