//! Evacuation: a VM that was evicted from its node moves, and is moved again when that fails. So does one whose node has the taint of
//! `nodeDrainTaintKey`. When neither holds any more while the VM is still there, because somebody took the mark of the eviction or the
//! taint away, its evacuation is cancelled.
//!
//! It makes migrations and deletes those that it made, nothing else; the queue says when each begins. One at a time for each VM: what there
//! is is read from the API server itself.

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
use crate::edit;
use crate::error::{Error, describe};
use crate::report::Note;
use crate::vmim::{is_over, phase, settings_of_cluster};

type Migration = VirtualMachineInstanceMigration;

/// What evacuations share.
struct Evacuations {
    context: Arc<Context>,
    taints: Taints,
    under_way: UnderWay,
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

    /// None: nothing is known of the node yet.
    fn has(&self, node: &str, key: &str) -> Option<bool> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(node).map(|keys| keys.contains(key))
    }
}

/// The evacuations that go on, by UID, and whose they are, as the watch has them. Most VMs have none: of those nothing is read.
#[derive(Clone, Default)]
struct UnderWay(Arc<Mutex<BTreeMap<String, ObjectRef<VirtualMachineInstance>>>>);

impl UnderWay {
    fn learn(&self, migration: &Migration, whose: Option<&ObjectRef<VirtualMachineInstance>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = migration.uid().unwrap_or_default();
        match whose.filter(|_| evacuates_from(migration).is_some() && goes_on(migration)) {
            Some(whose) => known.insert(uid, whose.clone()),
            None => known.remove(&uid),
        };
    }

    fn has(&self, vmi: &VirtualMachineInstance) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |other: &ObjectRef<_>| {
            other.name == vmi.name_any() && other.namespace.as_deref() == vmi.metadata.namespace.as_deref()
        };
        known.values().any(is)
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
    let under_way = UnderWay::default();
    let following = under_way.clone();
    let evacuations = Arc::new(Evacuations { context, taints, under_way });
    controller
        .watches(nodes, watcher::Config::default(), move |node| {
            learning.learn(&node);
            let name = node.name_any();
            let there = known.state().into_iter().filter(move |vmi| runs_on(vmi) == Some(&name));
            there.map(|vmi| ObjectRef::from_obj(vmi.as_ref())).collect::<Vec<_>>()
        })
        .watches(migrations, watcher::Config::default(), move |migration| {
            let instance = ObjectRef::new(&migration.spec.vmi_name);
            let instance = migration.namespace().map(|namespace| instance.within(&namespace));
            following.learn(&migration, instance.as_ref());
            instance
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
    Evacuations { context, taints, under_way }: &Evacuations,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let drain = settings_of_cluster(context).node_drain_taint_key;
    let Some(node) = runs_on(vmi) else { return Ok(controller::Action::await_change()) };
    let leaves = must_leave(vmi, node, taints.has(node, &drain));
    let moves = eviction::moves(vmi, context.rules().defaults.eviction_strategy);
    // Nothing is cancelled before the node's taints are known: whoever has just begun to look knows none.
    let Some(leaves) = leaves.filter(|leaves| if *leaves { moves } else { under_way.has(vmi) }) else {
        return Ok(controller::Action::await_change());
    };
    let migrations: Api<Migration> =
        Api::namespaced(context.client.clone(), &vmi.namespace().unwrap_or_default());
    let all = migrations
        .list(&ListParams::default())
        .await
        .map_err(Error::api("listing the migrations of", describe(vmi)))?
        .items;
    let own: Vec<&Migration> =
        all.iter().filter(|migration| migration.spec.vmi_name == vmi.name_any()).collect();
    if !leaves {
        for migration in without_cause(&own, node) {
            let name = migration.name_any();
            edit::delete(&migrations, &name, &migration.uid().unwrap_or_default()).await?;
            let text = format!("Cancelled Migration {name}: it does not have to leave node {node} any more");
            notes.push(Note::done(events::SUCCESSFUL_DELETE, text));
        }
        return Ok(controller::Action::await_change());
    }
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

/// Whether the VM has to leave the node that it runs on: it was evicted, or the node is being drained. None: that is not known yet.
fn must_leave(vmi: &VirtualMachineInstance, node: &str, drained: Option<bool>) -> Option<bool> {
    let evicted = vmi.status.as_ref()?.evacuation_node_name.as_deref() == Some(node);
    if evicted { Some(true) } else { drained }
}

/// Moves under way that are to take a VM from this node, which it does not have to leave any more.
fn without_cause<'a>(own: &[&'a Migration], node: &str) -> Vec<&'a Migration> {
    own.iter().copied().filter(|one| evacuates_from(one) == Some(node) && goes_on(one)).collect()
}

/// Whether it is neither over nor asked to end: the last that is heard of one that is cancelled is that it was asked.
fn goes_on(migration: &Migration) -> bool {
    !is_over(migration) && migration.metadata.deletion_timestamp.is_none()
}

/// The node that a migration was made to take its VM from; none: it was made for something else.
fn evacuates_from(migration: &Migration) -> Option<&str> {
    migration.annotations().get(annotations::EVACUATION_MIGRATION).map(String::as_str)
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
    if own.iter().any(|migration| !is_over(migration)) {
        return Next::Wait;
    }
    let ended = |migration: &Migration| {
        let last = migration.status.as_ref()?.phase_transition_timestamps.last()?;
        Some(last.phase_transition_timestamp.0)
    };
    let mut attempts: Vec<_> = own.iter().map(|migration| (ended(migration), *migration)).collect();
    attempts.sort_by_key(|(ended, _)| std::cmp::Reverse(*ended));
    let failed = |migration: &Migration| {
        phase(migration) == Some(MigrationPhase::Failed) && evacuates_from(migration) == Some(node)
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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

    #[test]
    fn an_evacuation_without_a_cause_is_cancelled_and_nothing_else_is() {
        let (running, done, mut asked, mut other) =
            (attempt("Running", 1), attempt("Succeeded", 1), attempt("Running", 1), attempt("Running", 1));
        asked.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        other.metadata.annotations = None;
        let all = [&running, &done, &asked, &other];
        assert_eq!(without_cause(&all, "a"), [&running]);
        assert_eq!(without_cause(&all, "b"), Vec::<&Migration>::new(), "the VM has arrived there");
    }

    #[test]
    fn a_node_of_which_nothing_is_known_is_no_reason_to_cancel() {
        let vmi = |evicted: Option<&str>| -> VirtualMachineInstance {
            serde_json::from_value(json!({
                "metadata": { "name": "wren" }, "spec": { "domain": { "devices": {} } },
                "status": { "phase": "Running", "nodeName": "a", "evacuationNodeName": evicted },
            }))
            .unwrap()
        };
        assert_eq!(must_leave(&vmi(None), "a", None), None);
        assert_eq!(must_leave(&vmi(Some("a")), "a", None), Some(true));
        assert_eq!(must_leave(&vmi(Some("b")), "a", Some(false)), Some(false));
        assert_eq!(must_leave(&vmi(None), "a", Some(true)), Some(true));
    }
}
