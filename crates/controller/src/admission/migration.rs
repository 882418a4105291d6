//! Whether a VM may be asked to move now, and what a migration leaves open.
//!
//! A migration that cannot work is refused at once, with the reason: nobody has to find out from its phase.

use api::condition::{self, ConditionEntry as _};
use api::kubevirt::{
    InstancePhase, KubeVirt, MigrationPhase, MigrationPriority, VirtualMachineInstance,
    VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec,
};
use api::names::{conditions, finalizers, labels, objects, reasons};
use kube::ResourceExt as _;
use migration::texts;
use serde_json::{Value, json};

use super::{Answer, Cause, Causes};
use crate::vmim::unready;

/// What the judgement looks at, besides the migration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// Migrations of the namespace.
    pub others: &'a [VirtualMachineInstanceMigration],
    pub installation: Option<&'a KubeVirt>,
}

/// Everything that is in the way of a new migration.
pub fn validate(
    spec: &VirtualMachineInstanceMigrationSpec,
    namespace: &str,
    around: Around<'_>,
) -> Vec<Cause> {
    let mut causes = Causes::default();
    let name = &spec.vmi_name;
    if let Some(message) = around.installation.and_then(unready) {
        causes.push("FieldValueForbidden", "spec", format!("Cannot migrate VMI now: {message}."));
    }
    let Some(vmi) = around.vmi else {
        causes.push(
            "FieldValueNotFound",
            "spec.vmiName",
            format!("the VMI \"{namespace}/{name}\" does not exist"),
        );
        return causes.0;
    };
    let status = vmi.status.clone().unwrap_or_default();
    if status.phase.is_some_and(InstancePhase::is_final) || vmi.metadata.deletion_timestamp.is_some() {
        causes.invalid("spec.vmiName", "Cannot migrate VMI in finalized state.");
        return causes.0;
    }
    // The VM of a target cluster waits for its guest and does not run.
    if spec.receive.is_none() && status.phase != Some(InstancePhase::Running) {
        let phase = status.phase.map_or_else(|| "new".to_owned(), |phase| phase.to_string());
        let message =
            format!("the VMI \"{namespace}/{name}\" does not run ({phase}): migrate it when it does.");
        causes.invalid("spec.vmiName", message);
    }
    if condition::is_false(&status.conditions, conditions::LIVE_MIGRATABLE)
        && let Some(bound) = condition::find(&status.conditions, conditions::LIVE_MIGRATABLE)
        // A move between clusters copies disks.
        && !(spec.is_decentralized() && bound.reason() == reasons::DISKS_NOT_LIVE_MIGRATABLE)
    {
        causes.invalid("spec.vmiName", texts::not_migratable(bound.reason(), bound.message()));
    }
    let active = |other: &&VirtualMachineInstanceMigration| {
        let phase = other.status.as_ref().and_then(|status| status.phase);
        other.spec.vmi_name == *name && !phase.is_some_and(MigrationPhase::is_final)
    };
    if let Some(active) = around.others.iter().find(active) {
        let uid = active.uid().unwrap_or_default();
        causes.push("FieldValueDuplicate", "spec.vmiName", texts::in_flight(&uid, name));
    }
    causes.0
}

/// Fills in what a new migration leaves open: its finalizer, the label by which it is found, its place in the queue.
pub fn fill_in(request: &Value, namespace: &str) -> Answer {
    let object = &request["object"];
    let spec = &object["spec"];
    if spec["priority"].is_string() && !is_system(&request["userInfo"], namespace) {
        let mut causes = Causes::default();
        causes.push(
            "FieldValueForbidden",
            "spec.priority",
            "Only the system sets the priority of a migration: leave it out.",
        );
        return Answer::Refuse(causes.0);
    }
    let mut patch = Vec::new();
    let mut add = |path: &str, value: Value| patch.push(json!({ "op": "add", "path": path, "value": value }));
    let name = spec["vmiName"].as_str().unwrap_or_default();
    let metadata = &object["metadata"];
    if metadata["labels"].is_null() {
        add("/metadata/labels", json!({}));
    }
    // A label has 63 characters; a name may have more, and is then found by the spec alone.
    if (1..=63).contains(&name.len()) {
        add(&format!("/metadata/labels/{}", labels::VMI_NAME.replace('/', "~1")), json!(name));
    }
    let held = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    if !held.contains(&json!(finalizers::MIGRATION)) {
        let held: Vec<Value> = held.into_iter().chain([json!(finalizers::MIGRATION)]).collect();
        add("/metadata/finalizers", json!(held));
    }
    if spec["priority"].is_null() {
        add("/spec/priority", json!(MigrationPriority::UserTriggered));
    }
    Answer::Change(patch)
}

/// The controller itself, or one who may do everything anyway.
fn is_system(user: &Value, namespace: &str) -> bool {
    let controller = format!("system:serviceaccount:{namespace}:{}", objects::CONTROLLER);
    let groups = user["groups"].as_array();
    user["username"] == controller.as_str()
        || groups.is_some_and(|groups| groups.contains(&json!("system:masters")))
}
