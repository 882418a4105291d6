//! `VirtualMachineInstanceMigration`: one move of one virtual machine.
//!
//! ```text
//!            ┌► WaitingForSync ┐  (receive)
//!   created ─┼─────────────────┼► Pending ► Scheduling ► Scheduled ► PreparingTarget ► TargetReady ► Running ► Succeeded
//!            └► Synchronizing ─┘  (sendTo)      └───────────┴───────────────┴───────────────┴───────────┴────► Failed
//! ```
//!
//! The object is the request and the record; it must never be reused for a second move.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::MigrationState;
use crate::{condition::Condition, string_enum::string_enum};

/// Which VM moves, and where to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachineInstanceMigration",
    plural = "virtualmachineinstancemigrations",
    singular = "virtualmachineinstancemigration",
    shortname = "vmim",
    shortname = "vmims",
    category = "all",
    namespaced,
    status = "MigrationStatus",
    derive = "PartialEq",
    doc = "One move of one virtual machine.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "The current phase of VM instance migration"
    ),
    printcolumn(
        name = "VMI",
        type_ = "string",
        json_path = ".spec.vmiName",
        description = "The name of the VMI to perform the migration on"
    ),
    printcolumn(
        name = "Percent",
        type_ = "integer",
        json_path = ".status.progress.percent",
        description = "How much of the guest has arrived"
    ),
    printcolumn(
        name = "Rate",
        type_ = "string",
        json_path = ".status.progress.rate",
        description = "How fast it moves"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.sendTo) || !has(self.receive) || self.sendTo.migrationID == self.receive.migrationID",
        "message": "sendTo and receive must have the same migrationID",
    },
    { "rule": "self == oldSelf", "message": "the spec of a migration cannot be changed; create another migration" },
]))]
pub struct VirtualMachineInstanceMigrationSpec {
    /// Name of the instance, in the namespace of this object.
    #[schemars(length(min = 1, max = 253))]
    pub vmi_name: String,
    /// Place in the queue. Only the system sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<MigrationPriority>,
    /// Labels that the target node must have besides those that the VM asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub added_node_selector: BTreeMap<String, String>,
    /// The VM leaves this namespace or cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to: Option<SendTo>,
    /// The VM comes from another namespace or cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<Receive>,
}

/// Where the VM goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SendTo {
    /// The same on both sides, and used once.
    #[serde(rename = "migrationID")]
    #[schemars(length(min = 1, max = 253))]
    pub migration_id: String,
    /// Address of the other side's synchronization controller, `address:port`.
    #[serde(rename = "connectURL")]
    #[schemars(length(min = 1, max = 2048))]
    pub connect_url: String,
}

/// Where the VM comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receive {
    /// The same on both sides, and used once.
    #[serde(rename = "migrationID")]
    #[schemars(length(min = 1, max = 253))]
    pub migration_id: String,
}

string_enum! {
    /// Place in the queue.
    pub enum MigrationPriority {
        /// Drains and updates.
        SystemCritical = "system-critical",
        /// A person, or a change of the VM, asked for it.
        UserTriggered = "user-triggered",
        /// Rebalancing.
        SystemMaintenance = "system-maintenance",
    }
}

impl VirtualMachineInstanceMigrationSpec {
    /// What both sides of a move between namespaces or clusters call it.
    pub fn migration_id(&self) -> Option<&str> {
        let sent = self.send_to.as_ref().map(|send_to| send_to.migration_id.as_str());
        sent.or_else(|| self.receive.as_ref().map(|receive| receive.migration_id.as_str()))
    }

    /// Whether the VM crosses the border of its namespace or cluster.
    pub fn is_decentralized(&self) -> bool {
        self.send_to.is_some() || self.receive.is_some()
    }
}

/// Where the move stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationStatus {
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MigrationPhase>,
    /// When it entered each phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<MigrationPhaseTransition>,
    /// Lasting facts, among them why it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The record of the move, as it stood on the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<MigrationState>,
    /// Where other clusters reach the synchronization controller, `address:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub synchronization_addresses: Vec<String>,
    /// Godwit: how far the guest is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<MigrationProgress>,
}

