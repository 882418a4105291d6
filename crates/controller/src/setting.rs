//! The reconciler of the setting `vm-migration-network`: looks, decides, acts, writes the condition.
//!
//! It writes the setting's definitions and one field of `KubeVirt`, each by server-side apply with a field manager of its own, so
//! that nobody else's words are touched; handlers are the operator's. `presence` creates the setting itself when it is missing.
//! It is called when the setting, a definition, the `KubeVirt` object, a pod of the installation or what the network must fit changes,
//! and from time to time; what was changed by hand is put right.

pub mod decide;
pub mod definition;
mod look;
pub mod phase;
mod presence;
mod surroundings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::condition;
use api::harvester::Setting;
use api::kubevirt::KubeVirt;
use api::multus::NetworkAttachmentDefinition;
use api::names::{annotations, conditions, objects, reasons};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::admission::Answer;
use crate::admission::setting as admission;
use crate::error::{Error, describe, named};
use crate::report::Note;
use crate::{Context, edit};
use decide::{Action, Decision, Installation, Situation};
use look::Unseen;
use phase::{Phase, Told};

/// How long until the first and at most until any next attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What one reconciliation shares with the next: how often it has failed in a row, and nothing else.
struct Work {
    context: Arc<Context>,
    failures: AtomicU32,
}

/// Judges a request about the setting.
pub(crate) async fn review(client: &Client, namespace: &str, request: &Value) -> Answer {
    if let Some(answer) = admission::settled(request) {
        return answer;
    }
    let look = async {
        let cluster = look::cluster(client, namespace).await.map_err(|unseen| unseen.error)?;
        Ok::<_, Error>((cluster, look::migrations(client).await?))
    };
    match look.await {
        Ok((cluster, migrations)) => admission::judge(request, &cluster, &migrations),
        Err(error) => Answer::Deny {
            code: 500,
            reason: "InternalError",
            message: format!("The cluster cannot be looked at: {}. Try again.", error.explain()),
        },
    }
}

/// Reconciles the setting until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let (client, namespace) = (context.client.clone(), context.namespace.clone());
    let settings: Api<Setting> = Api::all(client.clone());
    let ours =
        watcher::Config::default().fields(&format!("metadata.name={}", objects::MIGRATION_NETWORK_SETTING));
    let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), &namespace);
    let installations: Api<KubeVirt> = Api::namespaced(client.clone(), &namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let (changes, following) = surroundings::follow(&client);
    let all = watcher::Config::default;
    let reconciling = Controller::new(settings, ours)
        .watches(definitions, all(), |_| Some(setting()))
        .watches(installations, all(), |_| Some(setting()))
        .watches(pods, all(), |_| Some(setting()))
        .reconcile_all_on(changes)
        .run(reconcile, retry, Arc::new(Work { context, failures: AtomicU32::new(0) }))
        .for_each(async |_| {});
    tokio::join!(following, reconciling, presence::ensure(&client));
}

fn setting() -> ObjectRef<Setting> {
    ObjectRef::new(objects::MIGRATION_NETWORK_SETTING)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that a controller calls")]
fn retry(_: Arc<Setting>, error: &Error, work: Arc<Work>) -> controller::Action {
    if error.is_conflict() {
        return controller::Action::requeue(error.retry_after());
    }
    let failures = work.failures.fetch_add(1, Ordering::Relaxed);
    let pause = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(failures.min(16)).unwrap_or(1));
    controller::Action::requeue(pause.min(LONGEST_PAUSE))
}

async fn reconcile(setting: Arc<Setting>, work: Arc<Work>) -> Result<controller::Action, Error> {
    let report = &work.context.report;
    let result = report.on(&*setting, async |notes| bring_about(&setting, &work.context, notes).await).await;
    if result.is_ok() {
        work.failures.store(0, Ordering::Relaxed);
    }
    result
}

async fn bring_about(
    setting: &Setting,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let settings: Api<Setting> = Api::all(context.client.clone());
    let mut current = setting.clone();
    let Decision { actions, phase, attention, again } = match look_and_decide(setting, context).await {
        Ok(decision) => decision,
        Err(Unseen { reason, error }) => {
            let phase = Phase::Failed { reason, why: error.explain() };
            tell(&settings, &current, &phase.tell(&[]), true, notes).await?;
            return Err(error);
        }
    };
    for action in &actions {
        let (reason, done) = act(action, &mut current, context).await;
        match done {
            Ok(note) => notes.extend(note),
            Err(error) if error.is_conflict() => return Err(error),
            Err(error) => {
                let phase = Phase::Failed { reason, why: error.explain() };
                tell(&settings, &current, &phase.tell(&[]), true, notes).await?;
                return Err(error);
            }
        }
    }
    let warns = phase.is_failure() || !attention.is_empty();
    tell(&settings, &current, &phase.tell(&attention), warns, notes).await?;
    Ok(controller::Action::requeue(again))
}

