//! The annotation `k8s.v1.cni.cncf.io/networks`: which networks a pod is attached to, and how.
//!
//! Two formats, one meaning: `ns/name@interface, ...` and a JSON list. Both become [`NetworkSelection`]s that are valid
//! by themselves, or an error that names the element and the rule. Unknown JSON keys are ignored, as every reader of
//! this annotation does. Nothing here may panic: the text comes from users.

use std::{collections::BTreeSet, fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::mac::{MacAddress, MacAddressError};

/// The longest interface name that Linux has room for.
const INTERFACE_NAME_MAX: usize = 15;

/// One attachment that a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NetworkSelection {
    /// `NetworkAttachmentDefinition`.
    pub name: String,
    /// Its namespace; none: the pod's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the interface in the pod; none: `net<n>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Addresses that are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<RequestedAddress>,
    /// Ethernet address that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// InfiniBand GUID that is asked for.
    #[serde(rename = "infiniband-guid", skip_serializing_if = "Option::is_none")]
    pub infiniband_guid: Option<String>,
    /// Claim that owns the addresses.
    #[serde(rename = "ipam-claim-reference", skip_serializing_if = "Option::is_none")]
    pub ipam_claim_reference: Option<String>,
    /// This attachment carries the default route, by these gateways; empty: by those that the network gives.
    #[serde(rename = "default-route", skip_serializing_if = "Option::is_none")]
    pub default_route: Option<Vec<IpAddr>>,
    /// Handed to the plugins as `args.cni`.
    #[serde(rename = "cni-args", skip_serializing_if = "serde_json::Map::is_empty")]
    pub cni_args: serde_json::Map<String, serde_json::Value>,
    /// Ports of the node that lead to the pod.
    #[serde(rename = "portMappings", skip_serializing_if = "Vec::is_empty")]
    pub port_mappings: Vec<PortMapping>,
    /// Limits on traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Device that the network is to use.
    #[serde(rename = "deviceID", skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
}

/// A port of the node that leads to the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// Port of the node.
    pub host_port: u16,
    /// Port of the pod.
    pub container_port: u16,
    /// Transport.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Address of the node.
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<String>,
}

/// Limits on traffic: rates in bits a second, bursts in bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bandwidth {
    /// Into the pod.
    pub ingress_rate: u64,
    /// Into the pod, at once.
    pub ingress_burst: u64,
    /// Out of the pod.
    pub egress_rate: u64,
    /// Out of the pod, at once.
    pub egress_burst: u64,
}

/// An address, with or without the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestedAddress {
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix; none: the network knows it.
    pub prefix_length: Option<u8>,
}

/// The text is neither an address nor an address with the length of its prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an IP address, with or without /<prefix length>")]
pub struct RequestedAddressError {
    /// What was given.
    pub text: String,
}

impl FromStr for RequestedAddress {
    type Err = RequestedAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || RequestedAddressError { text: text.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix_length = match prefix {
            // `parse` would take "+24".
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok().filter(|length| *length <= longest).ok_or_else(refused)?)
            }
            Some(_) => return Err(refused()),
            None => None,
        };
        Ok(Self { address, prefix_length })
    }
}

impl fmt::Display for RequestedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_length {
            Some(length) => write!(f, "{}/{length}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

impl Serialize for RequestedAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestedAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Why a list of networks cannot be used. Elements are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    /// Looks like JSON and is not a list of network selections.
    #[error("the networks annotation is not a JSON list of network selections")]
    Json {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// Nothing between two commas.
    #[error("element {position} of the networks annotation is empty")]
    Empty {
        /// Which element.
        position: usize,
    },
    /// Not of the form `[namespace/]name[@interface]`.
    #[error("element {position} {text:?} is not of the form [namespace/]name[@interface]")]
    Form {
        /// Which element.
        position: usize,
        /// What was given.
        text: String,
    },
    /// Not a name that an object can have.
    #[error(
        "element {position}: {field} {value:?} must be lower-case letters, digits and '-', and begin and end with a letter or digit"
    )]
    ObjectName {
        /// Which element.
        position: usize,
        /// `name`, `namespace` or `ipam-claim-reference`.
        field: &'static str,
        /// What was given.
        value: String,
    },
    /// Not a name that an interface can have.
    #[error(
        "element {position}: interface {value:?} must be 1 to 15 characters without spaces, '/' or ':', and not '.' or '..'"
    )]
    InterfaceName {
        /// Which element.
        position: usize,
        /// What was given.
        value: String,
    },
    /// Two attachments want one interface name.
    #[error("element {position}: interface {value:?} is already taken by an earlier element")]
    InterfaceTaken {
        /// Which element.
        position: usize,
        /// What was given.
        value: String,
    },
    /// A requested address is none.
    #[error("element {position}: ips")]
    Address {
        /// Which element.
        position: usize,
        /// What was given.
        #[source]
        source: RequestedAddressError,
    },
    /// A requested Ethernet address is none.
    #[error("element {position}: mac")]
    Mac {
        /// Which element.
        position: usize,
        /// What was given.
        #[source]
        source: MacAddressError,
    },
    /// A gateway is no address.
    #[error("element {position}: default-route {value:?} is not an IP address")]
    Gateway {
        /// Which element.
        position: usize,
        /// What was given.
        value: String,
    },
    /// Two default routes of one family.
    #[error(
        "element {position}: default-route {value} is a second {family} default route; a pod has one for each family"
    )]
    SecondDefaultRoute {
        /// Which element.
        position: usize,
        /// What was given.
        value: IpAddr,
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The default network is one network.
    #[error("the default-network annotation names {count} networks; it must name one")]
    NotOne {
        /// How many it names.
        count: usize,
    },
}

