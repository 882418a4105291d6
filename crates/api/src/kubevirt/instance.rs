//! `VirtualMachineInstance`: a virtual machine that runs.
//!
//! Its spec says what runs and where it may run; it does not change while it runs. Where it stands is in
//! its status.

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::{DomainSpec, Interface, Network, VirtualMachineInstanceStatus, Volume};
use crate::string_enum::string_enum;

/// What runs and where it may run.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstance",
    plural = "virtualmachineinstances",
    singular = "virtualmachineinstance",
    shortname = "vmi",
    shortname = "vmis",
    category = "all",
    namespaced,
    status = "VirtualMachineInstanceStatus",
    derive = "PartialEq",
    doc = "A virtual machine that runs.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.interfaces[0].ipAddress"),
    printcolumn(name = "NodeName", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Live-Migratable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='LiveMigratable')].status",
        priority = 1
    ),
    printcolumn(
        name = "Paused",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Paused')].status",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceSpec {
    /// The virtual hardware.
    pub domain: DomainSpec,
    /// Labels that the node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Finer rules about nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// What an eviction does. Default: as the `KubeVirt` object says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    /// Whether the guest runs as soon as it is there. Default: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_strategy: Option<StartStrategy>,
    /// Seconds for the guest to shut down before it is switched off. Default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
    /// What the disks hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
    /// What the vNICs are plugged into.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub networks: Vec<Network>,
    /// Name that the guest gets by DHCP. Default: the VM's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub hostname: Option<String>,
    /// Priority of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
}

impl VirtualMachineInstanceSpec {
    /// Seconds for the guest to shut down, as KubeVirt has it.
    pub const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

    /// The network that a vNIC is plugged into; none: the pod network of the short spelling.
    pub fn network_of(&self, interface: &Interface) -> Option<&Network> {
        self.networks.iter().find(|network| network.name == interface.name)
    }
}

string_enum! {
    /// What an eviction does to a VM.
    pub enum EvictionStrategy {
        /// It is shut down.
        None = "None",
        /// It is moved; if it cannot move, the eviction is refused.
        LiveMigrate = "LiveMigrate",
        /// It is moved; if it cannot move, it is shut down.
        LiveMigrateIfPossible = "LiveMigrateIfPossible",
        /// The eviction is refused and something else is told of it.
        External = "External",
    }
}

string_enum! {
    /// Whether the guest runs as soon as it is there.
    pub enum StartStrategy {
        /// It waits to be resumed.
        Paused = "Paused",
    }
}
