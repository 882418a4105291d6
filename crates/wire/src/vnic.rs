//! A vNIC: its name, and what its attachment to a network gave.
//!
//! Names are checked when they are made, so that a name that was read can be used in a path, a file or a command line.

use std::{fmt, net::IpAddr, str::FromStr};

use api::mac::MacAddress;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::text;

/// A name that breaks its rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Of a vNIC.
    #[error(
        "{name:?} is not the name of a vNIC: expected 1 to 63 letters, digits, dashes and underscores of ASCII"
    )]
    Vnic {
        /// What was given.
        name: String,
    },
    /// Of an interface.
    #[error(
        "{name:?} is not the name of an interface: expected 1 to 15 printable characters of ASCII without slash, colon, percent sign and quotes"
    )]
    Interface {
        /// What was given.
        name: String,
    },
}

/// The name of a vNIC, as the VM's spec has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VnicName(String);

/// The name of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

impl VnicName {
    fn allowed(name: &str) -> bool {
        let character = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&name.len()) && name.bytes().all(character)
    }
}

impl InterfaceName {
    fn allowed(name: &str) -> bool {
        let character = |byte: u8| byte.is_ascii_graphic() && !br#"/:%"'<>&"#.contains(&byte);
        (1..=15).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(character)
    }
}

/// What both kinds of name can do.
macro_rules! name {
    ($name:ident, $error:ident) => {
        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(name: String) -> Result<Self, NameError> {
                if Self::allowed(&name) { Ok(Self(name)) } else { Err(NameError::$error { name }) }
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                name.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl $name {
            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(VnicName, Vnic);
name!(InterfaceName, Interface);

/// A vNIC that is attached to its network, and what the network gave it. Without addresses it is layer 2 only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vnic {
    /// Which vNIC.
    pub name: VnicName,
    /// Its interface in the pod.
    pub interface: InterfaceName,
    /// The Ethernet address that the network expects; none: it does not care.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Addresses, the first of a family being the one that counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<VnicAddress>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<VnicRoute>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
    /// Largest packet; none: the interface's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// An address that a network gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicAddress {
    /// The address, with the length of its network's prefix.
    #[serde(with = "text")]
    pub address: IpNet,
    /// The gateway of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route that a network gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicRoute {
    /// Where to.
    #[serde(with = "text")]
    pub destination: IpNet,
    /// By which gateway; none: that of the address of its family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// Name servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of the servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IpAddr>,
    /// Domains that short names are looked up in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
}

impl Dns {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_mean_something_else_are_refused() {
        for name in ["", "a b", "a/b", "../etc", "a\n", "ä", "a,b", "a=b", &"x".repeat(64)] {
            assert!(name.parse::<VnicName>().is_err(), "{name:?}");
        }
        for name in ["", ".", "..", "a b", "a/b", "a:b", "v%d", "a'", "<a>", "sixteen-letters!", "a\n"] {
            assert!(name.parse::<InterfaceName>().is_err(), "{name:?}");
        }
        for name in ["default", "net_1", "A-9", &"x".repeat(63)] {
            assert!(name.parse::<VnicName>().is_ok(), "{name:?}");
        }
        for name in ["vnic0", "pod16477688c0e", "eth0.100", "net@1"] {
            assert!(name.parse::<InterfaceName>().is_ok(), "{name:?}");
        }
    }
}
