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

/// Tells people of what is new. An event that cannot be written is not worth more than a line in the log.
pub async fn event(
    recorder: &Recorder,
    instance: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) {
    let before = instance.status.clone().unwrap_or_default();
    for (type_, reason, note) in of_phase(&before, status).into_iter().chain(of_move(&before, status)) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Follow".to_owned(),
            secondary: None,
        };
        if let Err(cause) = recorder.publish(&event, &instance.object_ref(&())).await {
            tracing::warn!(
                instance = instance.name_any(),
                cause = chain(&cause),
                "an event cannot be written"
            );
        }
    }
}

type News = (EventType, &'static str, String);

fn of_phase(before: &VirtualMachineInstanceStatus, now: &VirtualMachineInstanceStatus) -> Option<News> {
    if now.phase == before.phase {
        return None;
    }
    match now.phase? {
        InstancePhase::Running => Some((EventType::Normal, events::STARTED, "the guest runs".to_owned())),
        InstancePhase::Succeeded => {
            Some((EventType::Normal, events::STOPPED, "the guest has shut down".to_owned()))
        }
        InstancePhase::Failed => {
            let why = now.reason.clone().unwrap_or_default();
            Some((EventType::Warning, events::STOPPED, format!("the guest did not end well: {why}")))
        }
        _ => None,
    }
}

/// The texts are KubeVirt's. How a move failed is the controller's to say.
fn of_move(before: &VirtualMachineInstanceStatus, now: &VirtualMachineInstanceStatus) -> Vec<News> {
    let Some(state) = &now.migration_state else { return Vec::new() };
    let before = before.migration_state.clone().unwrap_or_default();
    let mut news = Vec::new();
    if let Some(address) = state.target_node_address.as_ref().filter(|_| before.target_node_address.is_none())
    {
        let ports: Vec<_> = state.target_direct_migration_node_ports.keys().cloned().collect();
        let note = format!("Migration Target is listening at {address}, on ports: {}", ports.join(","));
        news.push((EventType::Normal, events::PREPARING_TARGET, note));
    }
    if state.start_timestamp.is_some() && before.start_timestamp.is_none() {
        let note = "VirtualMachineInstance is migrating.".to_owned();
        news.push((EventType::Normal, events::MIGRATING, note));
    }
    if state.completed && !state.failed && !before.completed {
        let node = state.target_node.as_deref().unwrap_or_default();
        let note = format!("The VirtualMachineInstance migrated to node {node}.");
        news.push((EventType::Normal, events::MIGRATED, note));
    }
    news
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