/// Reads the value of `k8s.v1.cni.cncf.io/networks`, in either format. An empty value is no network.
pub fn parse_networks(text: &str) -> Result<Vec<NetworkSelection>, SelectionError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    // The rule of Multus: a name has none of these.
    let selections = if text.contains(['[', '{', '"']) { parse_json(text)? } else { parse_short(text)? };
    check_together(&selections)?;
    Ok(selections)
}

/// Reads the value of `v1.multus-cni.io/default-network`: the same formats, and exactly one network.
pub fn parse_default_network(text: &str) -> Result<NetworkSelection, SelectionError> {
    let mut selections = parse_networks(text)?;
    match (selections.pop(), selections.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => Err(SelectionError::NotOne { count: if others == 0 { 0 } else { others + 1 } }),
    }
}

/// Writes the annotation: the short format if it can say everything, else JSON.
pub fn format_networks(selections: &[NetworkSelection]) -> Result<String, serde_json::Error> {
    let short: Option<Vec<String>> = selections.iter().map(NetworkSelection::short_form).collect();
    match short {
        Some(elements) => Ok(elements.join(",")),
        None => serde_json::to_string(selections),
    }
}

impl NetworkSelection {
    /// An attachment to this definition, as an interface of this name.
    pub fn new(namespace: Option<&str>, name: &str, interface: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            interface: interface.map(str::to_owned),
            ..Self::default()
        }
    }

    /// `[namespace/]name[@interface]`, if that says everything.
    fn short_form(&self) -> Option<String> {
        let plain = Self::new(self.namespace.as_deref(), &self.name, self.interface.as_deref());
        let sayable = *self == plain
            && is_label(&self.name)
            && self.interface.as_ref().is_none_or(|name| !name.contains([',', '@', '[', '{', '"']));
        sayable.then(|| {
            let namespace =
                self.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let interface =
                self.interface.as_ref().map(|interface| format!("@{interface}")).unwrap_or_default();
            format!("{namespace}{}{interface}", self.name)
        })
    }
}

fn parse_short(text: &str) -> Result<Vec<NetworkSelection>, SelectionError> {
    text.split(',')
        .zip(1..)
        .map(|(element, position)| parse_short_element(element.trim(), position))
        .collect()
}

fn parse_short_element(element: &str, position: usize) -> Result<NetworkSelection, SelectionError> {
    if element.is_empty() {
        return Err(SelectionError::Empty { position });
    }
    let form = || SelectionError::Form { position, text: element.to_owned() };
    let (object, interface) = match element.split_once('@') {
        Some((_, interface)) if interface.contains('@') => return Err(form()),
        Some((object, interface)) => (object.trim(), Some(interface.trim())),
        None => (element, None),
    };
    let (namespace, name) = match object.split_once('/') {
        Some((_, name)) if name.contains('/') => return Err(form()),
        Some((namespace, name)) => (Some(namespace.trim()), name.trim()),
        None => (None, object),
    };
    if !is_label(name) {
        return Err(SelectionError::ObjectName { position, field: "name", value: name.to_owned() });
    }
    check_namespace(namespace, position)?;
    check_interface(interface, position)?;
    Ok(NetworkSelection::new(namespace, name, interface))
}

