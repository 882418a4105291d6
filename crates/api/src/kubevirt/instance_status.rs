//! Where a virtual machine instance stands: phase, node, addresses, and its current or last move.
//!
//! Written by the controller up to `Scheduled` and by the handler of the VM's node after it; never by both at a time.

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::MigrationState;
use crate::{condition::Condition, mac::MacAddress, string_enum::string_enum};

/// Where the instance stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceStatus {
    /// Where it stands in its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<InstancePhase>,
    /// One word on why it is in that phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it entered each phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<InstancePhaseTransition>,
    /// Node that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Launcher pods by UID, each with its node: two while it moves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub active_pods: BTreeMap<String, String>,
    /// vNICs and what is known of them; the primary first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InstanceInterface>,
    /// The current move, or the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<MigrationState>,
    /// Whether disks move with the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_method: Option<MigrationMethod>,
    /// How the hypervisors of a move reach each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_transport: Option<MigrationTransport>,
    /// Volumes that are copied with the next move.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub migrated_volumes: Vec<MigratedVolume>,
    /// Node that must be left; set by an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evacuation_node_name: Option<String>,
    /// Image of the launcher that runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_container_image_version: Option<String>,
}

string_enum! {
    /// Where an instance stands in its life.
    pub enum InstancePhase {
        /// Accepted; no pod yet.
        Pending = "Pending",
        /// Its pod waits for a node.
        Scheduling = "Scheduling",
        /// Its pod runs on a node; the handler takes over.
        Scheduled = "Scheduled",
        /// The guest runs.
        Running = "Running",
        /// The guest shut down.
        Succeeded = "Succeeded",
        /// The guest crashed, or was lost.
        Failed = "Failed",
        /// It waits to receive a guest from elsewhere.
        WaitingForSync = "WaitingForSync",
        /// Its node does not answer.
        Unknown = "Unknown",
    }
}

impl InstancePhase {
    /// Whether nothing more happens to it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When a phase was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstancePhaseTransition {
    /// The phase.
    pub phase: InstancePhase,
    /// The time.
    pub phase_transition_timestamp: Time,
}

/// What is known of a vNIC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceInterface {
    /// Name of the vNIC; absent for one that only the guest knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its first address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// All its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<String>,
    /// Ethernet address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Name of the interface in the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interface_name: Option<String>,
    /// Name of the interface in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_name: Option<String>,
    /// Who said so: domain, guest-agent, multus-status; joined by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info_source: Option<String>,
    /// Queues of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<i32>,
    /// Whether the link is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_state: Option<LinkState>,
}

string_enum! {
    /// Whether a link is up.
    pub enum LinkState {
        /// It is.
        Up = "up",
        /// It is not.
        Down = "down",
    }
}

string_enum! {
    /// Whether disks move with the memory.
    pub enum MigrationMethod {
        /// They do.
        BlockMigration = "BlockMigration",
        /// They are shared.
        LiveMigration = "LiveMigration",
    }
}

string_enum! {
    /// How the hypervisors of a move reach each other.
    pub enum MigrationTransport {
        /// By unix sockets that the handlers connect.
        Unix = "Unix",
    }
}

/// A volume that is copied with a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigratedVolume {
    /// Name of the volume.
    pub volume_name: String,
    /// What it is copied from.
    #[serde(rename = "sourcePVCInfo", skip_serializing_if = "Option::is_none")]
    pub source_pvc_info: Option<ClaimInfo>,
    /// What it is copied to.
    #[serde(rename = "destinationPVCInfo", skip_serializing_if = "Option::is_none")]
    pub destination_pvc_info: Option<ClaimInfo>,
}

/// What matters of a claim for a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimInfo {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// How it may be mounted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// Block or Filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<String>,
    /// What it holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}
