//! Evacuation: a VM that was evicted from its node moves, and is moved again when that fails. So does one whose node has the taint of
//! `nodeDrainTaintKey`.
//!
//! It makes migrations and nothing else; the queue says when each begins. One at a time for each VM: what there is is read from
//! the API server itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::kubevirt::{
    InstancePhase, MigrationPhase, MigrationPriority, VirtualMachineInstance,
    VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec,
};
use api::names::{annotations, events, objects};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, ResourceExt as _};

use crate::Context;
use crate::admission::eviction;
use crate::error::{Error, describe};
use crate::report::Note;
use crate::vmim::settings_of_cluster;

type Migration = VirtualMachineInstanceMigration;

/// What evacuations share.
struct Evacuations {
    context: Arc<Context>,
    taints: Taints,
}

/// Keys of the taints that keep pods away, by node, as the watch has them.
#[derive(Clone, Default)]
struct Taints(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Taints {
    fn learn(&self, node: &Node) {
        let all = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let keys = all.iter().filter(|taint| taint.effect == "NoSchedule").map(|taint| taint.key.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(node.name_any(), keys.collect());
    }

    fn has(&self, node: &str, key: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(node).is_some_and(|keys| keys.contains(key))
    }
}

/// Evacuates until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    let migrations: Api<Migration> = Api::all(context.client.clone());
    let controller = Controller::new(instances, watcher::Config::default());
    let known = controller.store();
    let taints = Taints::default();
    let (learning, nodes) = (taints.clone(), Api::<Node>::all(context.client.clone()));
    let evacuations = Arc::new(Evacuations { context, taints });
    controller
        .watches(nodes, watcher::Config::default(), move |node| {
            learning.learn(&node);
            let name = node.name_any();
            let there = known.state().into_iter().filter(move |vmi| runs_on(vmi) == Some(&name));
            there.map(|vmi| ObjectRef::from_obj(vmi.as_ref())).collect::<Vec<_>>()
        })
        .watches(migrations, watcher::Config::default(), |migration| {
            let instance = ObjectRef::new(&migration.spec.vmi_name);
            migration.namespace().map(|namespace| instance.within(&namespace))
        })
        .run(reconcile, |_, error, _| controller::Action::requeue(error.retry_after()), evacuations)
        .for_each(async |_| {})
        .await;
}

async fn reconcile(
    vmi: Arc<VirtualMachineInstance>,
    evacuations: Arc<Evacuations>,
) -> Result<controller::Action, Error> {
    let report = &evacuations.context.report;
    report.on(&*vmi, async |notes| evacuate(&vmi, &evacuations, notes).await).await
}

async fn evacuate(
    vmi: &VirtualMachineInstance,
    Evacuations { context, taints }: &Evacuations,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let drain = settings_of_cluster(context).node_drain_taint_key;
    let Some(node) = must_leave(vmi, |node| taints.has(node, &drain)) else {
        return Ok(controller::Action::await_change());
    };
    if !eviction::moves(vmi, context.rules().defaults.eviction_strategy) {
        return Ok(controller::Action::await_change());
    }
    let migrations: Api<Migration> =
        Api::namespaced(context.client.clone(), &vmi.namespace().unwrap_or_default());
    let all = migrations
        .list(&ListParams::default())
        .await
        .map_err(Error::api("listing the migrations of", describe(vmi)))?
        .items;
    let own: Vec<&Migration> =
        all.iter().filter(|migration| migration.spec.vmi_name == vmi.name_any()).collect();
    match next(&own, node, Timestamp::now()) {
        Next::Wait => Ok(controller::Action::await_change()),
        Next::Pause(left) => {
            let text = format!("the next attempt to evacuate it begins in {} s", left.as_secs());
            notes.push(Note::failed(events::MIGRATION_BACKOFF, text));
            Ok(controller::Action::requeue(left))
        }
        Next::Move => {
            let made = migrations
                .create(&PostParams::default(), &migration_for(vmi, node))
                .await
                .map_err(Error::api("making a migration to evacuate", describe(vmi)))?;
            let text = format!("Created Migration {} to leave node {node}", made.name_any());
            notes.push(Note::done(events::SUCCESSFUL_CREATE, text));
            Ok(controller::Action::await_change())
        }
    }
}

/// The node that the VM runs on and has to leave: it was evicted, or the node is being drained.
fn must_leave(vmi: &VirtualMachineInstance, drained: impl Fn(&str) -> bool) -> Option<&str> {
    let node = runs_on(vmi)?;
    let evicted = vmi.status.as_ref()?.evacuation_node_name.as_deref() == Some(node);
    (evicted || drained(node)).then_some(node)
}

/// Where the VM runs, unless it is about to end.
fn runs_on(vmi: &VirtualMachineInstance) -> Option<&str> {
    let status = vmi.status.as_ref()?;
    let runs = status.phase == Some(InstancePhase::Running) && vmi.metadata.deletion_timestamp.is_none();
    status.node_name.as_deref().filter(|_| runs)
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// It moves already.
    Wait,
    /// The last attempts failed.
    Pause(Duration),
    Move,
}

/// What to do for a VM that has to leave this node, from its migrations.
fn next(own: &[&Migration], node: &str, now: Timestamp) -> Next {
    let phase = |migration: &Migration| migration.status.as_ref().and_then(|status| status.phase);
    if own.iter().any(|migration| !phase(migration).is_some_and(MigrationPhase::is_final)) {
        return Next::Wait;
    }
    let ended = |migration: &Migration| {
        let last = migration.status.as_ref()?.phase_transition_timestamps.last()?;
        Some(last.phase_transition_timestamp.0)
    };
    let mut attempts: Vec<_> = own.iter().map(|migration| (ended(migration), *migration)).collect();
    attempts.sort_by_key(|(ended, _)| std::cmp::Reverse(*ended));
    let failed = |migration: &Migration| {
        phase(migration) == Some(MigrationPhase::Failed)
            && migration.annotations().get(annotations::EVACUATION_MIGRATION).map(String::as_str)
                == Some(node)
    };
    let failures = attempts.iter().take_while(|(_, migration)| failed(migration)).count();
    let pause = migration::pause_after(u32::try_from(failures).unwrap_or(u32::MAX));
    let since = attempts.first().and_then(|(ended, _)| *ended).unwrap_or(now);
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match pause.checked_sub(passed).filter(|left| !left.is_zero()) {
        Some(left) => Next::Pause(left),
        None => Next::Move,
    }
}

fn migration_for(vmi: &VirtualMachineInstance, node: &str) -> Migration {
    // What rebalances may wait for what a person or a drain needs.
    let rebalances = vmi.annotations().contains_key(annotations::EVICTION_SOURCE);
    let priority =
        if rebalances { MigrationPriority::SystemMaintenance } else { MigrationPriority::SystemCritical };
    Migration {
        metadata: ObjectMeta {
            generate_name: Some(objects::EVACUATION_PREFIX.into()),
            annotations: Some([(annotations::EVACUATION_MIGRATION.to_owned(), node.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: VirtualMachineInstanceMigrationSpec {
            vmi_name: vmi.name_any(),
            priority: Some(priority),
            ..VirtualMachineInstanceMigrationSpec::default()
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;
    use serde_json::json;

    fn attempt(phase: &str, ended: i64) -> Migration {
        let at = Timestamp::from_second(ended).unwrap().to_string();
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": "m", "annotations": { annotations::EVACUATION_MIGRATION: "a" } },
            "spec": { "vmiName": "wren" },
            "status": { "phase": phase, "phaseTransitionTimestamps": [{ "phase": phase, "phaseTransitionTimestamp": at }] },
        }))
        .unwrap()
    }

    #[test]
    fn each_failure_doubles_the_pause_and_a_success_ends_it() {
        let now = Timestamp::from_second(1000).unwrap();
        let (failed, earlier, done) =
            (attempt("Failed", 990), attempt("Failed", 900), attempt("Succeeded", 950));
        let running = attempt("Running", 999);
        assert_eq!(next(&[], "a", now), Next::Move);
        assert_eq!(next(&[&failed], "a", now), Next::Pause(Duration::from_secs(10)));
        assert_eq!(next(&[&earlier, &failed], "a", now), Next::Pause(Duration::from_secs(30)));
        assert_eq!(next(&[&earlier, &done, &failed], "a", now), Next::Pause(Duration::from_secs(10)));
        assert_eq!(next(&[&failed], "b", now), Next::Move, "another node is another story");
        assert_eq!(next(&[&failed, &running], "a", now), Next::Wait);
        assert_eq!(next(&[&earlier], "a", now), Next::Move, "it has waited long enough");
    }
}