string_enum! {
    /// Where a move stands. See the diagram in this file.
    pub enum MigrationPhase {
        /// It waits for its turn.
        Pending = "Pending",
        /// The target pod waits for a node.
        Scheduling = "Scheduling",
        /// The target pod runs.
        Scheduled = "Scheduled",
        /// The target's handler prepares.
        PreparingTarget = "PreparingTarget",
        /// The target's handler listens.
        TargetReady = "TargetReady",
        /// Guest memory moves.
        Running = "Running",
        /// The guest runs at the target.
        Succeeded = "Succeeded",
        /// The guest runs at the source.
        Failed = "Failed",
        /// It waits for the source of another namespace or cluster.
        WaitingForSync = "WaitingForSync",
        /// It waits for the target of another namespace or cluster.
        Synchronizing = "Synchronizing",
    }
}

impl MigrationPhase {
    /// Whether nothing more happens to it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// When a phase was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPhaseTransition {
    /// The phase.
    pub phase: MigrationPhase,
    /// The time.
    pub phase_transition_timestamp: Time,
}

/// How far a move is. Made by [`MigrationProgress::new`], so that the numbers for people follow those for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationProgress {
    /// How much of the guest has arrived.
    #[schemars(range(max = 100))]
    pub percent: u8,
    /// How fast it moves, for people.
    pub rate: String,
    /// The measurements.
    #[serde(flatten)]
    pub sample: ProgressSample,
}

/// What the hypervisor says of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressSample {
    /// Memory and disks of the guest.
    pub total_bytes: u64,
    /// What has still to be sent; it grows when the guest writes faster than it is read.
    pub remaining_bytes: u64,
    /// What was sent, repetitions included.
    pub processed_bytes: u64,
    /// Sent a second.
    pub bytes_per_second: u64,
    /// Written by the guest a second.
    pub dirty_bytes_per_second: u64,
    /// Passes over the guest's memory.
    pub iteration: u64,
    /// How long it has taken so far, or took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// How long the guest stands still at switch-over: expected while it runs, measured afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_ms: Option<u64>,
    /// `NetworkAttachmentDefinition` that the bytes take; absent: the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

impl MigrationProgress {
    /// The sample, and what it comes to for people.
    pub fn new(sample: ProgressSample) -> Self {
        let arrived = u128::from(sample.total_bytes.saturating_sub(sample.remaining_bytes));
        let percent = (arrived * 100).checked_div(u128::from(sample.total_bytes)).unwrap_or(0);
        Self {
            percent: u8::try_from(percent).unwrap_or(100),
            rate: format!("{}/s", readable_bytes(sample.bytes_per_second)),
            sample,
        }
    }
}

/// Bytes in the largest binary unit that leaves at least one, with one decimal.
fn readable_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let magnitude = bytes.checked_ilog2().unwrap_or(0) / 10;
    let Some(unit) = usize::try_from(magnitude).ok().and_then(|index| UNITS.get(index.checked_sub(1)?))
    else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> (magnitude * 10);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let sample = ProgressSample {
            total_bytes: 4 << 30,
            remaining_bytes: 1 << 30,
            bytes_per_second: 1_400_000_000,
            ..ProgressSample::default()
        };
        let progress = MigrationProgress::new(sample);
        assert_eq!((progress.percent, progress.rate.as_str()), (75, "1.3 GiB/s"));
        assert_eq!(MigrationProgress::new(ProgressSample::default()).rate, "0 B/s");
        assert_eq!(readable_bytes(1023), "1023 B");
        assert_eq!(readable_bytes(1024), "1.0 KiB");
        assert_eq!(readable_bytes(u64::MAX), "15.9 EiB");
    }

    #[test]
    fn a_guest_that_grows_is_never_less_than_nothing() {
        let sample = ProgressSample { total_bytes: 10, remaining_bytes: 20, ..ProgressSample::default() };
        assert_eq!(MigrationProgress::new(sample).percent, 0);
    }

    #[test]
    fn two_phases_are_final() {
        let ends: Vec<_> = MigrationPhase::ALL.iter().filter(|phase| phase.is_final()).collect();
        assert_eq!(ends, [&MigrationPhase::Succeeded, &MigrationPhase::Failed]);
    }
}
