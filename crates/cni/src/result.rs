//! What a plugin answers to ADD, in any version, as one [`Attachment`].
//!
//! It owns reading: every address is an address, every index points at an interface, or the error names the field.
//! Writing is in `render`, the way into a pod's annotation in `status`. Nothing here may panic: the text comes from
//! programs that we did not write.

mod prefix;
mod render;
mod status;

pub use prefix::{Prefix, PrefixError};

use std::net::IpAddr;

use api::multus::NetworkDns;
use serde::Deserialize;
use serde_json::Value;

use crate::version::{UnknownVersion, Version};

/// What an attachment made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attachment {
    /// Interfaces, in the container and on the node.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<InterfaceAddress>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name servers.
    pub dns: NetworkDns,
}

/// An interface that was made or used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: Option<String>,
    /// Its largest packet.
    pub mtu: Option<u32>,
    /// The namespace that it is in; none: the node's.
    pub sandbox: Option<String>,
    /// Socket behind it.
    pub socket_path: Option<String>,
    /// PCI device behind it.
    pub pci_id: Option<String>,
}

/// An address that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: Prefix,
    /// The gateway of its subnet.
    pub gateway: Option<IpAddr>,
    /// Which of [`Attachment::interfaces`] has it.
    pub interface: Option<usize>,
}

/// A route that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: Prefix,
    /// By which next hop; none: by the gateway of an address.
    pub gateway: Option<IpAddr>,
    /// Largest packet on the way.
    pub mtu: Option<u32>,
    /// Segment size to advertise.
    pub advertised_mss: Option<u32>,
    /// Lower is preferred.
    pub priority: Option<i64>,
    /// Routing table.
    pub table: Option<i64>,
    /// Scope of the destination.
    pub scope: Option<i64>,
}

/// Why an answer is no result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// Not JSON of that shape.
    #[error("the answer is not a CNI result")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// Of a version that is not spoken here.
    #[error("the result's cniVersion")]
    Version {
        /// Which.
        #[source]
        source: UnknownVersion,
    },
    /// Not an address with the length of its prefix.
    #[error("{field} of the result")]
    Prefix {
        /// Where.
        field: String,
        /// What was given.
        #[source]
        source: PrefixError,
    },
    /// Not an address.
    #[error("{field} of the result is {value:?}, not an IP address")]
    Address {
        /// Where.
        field: String,
        /// What was given.
        value: String,
    },
    /// An address on an interface that is not listed.
    #[error("{field} of the result is {index}, and there are {interfaces} interfaces")]
    Index {
        /// Where.
        field: String,
        /// What was given.
        index: i64,
        /// How many there are.
        interfaces: usize,
    },
}

/// A result as it is written. The versions differ in what they may say, not in how: one reader for all.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    cni_version: Option<String>,
    interfaces: Option<Vec<WrittenInterface>>,
    ips: Option<Vec<WrittenAddress>>,
    routes: Option<Vec<WrittenRoute>>,
    dns: Option<NetworkDns>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenInterface {
    name: String,
    mac: Option<String>,
    mtu: Option<u32>,
    sandbox: Option<String>,
    socket_path: Option<String>,
    #[serde(rename = "pciID")]
    pci_id: Option<String>,
}

#[derive(Deserialize)]
struct WrittenAddress {
    address: String,
    gateway: Option<String>,
    interface: Option<i64>,
}

#[derive(Deserialize)]
struct WrittenRoute {
    dst: String,
    gw: Option<String>,
    mtu: Option<u32>,
    advmss: Option<u32>,
    priority: Option<i64>,
    table: Option<i64>,
    scope: Option<i64>,
}

impl Attachment {
    /// Reads a result from any bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, ResultError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|source| ResultError::Json { source })?;
        Self::from_value(&value)
    }

    /// Reads a result of the version that it names; without one, of any.
    pub fn from_value(value: &Value) -> Result<Self, ResultError> {
        let written = Written::deserialize(value).map_err(|source| ResultError::Json { source })?;
        if let Some(version) = given(written.cni_version) {
            version.parse::<Version>().map_err(|source| ResultError::Version { source })?;
        }
        let interfaces: Vec<Interface> =
            written.interfaces.unwrap_or_default().into_iter().map(WrittenInterface::validated).collect();
        let count = interfaces.len();
        let ips = written.ips.unwrap_or_default().into_iter().enumerate();
        let routes = written.routes.unwrap_or_default().into_iter().enumerate();
        Ok(Self {
            ips: ips.map(|(n, address)| address.validated(n, count)).collect::<Result<_, _>>()?,
            routes: routes.map(|(n, route)| route.validated(n)).collect::<Result<_, _>>()?,
            dns: written.dns.unwrap_or_default(),
            interfaces,
        })
    }

    /// The interface of this name in the container.
    pub fn container_interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.sandbox.is_some() && interface.name == name)
    }
}

impl WrittenInterface {
    fn validated(self) -> Interface {
        Interface {
            name: self.name,
            mac: given(self.mac),
            mtu: self.mtu.filter(|mtu| *mtu > 0),
            sandbox: given(self.sandbox),
            socket_path: given(self.socket_path),
            pci_id: given(self.pci_id),
        }
    }
}

impl WrittenAddress {
    fn validated(self, n: usize, interfaces: usize) -> Result<InterfaceAddress, ResultError> {
        // Old plugins write -1 for none.
        let interface = match self.interface.filter(|index| *index >= 0) {
            None => None,
            Some(index) => {
                Some(usize::try_from(index).ok().filter(|index| *index < interfaces).ok_or_else(|| {
                    ResultError::Index { field: format!("ips[{n}].interface"), index, interfaces }
                })?)
            }
        };
        Ok(InterfaceAddress {
            address: prefix(&self.address, || format!("ips[{n}].address"))?,
            gateway: address(self.gateway, || format!("ips[{n}].gateway"))?,
            interface,
        })
    }
}

impl WrittenRoute {
    fn validated(self, n: usize) -> Result<Route, ResultError> {
        Ok(Route {
            destination: prefix(&self.dst, || format!("routes[{n}].dst"))?,
            gateway: address(self.gw, || format!("routes[{n}].gw"))?,
            mtu: self.mtu,
            advertised_mss: self.advmss,
            priority: self.priority,
            table: self.table,
            scope: self.scope,
        })
    }
}

/// Plugins write "" for what they do not have.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn prefix(text: &str, field: impl FnOnce() -> String) -> Result<Prefix, ResultError> {
    text.parse().map_err(|source| ResultError::Prefix { field: field(), source })
}

fn address(text: Option<String>, field: impl FnOnce() -> String) -> Result<Option<IpAddr>, ResultError> {
    let parse = |value: String| value.parse().map_err(|_| ResultError::Address { field: field(), value });
    given(text).map(parse).transpose()
}
