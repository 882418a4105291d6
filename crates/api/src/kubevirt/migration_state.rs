//! The record of one move, on the instance while it lasts and on the migration afterwards.
//!
//! The flat fields and `sourceState`/`targetState` say the same twice, because KubeVirt's clients read either; the
//! writer of a state keeps both. The map of ports has a meaning of its own: see [`crate::names::channels`].

use k8s_openapi::{
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
    jiff::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Not};

use super::MigrationOptions;
use crate::string_enum::string_enum;

/// One move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags are KubeVirt's, and its clients read each of them"
)]
pub struct MigrationState {
    /// UID of the migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// When guest memory began to move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    /// When it ended, well or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    /// Node that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    /// Launcher pod that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    /// Node that takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    /// Launcher pod that takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    /// Pod that holds hot-plugged volumes at the target.
    #[serde(rename = "targetAttachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub target_attachment_pod_uid: Option<String>,
    /// Address at which the target's handler listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    /// Ports at which the target's handler listens, each with its channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub target_direct_migration_node_ports: BTreeMap<String, i32>,
    /// Whether the domain was seen at the target.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub target_node_domain_detected: bool,
    /// When the guest ran at the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    /// CPUs of the target that a guest with dedicated CPUs is pinned to.
    #[serde(rename = "targetCPUSet", default, skip_serializing_if = "Vec::is_empty")]
    pub target_cpu_set: Vec<i32>,
    /// Topology of the target, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    /// Memory that the launcher at the target needs besides the guest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
    /// How the guest moves at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<MigrationMode>,
    /// The move is over.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub completed: bool,
    /// The move is over and the guest did not move.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub failed: bool,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Somebody asked for the move to be given up.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub abort_requested: bool,
    /// How far giving up is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<AbortStatus>,
    /// Policy that the VM fell under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    /// Settings of this move, frozen when it was handed to the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<MigrationOptions>,
    /// Which network the bytes take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<MigrationNetworkType>,
    /// The side that is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<SourceState>,
    /// The side that takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<TargetState>,
    /// Claim with the persistent state of the VM's devices, at the source.
    #[serde(rename = "sourcePersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub source_persistent_state_pvc_name: Option<String>,
    /// Claim with the persistent state of the VM's devices, at the target.
    #[serde(rename = "targetPersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub target_persistent_state_pvc_name: Option<String>,
}

impl MigrationState {
    /// The move is over and the guest has stayed. A reason that is there already is the one of whoever asked for the end.
    pub fn fail(&mut self, reason: &str, now: Timestamp) {
        self.completed = true;
        self.failed = true;
        self.failure_reason.get_or_insert_with(|| reason.to_owned());
        self.end_timestamp.get_or_insert(Time(now));
    }
}

string_enum! {
    /// How a guest moves.
    pub enum MigrationMode {
        /// Memory first, guest after it.
        PreCopy = "PreCopy",
        /// Guest first, memory as it asks for it.
        PostCopy = "PostCopy",
        /// The guest stands still until all memory is there.
        Paused = "Paused",
    }
}

string_enum! {
    /// How far giving up a move is.
    pub enum AbortStatus {
        /// Under way.
        Aborting = "Aborting",
        /// The guest stays where it was.
        Succeeded = "Succeeded",
        /// It was too late, or the hypervisor refused.
        Failed = "Failed",
    }
}

string_enum! {
    /// Which network the bytes of a move take.
    pub enum MigrationNetworkType {
        /// The pod network.
        Pod = "Pod",
        /// The migration network.
        Migration = "Migration",
    }
}

/// What both sides say of themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonState {
    /// Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Launcher pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// UID of the migration of this side.
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    /// Name of the domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    /// Namespace of the VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    /// Where the synchronization controller of this side is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    /// Claim with the persistent state of the VM's devices.
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    /// SELinux context of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    /// UID of the instance of this side.
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
}

/// The side that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    /// What both sides say.
    #[serde(flatten)]
    pub common: CommonState,
    /// Labels that the target node must have for the guest's processor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selectors: BTreeMap<String, String>,
}

/// The side that takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetState {
    /// What both sides say.
    #[serde(flatten)]
    pub common: CommonState,
    /// When the guest ran here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<Time>,
    /// Whether the domain was seen here.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub domain_detected: bool,
    /// Address at which the handler listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    /// Ports at which the handler listens, each with its channel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub direct_migration_node_ports: BTreeMap<String, i32>,
    /// Pod that holds hot-plugged volumes.
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    /// CPUs that a guest with dedicated CPUs is pinned to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_set: Vec<i32>,
    /// Topology of the node, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
}
