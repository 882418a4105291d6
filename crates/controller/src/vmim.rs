//! The reconciler of `VirtualMachineInstanceMigration`: looks, decides, acts, writes the status.
//!
//! It makes and deletes target pods, gives moves to the handlers by the instance's `migrationState`, and gives the instance its new
//! home. How a move goes is decided by [`migration::decide`]; nothing is decided here. Everything that a turn is decided from is
//! read from the API server itself, and between that look and the write that takes the turn nobody else takes one: so no limit is
//! ever exceeded.

mod act;
mod facts;
mod history;
mod settings;
mod status;

use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::{MigrationPhase, VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::names::{annotations, events, finalizers, labels, reasons};
use futures::StreamExt as _;
use futures::channel::mpsc;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, ResourceExt as _};
use migration::{Outcome, Target, Wait, texts};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::report::Note;
use crate::{Context, edit};
use facts::Surroundings;
pub(crate) use settings::{of_cluster as settings_of_cluster, unready};

type Migration = VirtualMachineInstanceMigration;

/// What the reconciliations of moves share.
struct Moves {
    context: Arc<Context>,
    /// Held by the one who may take a turn.
    turn: Mutex<()>,
    /// Every migration, as the watch has it.
    known: Store<Migration>,
    /// Told when a place is free.
    free: mpsc::UnboundedSender<()>,
}

/// Reconciles every migration until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let client = context.client.clone();
    let (free, freed) = mpsc::unbounded();
    let launchers = watcher::Config::default().labels(labels::MIGRATION_JOB_UID);
    let controller = Controller::new(Api::<Migration>::all(client.clone()), watcher::Config::default());
    let known = controller.store();
    let _counting = context.tally.count(known.clone());
    let moves = Arc::new(Moves { context, turn: Mutex::new(()), known: known.clone(), free });
    controller
        .watches(Api::<VirtualMachineInstance>::all(client.clone()), watcher::Config::default(), move |vmi| {
            of_instance(&known, &vmi)
        })
        .watches(Api::<Pod>::all(client), launchers, |pod| of_pod(&pod))
        .reconcile_all_on(freed)
        .run(reconcile, |_, error, _| controller::Action::requeue(error.retry_after()), moves)
        .for_each(async |_| {})
        .await;
}

/// Moves of this instance that are not over.
fn of_instance(known: &Store<Migration>, vmi: &VirtualMachineInstance) -> Vec<ObjectRef<Migration>> {
    let (name, namespace) = (vmi.name_any(), vmi.namespace());
    let concerned = |migration: &&Arc<Migration>| {
        migration.spec.vmi_name == name && migration.namespace() == namespace && !is_over(migration)
    };
    known.state().iter().filter(concerned).map(|migration| ObjectRef::from_obj(migration.as_ref())).collect()
}

