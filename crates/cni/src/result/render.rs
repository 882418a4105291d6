//! An [`Attachment`] as the result of a version.
//!
//! What a version has no words for is left out, never said in words of another.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{Attachment, Interface, InterfaceAddress, Route};
use crate::Version;

impl Attachment {
    /// As a result of this version.
    pub fn render(&self, version: Version) -> Value {
        let mut result = Map::new();
        result.insert("cniVersion".to_owned(), json!(version));
        let mut list = |name: &str, items: Vec<Value>| {
            if !items.is_empty() {
                result.insert(name.to_owned(), Value::Array(items));
            }
        };
        list(
            "interfaces",
            self.interfaces.iter().map(|interface| render_interface(interface, version)).collect(),
        );
        list("ips", self.ips.iter().map(|address| render_address(address, version)).collect());
        list("routes", self.routes.iter().map(|route| render_route(route, version)).collect());
        result.insert("dns".to_owned(), json!(self.dns));
        Value::Object(result)
    }
}

/// An object of the pairs that have a value.
fn object<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    let there = pairs.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The value, if the version has a word for it.
fn since_1_1(version: Version, value: Value) -> Value {
    if version >= Version::V1_1_0 { value } else { Value::Null }
}

fn render_interface(interface: &Interface, version: Version) -> Value {
    object([
        ("name", json!(interface.name)),
        ("mac", json!(interface.mac)),
        ("sandbox", json!(interface.sandbox)),
        ("mtu", since_1_1(version, json!(interface.mtu))),
        ("socketPath", since_1_1(version, json!(interface.socket_path))),
        ("pciID", since_1_1(version, json!(interface.pci_id))),
    ])
}

fn render_address(address: &InterfaceAddress, version: Version) -> Value {
    let family = match address.address.address {
        IpAddr::V4(_) => "4",
        IpAddr::V6(_) => "6",
    };
    object([
        ("version", if version < Version::V1_0_0 { json!(family) } else { Value::Null }),
        ("address", json!(address.address)),
        ("gateway", json!(address.gateway)),
        ("interface", json!(address.interface)),
    ])
}

fn render_route(route: &Route, version: Version) -> Value {
    object([
        ("dst", json!(route.destination)),
        ("gw", json!(route.gateway)),
        ("mtu", since_1_1(version, json!(route.mtu))),
        ("advmss", since_1_1(version, json!(route.advertised_mss))),
        ("priority", since_1_1(version, json!(route.priority))),
        ("table", since_1_1(version, json!(route.table))),
        ("scope", since_1_1(version, json!(route.scope))),
    ])
}