/// An element as it is written, before anything in it is believed.
#[derive(Deserialize)]
struct WrittenSelection {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    interface: String,
    /// What `interface` was called before the format was standardised.
    #[serde(default, rename = "interfaceRequest")]
    interface_request: String,
    #[serde(default)]
    ips: Option<Vec<String>>,
    #[serde(default)]
    mac: String,
    #[serde(default, rename = "infiniband-guid")]
    infiniband_guid: String,
    #[serde(default, rename = "ipam-claim-reference")]
    ipam_claim_reference: String,
    #[serde(default, rename = "default-route")]
    default_route: Option<Vec<String>>,
    #[serde(default, rename = "cni-args")]
    cni_args: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default, rename = "portMappings")]
    port_mappings: Option<Vec<PortMapping>>,
    #[serde(default)]
    bandwidth: Option<Bandwidth>,
    #[serde(default, rename = "deviceID")]
    device_id: String,
}

fn parse_json(text: &str) -> Result<Vec<NetworkSelection>, SelectionError> {
    let written: Vec<WrittenSelection> =
        serde_json::from_str(text).map_err(|source| SelectionError::Json { source })?;
    written.into_iter().zip(1..).map(|(written, position)| written.validated(position)).collect()
}

impl WrittenSelection {
    fn validated(self, position: usize) -> Result<NetworkSelection, SelectionError> {
        let given = |text: String| (!text.is_empty()).then_some(text);
        let named = |field, value: &str| {
            if is_subdomain(value) {
                Ok(())
            } else {
                Err(SelectionError::ObjectName { position, field, value: value.to_owned() })
            }
        };
        named("name", &self.name)?;
        let namespace = given(self.namespace);
        check_namespace(namespace.as_deref(), position)?;
        let interface = given(self.interface).or(given(self.interface_request));
        check_interface(interface.as_deref(), position)?;
        let ipam_claim_reference = given(self.ipam_claim_reference);
        if let Some(claim) = &ipam_claim_reference {
            named("ipam-claim-reference", claim)?;
        }

        let addresses = self.ips.unwrap_or_default();
        let ips = addresses
            .iter()
            .map(|text| text.parse().map_err(|source| SelectionError::Address { position, source }))
            .collect::<Result<_, _>>()?;
        let mac = given(self.mac)
            .map(|text| text.parse().map_err(|source| SelectionError::Mac { position, source }))
            .transpose()?;
        let gateway = |value: String| value.parse().map_err(|_| SelectionError::Gateway { position, value });
        let default_route =
            self.default_route.map(|gateways| gateways.into_iter().map(gateway).collect()).transpose()?;

        Ok(NetworkSelection {
            name: self.name,
            namespace,
            interface,
            ips,
            mac,
            infiniband_guid: given(self.infiniband_guid),
            ipam_claim_reference,
            default_route,
            cni_args: self.cni_args.unwrap_or_default(),
            port_mappings: self.port_mappings.unwrap_or_default(),
            bandwidth: self.bandwidth,
            device_id: given(self.device_id),
        })
    }
}

/// The rules between elements: interface names are unique, and so is the default route of each family.
fn check_together(selections: &[NetworkSelection]) -> Result<(), SelectionError> {
    let mut interfaces = BTreeSet::new();
    let (mut routed_v4, mut routed_v6) = (false, false);
    for (selection, position) in selections.iter().zip(1..) {
        if let Some(interface) = &selection.interface
            && !interfaces.insert(interface)
        {
            return Err(SelectionError::InterfaceTaken { position, value: interface.clone() });
        }
        for gateway in selection.default_route.iter().flatten() {
            let (routed, family) =
                if gateway.is_ipv4() { (&mut routed_v4, "IPv4") } else { (&mut routed_v6, "IPv6") };
            if std::mem::replace(routed, true) {
                return Err(SelectionError::SecondDefaultRoute { position, value: *gateway, family });
            }
        }
    }
    Ok(())
}

/// `namespace/name` of a definition that is given so, or by its name in this namespace.
pub fn full_name(definition: &str, namespace: &str) -> String {
    if definition.contains('/') { definition.to_owned() } else { format!("{namespace}/{definition}") }
}

fn check_namespace(namespace: Option<&str>, position: usize) -> Result<(), SelectionError> {
    match namespace {
        Some(value) if !is_label(value) => {
            Err(SelectionError::ObjectName { position, field: "namespace", value: value.to_owned() })
        }
        _ => Ok(()),
    }
}

fn check_interface(interface: Option<&str>, position: usize) -> Result<(), SelectionError> {
    match interface {
        Some(value) if !is_interface_name(value) => {
            Err(SelectionError::InterfaceName { position, value: value.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Whether Linux and CNI take it as the name of an interface.
pub fn is_interface_name(name: &str) -> bool {
    (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|character: char| {
            character == '/' || character == ':' || character.is_whitespace() || character.is_control()
        })
}

/// Whether it is a DNS label, as namespaces are.
fn is_label(name: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= 63
        && edge(name.bytes().next())
        && edge(name.bytes().last())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Whether it is a DNS subdomain, as most objects are named.
fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}
