//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an Ethernet address: six pairs of hexadecimal digits with colons or dashes between them"
)]
pub struct InvalidMac {
    pub text: String,
}

impl MacAddress {
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it can be an interface's own: one station, and not all zeros.
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }

    /// The lower half of the IPv6 addresses that follow from it (EUI-64 as RFC 4291 changed it).
    pub fn interface_id(self) -> u64 {
        let (maker, number) = self.0.split_at(3);
        let octets = [maker, &[0xff, 0xfe], number].concat();
        octets.iter().fold(0_u64, |id, octet| id << 8 | u64::from(*octet)) ^ (0x02 << 56)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(out, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(out, ":{byte:02x}"))
    }
}

impl FromStr for MacAddress {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let invalid = || InvalidMac { text: text.to_owned() };
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut pairs = text.split(separator);
        for byte in &mut bytes {
            let pair =
                pairs.next().filter(|pair| pair.len() == 2 && !pair.starts_with('+')).ok_or_else(invalid)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        if pairs.next().is_some() { Err(invalid()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_interface_id_is_what_the_kernel_makes_of_it() {
        let mac = MacAddress([0x52, 0x54, 0x00, 0x12, 0x34, 0x56]);
        assert_eq!(mac.interface_id(), 0x5054_00ff_fe12_3456);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(bytes: [u8; 6]) {
            let mac = MacAddress(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(mac.to_string().to_uppercase().replace(':', "-").parse(), Ok(mac));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "02-00:00:00:00:01",
            "+2:00:00:00:00:01",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
        assert!(!MacAddress::BROADCAST.is_station());
        assert!(!MacAddress([0; 6]).is_station());
    }
}