async fn look_and_decide(setting: &Setting, context: &Context) -> Result<Decision, Unseen> {
    let (client, namespace) = (&context.client, context.namespace.as_str());
    let cluster = look::cluster(client, namespace).await?;
    let definitions = look::definitions(client, namespace).await?;
    let pods = look::pods(client, namespace).await?;
    let moving = look::moving(&look::migrations(client).await?);
    Ok(decide::decide(&Situation {
        setting,
        namespace,
        cluster: &cluster,
        definitions: &definitions,
        pods: &pods,
        moving: &moving,
    }))
}

/// Writes the condition, if it says something new; what is new in kind is also an event.
async fn tell(
    settings: &Api<Setting>,
    setting: &Setting,
    told: &Told,
    warning: bool,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let mut next = setting.clone();
    let before = condition::find(
        setting.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default(),
        conditions::CONFIGURED,
    );
    let same_kind = before.is_some_and(|before| before.reason.as_deref() == Some(told.reason));
    let status = next.status.get_or_insert_default();
    if !condition::set(&mut status.conditions, &told.observed(), Timestamp::now()) {
        return Ok(());
    }
    edit::status_in_object(settings, setting, &next.status).await?;
    if !same_kind || warning {
        notes.push(Note { reason: told.reason.to_owned(), text: told.message.clone(), warning });
    }
    Ok(())
}

/// Does one thing; with the reason to give should it fail.
async fn act(
    action: &Action,
    current: &mut Setting,
    context: &Context,
) -> (&'static str, Result<Option<Note>, Error>) {
    let client = &context.client;
    let definitions: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), &context.namespace);
    let done = |text: String| Some(Note::done("MigrationNetwork", text));
    match action {
        Action::Define(definition) => {
            let name = definition.name_any();
            let written = definitions
                .patch(&name, &applying(), &Patch::Apply(definition))
                .await
                .map_err(Error::api("applying", describe(&**definition)));
            (reasons::CREATE_DEFINITION_ERROR, written.map(|_| done(format!("wrote definition {name}"))))
        }
        Action::Use { installation, definition } => {
            let used = set_network(context, installation, Some(definition)).await;
            (
                reasons::UPDATE_KUBEVIRT_ERROR,
                used.map(|()| done(format!("had KubeVirt use definition {definition}"))),
            )
        }
        Action::Leave { installation } => {
            let left = set_network(context, installation, None).await;
            (
                reasons::UPDATE_KUBEVIRT_ERROR,
                left.map(|()| done("had KubeVirt use the pod network".to_owned())),
            )
        }
        Action::Undefine { name, uid } => {
            let deleted = edit::delete(&definitions, name, uid).await;
            (
                reasons::REMOVE_OLD_DEFINITION_ERROR,
                deleted.map(|()| done(format!("deleted definition {name}, which nobody uses any more"))),
            )
        }
        Action::Record { hash, definition } => {
            let noted = [
                (annotations::MIGRATION_NETWORK_HASH, hash.as_deref()),
                (annotations::MIGRATION_NETWORK_DEFINITION, definition.as_deref()),
            ];
            let written = edit::annotate(&Api::all(client.clone()), current, &noted).await;
            (
                reasons::APPLYING,
                written.map(|written| {
                    *current = written;
                    None
                }),
            )
        }
    }
}

fn applying() -> PatchParams {
    PatchParams::apply(objects::MIGRATION_NETWORK_MANAGER).force()
}

/// Sets the one field of `KubeVirt` that is ours, or takes our word back.
async fn set_network(
    context: &Context,
    Installation { name, uid }: &Installation,
    network: Option<&str>,
) -> Result<(), Error> {
    let api: Api<KubeVirt> = Api::namespaced(context.client.clone(), &context.namespace);
    let ours = network.map(|network| json!({ "configuration": { "migrations": { "network": network } } }));
    let patch = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        // With its UID: an apply must not make another one.
        "metadata": { "name": name, "uid": uid },
        "spec": ours.unwrap_or_else(|| json!({})),
    });
    let failed =
        || Error::api("setting the migration network of", named::<KubeVirt>(Some(&context.namespace), name));
    let written = api.patch(name, &applying(), &Patch::Apply(&patch)).await.map_err(failed())?;
    // Whoever else has set the same word by hand still says it.
    let still = decide::used(&written, &context.namespace).is_some_and(definition::is_ours);
    if network.is_none() && still {
        let patch = json!({
            "metadata": { "resourceVersion": written.resource_version() },
            "spec": { "configuration": { "migrations": { "network": null } } },
        });
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(failed())?;
    }
    Ok(())
}
