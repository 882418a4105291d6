//! `VirtualMachine`: a virtual machine that exists whether it runs or not.
//!
//! It owns the template of its instance and when there is to be one. What its guest does now is on the instance.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, ops::Not};

use super::VirtualMachineInstanceSpec;
use crate::{condition::Condition, string_enum::string_enum};

/// When the machine is to run, and as what.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "VirtualMachine",
    plural = "virtualmachines",
    singular = "virtualmachine",
    shortname = "vm",
    shortname = "vms",
    category = "all",
    namespaced,
    status = "VirtualMachineStatus",
    derive = "PartialEq",
    doc = "A virtual machine that exists whether it runs or not.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.printableStatus",
        description = "Human Readable Status"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.running) != has(self.runStrategy)",
    "message": "exactly one of running and runStrategy must be set",
}]))]
pub struct VirtualMachineSpec {
    /// `true` is runStrategy Always, `false` is Halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// When the machine is to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<RunStrategy>,
    /// The instance that runs.
    pub template: InstanceTemplate,
}

impl VirtualMachineSpec {
    /// When the machine is to run, whichever spelling was used.
    pub fn effective_run_strategy(&self) -> RunStrategy {
        match (self.run_strategy, self.running) {
            (Some(strategy), _) => strategy,
            (None, Some(true)) => RunStrategy::Always,
            (None, Some(false) | None) => RunStrategy::Halted,
        }
    }
}

string_enum! {
    /// When a machine is to run.
    pub enum RunStrategy {
        /// Always: it is started again whenever it ends.
        Always = "Always",
        /// Never.
        Halted = "Halted",
        /// When a person says so.
        Manual = "Manual",
        /// It is started again when it fails, not when its guest shuts down.
        RerunOnFailure = "RerunOnFailure",
        /// Once: it is not started again.
        Once = "Once",
        /// It waits to receive its guest from elsewhere.
        WaitAsReceiver = "WaitAsReceiver",
    }
}

/// The instance that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceTemplate {
    /// Labels and annotations of the instance and of its pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::template_metadata")]
    pub metadata: Option<TemplateMetadata>,
    /// What runs and where it may run.
    pub spec: VirtualMachineInstanceSpec,
}

/// Labels and annotations of the instance and of its pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Whatever else was written; it is kept and has no meaning.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// Where the machine stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// There is an instance.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub created: bool,
    /// The guest runs and is ready.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub ready: bool,
    /// One word for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printable_status: Option<PrintableStatus>,
    /// Lasting facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Starts and stops that a person asked for, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state_change_requests: Vec<StateChangeRequest>,
    /// Why it is not started again at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<StartFailure>,
    /// Strategy that was last acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_strategy: Option<RunStrategy>,
    /// Generation that the instance was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Generation that the next instance will be made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i64>,
}

string_enum! {
    /// One word for people on where a machine stands.
    pub enum PrintableStatus {
        /// It does not run.
        Stopped = "Stopped",
        /// Its disks are prepared.
        Provisioning = "Provisioning",
        /// It is on its way up.
        Starting = "Starting",
        /// It runs.
        Running = "Running",
        /// It is paused.
        Paused = "Paused",
        /// It is on its way down.
        Stopping = "Stopping",
        /// It is being deleted.
        Terminating = "Terminating",
        /// It ended too often too soon.
        CrashLoopBackOff = "CrashLoopBackOff",
        /// It moves.
        Migrating = "Migrating",
        /// Its node does not answer.
        Unknown = "Unknown",
        /// No node will have it.
        Unschedulable = "ErrorUnschedulable",
        /// Its image cannot be pulled.
        ErrImagePull = "ErrImagePull",
        /// Its image could not be pulled; it is tried again.
        ImagePullBackOff = "ImagePullBackOff",
        /// A claim is missing.
        PvcNotFound = "ErrorPvcNotFound",
        /// A claim waits for its volume.
        WaitingForVolumeBinding = "WaitingForVolumeBinding",
        /// It waits to receive its guest from elsewhere.
        WaitingForReceiver = "WaitingForReceiver",
    }
}

/// A start or stop that a person asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateChangeRequest {
    /// What.
    pub action: StateChangeAction,
    /// Details.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Instance that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

string_enum! {
    /// What a person asked for.
    pub enum StateChangeAction {
        /// Start.
        Start = "Start",
        /// Stop.
        Stop = "Stop",
    }
}

/// Why a machine is not started again at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartFailure {
    /// Failures in a row.
    #[serde(default)]
    pub consecutive_fail_count: u32,
    /// Instance that failed last.
    #[serde(rename = "lastFailedVMIUID", skip_serializing_if = "Option::is_none")]
    pub last_failed_vmi_uid: Option<String>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_timestamp: Option<Time>,
}
