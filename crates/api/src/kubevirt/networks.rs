//! The vNICs of a virtual machine and the networks that they are plugged into.
//!
//! Two spellings are accepted: KubeVirt's (`name`, `macAddress`, `model: virtio`, a binding and an entry in `networks`),
//! and the short one for the pod network alone (`type: pod-network`, `mac.address`, `model.type`). Readers ask the
//! methods of [`Interface`] and never look at the spelling.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{mac::MacAddress, string_enum::string_enum};

/// A vNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.bridge), has(self.masquerade), has(self.passtBinding), has(self.binding)].filter(b, b).size() <= 1",
        "message": "an interface has at most one of bridge, masquerade, passtBinding and binding",
    },
    {
        "rule": "!has(self.mac) || !has(self.macAddress)",
        "message": "mac.address and macAddress are the same thing: set one of them",
    },
]))]
pub struct Interface {
    /// Name of the vNIC, and of the entry in `networks` that it is plugged into.
    #[serde(default = "Interface::default_name")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-zA-Z0-9_-]+$"))]
    pub name: String,
    /// `pod-network`: plugged into the pod network, with no entry in `networks`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<InterfaceType>,
    /// The device that the guest sees: `virtio`, or `{type: virtio}`. Default virtio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "model_schema")]
    pub model: Option<ModelField>,
    /// Ethernet address; none: one is made up and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<MacAddress>,
    /// Ethernet address, in the short spelling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<InterfaceMac>,
    /// The guest has the address of the pod interface, by DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<InterfaceBridge>,
    /// The guest is behind NAT in its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<InterfaceMasquerade>,
    /// The guest shares the pod's sockets through passt; its connections survive a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<InterfacePasstBinding>,
    /// A binding that the `KubeVirt` object names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    /// Ports forwarded to a guest behind NAT or passt; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub ports: Vec<Port>,
    /// Place in the boot order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub boot_order: Option<u32>,
}

impl Interface {
    /// The name that KubeVirt gives to the vNIC that it adds itself.
    pub const DEFAULT_NAME: &'static str = "default";

    fn default_name() -> String {
        Self::DEFAULT_NAME.to_owned()
    }

    /// The Ethernet address that the user chose.
    pub fn requested_mac(&self) -> Option<MacAddress> {
        self.mac_address.or_else(|| self.mac.as_ref().map(|mac| mac.address))
    }

    /// The device that the guest sees.
    pub fn device_model(&self) -> InterfaceModel {
        match self.model {
            Some(ModelField::Name(model) | ModelField::Typed { type_: model }) => model,
            None => InterfaceModel::Virtio,
        }
    }
}

string_enum! {
    /// What a vNIC of the short spelling is plugged into.
    pub enum InterfaceType {
        /// The pod network.
        PodNetwork = "pod-network",
    }
}

string_enum! {
    /// The network device that the guest sees.
    pub enum InterfaceModel {
        /// Paravirtual; the default.
        Virtio = "virtio",
        /// Intel 82540EM.
        E1000 = "e1000",
        /// Intel 82574L.
        E1000e = "e1000e",
        /// Intel 82576.
        Igb = "igb",
        /// NE2000.
        Ne2kPci = "ne2k_pci",
        /// AMD PCnet.
        Pcnet = "pcnet",
        /// Realtek 8139.
        Rtl8139 = "rtl8139",
    }
}

/// The model in either spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ModelField {
    /// `model: virtio`
    Name(InterfaceModel),
    /// `model: {type: virtio}`
    Typed {
        /// The model.
        #[serde(rename = "type")]
        type_: InterfaceModel,
    },
}

/// A structural schema has one type a field, so a field that is a string or an object has none; the enumeration of
/// both spellings keeps it as strict as one.
fn model_schema(_: &mut SchemaGenerator) -> Schema {
    let names = InterfaceModel::ALL.iter().map(|model| serde_json::json!(model.as_str()));
    let objects = InterfaceModel::ALL.iter().map(|model| serde_json::json!({ "type": model.as_str() }));
    let both: Vec<_> = names.chain(objects).collect();
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true, "enum": both })
}

/// Ethernet address in the short spelling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceMac {
    /// The address.
    pub address: MacAddress,
}

/// Bridge binding; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceBridge {}

/// Masquerade binding; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceMasquerade {}

/// passt binding; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfacePasstBinding {}

/// A binding plugin by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PluginBinding {
    /// Key in `configuration.network.binding` of the `KubeVirt` object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A port that is forwarded to the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Port {
    /// Name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Default TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<PortProtocol>,
    /// Number.
    #[schemars(range(min = 1))]
    pub port: u16,
}

string_enum! {
    /// Transport of a forwarded port.
    pub enum PortProtocol {
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
    }
}

/// A network that a vNIC of the same name is plugged into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.pod) != has(self.multus)",
    "message": "a network has exactly one of pod and multus",
}]))]
pub struct Network {
    /// Name of the vNIC.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-zA-Z0-9_-]+$"))]
    pub name: String,
    /// The pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    /// A network of a `NetworkAttachmentDefinition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
}

/// The pod network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodNetwork {
    /// Addresses behind NAT; IPv4 CIDR. Default 10.0.2.0/24.
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
    /// Addresses behind NAT; IPv6 CIDR. Default fd10:0:2::/120.
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
}

impl PodNetwork {
    /// `vmNetworkCIDR` where it is not said.
    pub const DEFAULT_VM_NETWORK: &'static str = "10.0.2.0/24";
    /// `vmIPv6NetworkCIDR` where it is not said.
    pub const DEFAULT_VM_IPV6_NETWORK: &'static str = "fd10:0:2::/120";
}

/// A network of a `NetworkAttachmentDefinition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultusNetwork {
    /// `name` in the VM's namespace, or `namespace/name`.
    #[schemars(length(min = 1, max = 317))]
    pub network_name: String,
    /// It takes the place of the pod network. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}
