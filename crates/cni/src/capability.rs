//! What a runtime asks of the plugins beyond the configuration of the network.
//!
//! Each request has a name from the CNI conventions. It reaches a plugin as `runtimeConfig` only if the plugin's
//! configuration declares that capability; [`crate::Network::undeclared`] tells what would reach nobody.

use std::collections::BTreeMap;

use api::{
    mac::MacAddress,
    multus::{Bandwidth, NetworkSelection, PortMapping, RequestedAddress},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Requests by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capabilities(BTreeMap<String, Value>);

impl Capabilities {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Any request, by the name in the conventions.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// These addresses.
    #[must_use]
    pub fn ips(self, addresses: &[RequestedAddress]) -> Self {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        self.with("ips", json!(addresses))
    }

    /// This Ethernet address.
    #[must_use]
    pub fn mac(self, address: MacAddress) -> Self {
        self.with("mac", json!(address.to_string()))
    }

    /// Ports of the node that lead to the pod.
    #[must_use]
    pub fn port_mappings(self, mappings: &[PortMapping]) -> Self {
        self.with("portMappings", json!(mappings))
    }

    /// Limits on traffic.
    #[must_use]
    pub fn bandwidth(self, limits: &Bandwidth) -> Self {
        self.with("bandwidth", json!(limits))
    }

    /// Name servers, and domains to look in.
    #[must_use]
    pub fn dns(self, servers: &[String], searches: &[String]) -> Self {
        self.with("dns", json!({ "servers": servers, "searches": searches }))
    }

    /// This device of the node.
    #[must_use]
    pub fn device_id(self, device: &str) -> Self {
        self.with("deviceID", json!(device))
    }

    /// This InfiniBand GUID.
    #[must_use]
    pub fn infiniband_guid(self, guid: &str) -> Self {
        self.with("infinibandGUID", json!(guid))
    }

    /// What an element of the networks annotation asks for.
    pub fn of_selection(selection: &NetworkSelection) -> Self {
        let mut requests = Self::new();
        if !selection.ips.is_empty() {
            requests = requests.ips(&selection.ips);
        }
        if let Some(mac) = selection.mac {
            requests = requests.mac(mac);
        }
        if let Some(guid) = &selection.infiniband_guid {
            requests = requests.infiniband_guid(guid);
        }
        if !selection.port_mappings.is_empty() {
            requests = requests.port_mappings(&selection.port_mappings);
        }
        if let Some(limits) = &selection.bandwidth {
            requests = requests.bandwidth(limits);
        }
        if let Some(device) = &selection.device_id {
            requests = requests.device_id(device);
        }
        requests
    }

    /// Every request, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}
