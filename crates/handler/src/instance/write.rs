//! Writing what the handler says of an instance, and nothing else.
//!
//! A merge patch of the status fields that differ, valid only for the version that was looked at: the controller writes the same
//! status, and neither takes back what the other wrote.

use api::kubevirt::{InstancePhase, VirtualMachineInstance, VirtualMachineInstanceStatus};
use api::names::events;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};

use crate::error::chain;

/// How a write came out.
#[derive(Debug)]
pub enum Written {
    /// As the API has it now.
    Done(Box<VirtualMachineInstance>),
    /// Somebody else wrote meanwhile: look again.
    Outdated,
}

/// Writes the status. The instance is gone: there is nothing to say, and that is well.
pub async fn status(
    client: &Client,
    instance: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) -> Result<Written, kube::Error> {
    let namespace = instance.namespace().unwrap_or_default();
    let instances: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
    let patch = Patch::Merge(difference(instance, status));
    match instances.patch_status(&instance.name_any(), &PatchParams::default(), &patch).await {
        Ok(written) => Ok(Written::Done(Box::new(written))),
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(Written::Outdated),
        Err(cause) => Err(cause),
    }
}

/// The fields that differ; one that is to go is null.
fn difference(instance: &VirtualMachineInstance, new: &VirtualMachineInstanceStatus) -> Value {
    let (old, new) = (fields(&instance.status.clone().unwrap_or_default()), fields(new));
    let mut changed: Map<String, Value> = new
        .iter()
        .filter(|(name, value)| old.get(*name) != Some(value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    changed
        .extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null)));
    // The UID too: an instance of the same name that came after is another one.
    let (version, uid) = (instance.resource_version(), instance.uid());
    json!({ "metadata": { "resourceVersion": version, "uid": uid }, "status": changed })
}

fn fields(status: &VirtualMachineInstanceStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        // A struct of plain values is an object; were it not, nothing would be written.
        _ => Map::new(),
    }
}

/// Tells people of a new phase. An event that cannot be written is not worth more than a line in the log.
pub async fn event(
    recorder: &Recorder,
    instance: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) {
    let before = instance.status.as_ref().and_then(|status| status.phase);
    if status.phase == before {
        return;
    }
    let (type_, reason, note) = match status.phase {
        Some(InstancePhase::Running) => (EventType::Normal, events::STARTED, "the guest runs".to_owned()),
        Some(InstancePhase::Succeeded) => {
            (EventType::Normal, events::STOPPED, "the guest has shut down".to_owned())
        }
        Some(InstancePhase::Failed) => {
            let why = status.reason.clone().unwrap_or_default();
            (EventType::Warning, events::STOPPED, format!("the guest did not end well: {why}"))
        }
        _ => return,
    };
    let event = Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Follow".to_owned(),
        secondary: None,
    };
    if let Err(cause) = recorder.publish(&event, &instance.object_ref(&())).await {
        tracing::warn!(instance = instance.name_any(), cause = chain(&cause), "an event cannot be written");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    #[test]
    fn only_what_differs_is_written_and_only_over_what_was_seen() {
        let instance: VirtualMachineInstance = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "vm", "uid": "u", "resourceVersion": "7" }, "spec": { "domain": { "devices": {} } },
            "status": { "phase": "Scheduled", "nodeName": "a", "reason": "old" },
        }))
        .unwrap();
        let status = VirtualMachineInstanceStatus {
            phase: Some(InstancePhase::Running),
            node_name: Some("a".to_owned()),
            ..VirtualMachineInstanceStatus::default()
        };
        let expected = json!({ "metadata": { "resourceVersion": "7", "uid": "u" },
            "status": { "phase": "Running", "reason": null } });
        assert_eq!(difference(&instance, &status), expected);
    }
}