/// The move that this pod was made for.
fn of_pod(pod: &Pod) -> Option<ObjectRef<Migration>> {
    let name = pod.annotations().get(annotations::MIGRATION_JOB_NAME)?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

pub(crate) fn phase(migration: &Migration) -> Option<MigrationPhase> {
    migration.status.as_ref()?.phase
}

pub(crate) fn is_over(migration: &Migration) -> bool {
    phase(migration).is_some_and(MigrationPhase::is_final)
}

async fn reconcile(migration: Arc<Migration>, moves: Arc<Moves>) -> Result<controller::Action, Error> {
    let report = &moves.context.report;
    report.on(&*migration, async |notes| Box::pin(bring_about(&migration, &moves, notes)).await).await
}

async fn bring_about(
    migration: &Migration,
    moves: &Moves,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let context = &moves.context;
    // Moves between clusters are the gateway's.
    if migration.spec.is_decentralized() || history::is_settled(migration, Timestamp::now()) {
        return Ok(controller::Action::await_change());
    }
    let migrations: Api<Migration> =
        Api::namespaced(context.client.clone(), &migration.namespace().unwrap_or_default());
    let mut current = hold(&migrations, migration).await?;

    let takes_a_turn =
        matches!(phase(migration), None | Some(MigrationPhase::Pending | MigrationPhase::Scheduled));
    let _turn = if takes_a_turn { Some(moves.turn.lock().await) } else { None };
    let mut surroundings = Surroundings::of(&current, context, takes_a_turn).await?;
    let facts = surroundings.facts(&current);
    if matches!(facts.target, Target::Waiting { unschedulable: Some(_) }) {
        let vmi = format!("{}/{}", current.namespace().unwrap_or_default(), current.spec.vmi_name);
        let text = format!("Migration target pod for VMI [{vmi}] is currently unschedulable.");
        notes.push(Note::failed(events::TARGET_POD_UNSCHEDULABLE, text));
    }
    let decision = migration::decide(&facts, Timestamp::now());

    for effect in &decision.effects {
        if let Err(error) = act::act(effect, &mut current, &mut surroundings, context, notes).await {
            if !error.is_conflict() {
                notes.push(act::failure(effect, &error));
                status::refused(&migrations, &current, &error).await?;
            }
            return Err(error);
        }
    }
    if decision.effects.contains(&migration::Effect::RemoveFinalizer) {
        return Ok(controller::Action::await_change());
    }
    let status = status::after(&current, &decision, &surroundings, Timestamp::now());
    if current.status.as_ref() != Some(&status) {
        let entered = phase(&current) != status.phase;
        current.status = Some(status);
        edit::status(&migrations, &current).await?;
        if entered {
            context.tally.entered(&current);
        }
        notes.extend(told(&decision.outcome));
    }
    if decision.phase.is_final() && !is_over(migration) {
        // Nobody listens when the controller stops, and then nobody waits either.
        let _ = moves.free.unbounded_send(());
    }
    if is_over(migration) {
        history::prune(migration, &moves.known, context).await?;
    }
    let again = match &decision.outcome {
        Outcome::Waits(wait) => decision.again.map(|again| again.min(look_again(wait))),
        _ => decision.again,
    };
    Ok(again.map_or_else(controller::Action::await_change, controller::Action::requeue))
}

/// A place that becomes free wakes those who wait. Of the installation, and of its limits, nobody is woken.
fn look_again(wait: &Wait) -> Duration {
    if wait.reason == reasons::INSTALLATION_NOT_READY {
        Duration::from_secs(2)
    } else {
        Duration::from_secs(30)
    }
}

/// A migration is held by a finalizer until it is over, and found by its instance's name.
async fn hold(migrations: &Api<Migration>, migration: &Migration) -> Result<Migration, Error> {
    let mut current = migration.clone();
    let held = current.finalizers().iter().any(|finalizer| finalizer == finalizers::MIGRATION);
    if current.metadata.deletion_timestamp.is_some() || is_over(migration) {
        return Ok(current);
    }
    if !held {
        current = edit::finalizer(migrations, &current, finalizers::MIGRATION, true).await?;
    }
    // A label has 63 characters; a name may have more, and is then found by the spec alone.
    let name = current.spec.vmi_name.clone();
    if name.len() <= 63 {
        current = edit::labels(migrations, &current, &[(labels::VMI_NAME, Some(&name))]).await?;
    }
    Ok(current)
}

/// What people hear of a step.
fn told(outcome: &Outcome) -> Option<Note> {
    match outcome {
        Outcome::GoesOn | Outcome::Waits(_) => None,
        Outcome::Succeeded => Some(Note::done(events::SUCCESSFUL_MIGRATION, texts::SUCCEEDED)),
        Outcome::Failed(why) => Some(Note::failed(events::FAILED_MIGRATION, why)),
        Outcome::Aborted(why) => Some(Note::done(events::SUCCESSFUL_ABORT_MIGRATION, why)),
    }
}
