//! What a step of a move does. Each effect may be done again by one who does not know that it was done.

use api::kubevirt::{CommonState, MigrationState, SourceState, TargetState, VirtualMachineInstance};
use api::names::{annotations, events, finalizers, labels, objects};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use migration::{Effect, texts};

use super::Migration;
use super::facts::Surroundings;
use crate::error::{Error, describe, named};
use crate::report::Note;
use crate::vmi::launcher_image;
use crate::{Context, edit, pod};

pub(super) async fn act(
    effect: &Effect,
    migration: &mut Migration,
    around: &mut Surroundings,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let namespace = migration.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    match effect {
        Effect::CreateTarget => create_target(migration, around, &pods, context, notes).await,
        Effect::HandOver => hand_over(migration, around, context, notes).await,
        Effect::RequestAbort(why) => {
            notes.push(Note::done(events::MIGRATING, texts::ABORTING));
            change_record(around, context, |state| {
                state.abort_requested = true;
                state.failure_reason.get_or_insert_with(|| why.clone());
            })
            .await
        }
        Effect::Close(why) => change_record(around, context, |state| state.fail(why, Timestamp::now())).await,
        Effect::Complete => {
            change_record(around, context, |state| {
                state.completed = true;
                state.end_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
            })
            .await
        }
        Effect::MarkTarget => mark_target(migration, around, &pods).await,
        Effect::SwitchOver => switch_over(migration, around, context).await,
        Effect::Release => relabel(around, context, &[(labels::MIGRATION_TARGET_NODE_NAME, None)]).await,
        Effect::DeleteTarget => delete(around.target(migration), &pods, notes).await,
        Effect::DeleteSource => delete(around.source(migration), &pods, notes).await,
        Effect::Forget => forget(migration, around, context).await,
        Effect::RemoveFinalizer => {
            let migrations: Api<Migration> = Api::namespaced(context.client.clone(), &namespace);
            *migration = edit::finalizer(&migrations, migration, finalizers::MIGRATION, false).await?;
            Ok(())
        }
    }
}

/// What people hear when a step could not be taken.
pub(super) fn failure(effect: &Effect, error: &Error) -> Note {
    let reason = match effect {
        Effect::CreateTarget => events::FAILED_CREATE,
        Effect::HandOver => events::FAILED_HAND_OVER,
        Effect::RequestAbort(_) => events::FAILED_ABORT_MIGRATION,
        Effect::DeleteTarget | Effect::DeleteSource => events::FAILED_DELETE,
        _ => events::FAILED_MIGRATION,
    };
    Note::failed(reason, error.explain())
}

async fn create_target(
    migration: &Migration,
    around: &Surroundings,
    pods: &Api<Pod>,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let Some(vmi) = &around.vmi else { return Ok(()) };
    let claims = around.active().map(pod::claims_of).unwrap_or_default();
    let target = pod::render_target(vmi, migration, &claims, &context.launcher);
    match pods.create(&PostParams::default(), &target).await {
        Ok(made) => {
            let text = format!(
                "Created migration target pod {}/{}",
                vmi.namespace().unwrap_or_default(),
                made.name_any()
            );
            notes.push(Note::done(events::SUCCESSFUL_CREATE, text));
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            edit::already_made(pods, &target, labels::MIGRATION_JOB_UID).await
        }
        Err(source) => Err(Error::api("making", describe(&target))(source)),
    }
}

/// Gives the move to the handlers: what it needs, the record, and last the label by which the target's handler finds it.
async fn hand_over(
    migration: &Migration,
    around: &mut Surroundings,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    if around.record(migration).is_none() {
        let Some(state) = record(migration, around) else { return Ok(()) };
        if around.settings.options.disable_tls {
            lend_token(migration, context).await?;
        }
        write_record(around, context, state).await?;
        notes.push(Note::done(events::SUCCESSFUL_HAND_OVER, texts::HANDED_OVER));
    }
    let node = around.record(migration).and_then(|state| state.target_node.clone()).unwrap_or_default();
    relabel(around, context, &[(labels::MIGRATION_TARGET_NODE_NAME, Some(&node))]).await
}

/// The record of a move that begins. An older one is replaced whole.
fn record(migration: &Migration, around: &Surroundings) -> Option<MigrationState> {
    let vmi = around.vmi.as_ref()?;
    let (source, target) = (around.active()?, around.target(migration)?);
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let side = |pod: &Pod| CommonState {
        node: node(pod),
        pod: Some(pod.name_any()),
        migration_uid: migration.uid(),
        domain_name: Some(vmi.name_any()),
        domain_namespace: vmi.namespace(),
        virtual_machine_instance_uid: vmi.uid(),
        ..CommonState::default()
    };
    Some(MigrationState {
        migration_uid: migration.uid(),
        source_node: node(source),
        source_pod: Some(source.name_any()),
        target_node: node(target),
        target_pod: Some(target.name_any()),
        source_state: Some(SourceState { common: side(source), ..SourceState::default() }),
        target_state: Some(TargetState { common: side(target), ..TargetState::default() }),
        migration_configuration: Some(around.settings.options.clone()),
        migration_policy_name: around.settings.policy.clone(),
        ..MigrationState::default()
    })
}

/// The secret that stands in for certificates where TLS is switched off: known to the two handlers of this move alone.
async fn lend_token(migration: &Migration, context: &Context) -> Result<(), Error> {
    let namespace = objects::migration_tokens(&context.namespace);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    // Two random UUIDs: 244 bits that nobody can guess, in the form that a token has.
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let secret = Secret {
        metadata: ObjectMeta { name: Some(token_name(migration)), ..ObjectMeta::default() },
        string_data: Some([(objects::MIGRATION_TOKEN_KEY.to_owned(), token)].into()),
        ..Secret::default()
    };
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(source) => {
            let secret = named::<Secret>(Some(&namespace), &token_name(migration));
            Err(Error::api("making", secret)(source))
        }
    }
}

async fn forget(migration: &Migration, around: &Surroundings, context: &Context) -> Result<(), Error> {
    let lent = around.record(migration).and_then(|state| state.migration_configuration.as_ref());
    let lent = lent.map_or(around.settings.options.disable_tls, |options| options.disable_tls);
    if !lent {
        return Ok(());
    }
    let namespace = objects::migration_tokens(&context.namespace);
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    match secrets.delete(&token_name(migration), &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let secret = named::<Secret>(Some(&namespace), &token_name(migration));
            Err(Error::api("deleting", secret)(source))
        }
    }
}

fn token_name(migration: &Migration) -> String {
    format!("{}{}", objects::MIGRATION_TOKEN_PREFIX, migration.uid().unwrap_or_default())
}

/// Network providers let the guest's traffic in where this is written.
async fn mark_target(migration: &Migration, around: &Surroundings, pods: &Api<Pod>) -> Result<(), Error> {
    let seen = around.record(migration).and_then(|state| state.target_node_domain_ready_timestamp.as_ref());
    if let (Some(target), Some(seen)) = (around.target(migration), seen) {
        let name = annotations::MIGRATION_TARGET_READY_TIMESTAMP;
        edit::annotate(pods, target, &[(name, Some(&seen.0.to_string()))]).await?;
    }
    Ok(())
}

/// The one write by which the guest's home changes, and then the label by which its handler finds it.
async fn switch_over(
    migration: &Migration,
    around: &mut Surroundings,
    context: &Context,
) -> Result<(), Error> {
    let image = around.target(migration).and_then(launcher_image);
    let Some(vmi) = around.vmi.clone() else { return Ok(()) };
    let mut status = vmi.status.clone().unwrap_or_default();
    let Some(state) = status.migration_state.as_mut() else { return Ok(()) };
    state.completed = true;
    let seen = state.target_node_domain_ready_timestamp.clone();
    state.end_timestamp.get_or_insert_with(|| seen.unwrap_or_else(|| Time(Timestamp::now())));
    let node = state.target_node.clone();
    status.node_name.clone_from(&node);
    status.launcher_container_image_version = image.or(status.launcher_container_image_version);
    if status.evacuation_node_name != node {
        status.evacuation_node_name = None;
    }
    write(around, context, VirtualMachineInstance { status: Some(status), ..vmi }).await?;
    let wanted = [(labels::NODE_NAME, node.as_deref()), (labels::MIGRATION_TARGET_NODE_NAME, None)];
    relabel(around, context, &wanted).await
}

async fn delete(pod: Option<&Pod>, pods: &Api<Pod>, notes: &mut Vec<Note>) -> Result<(), Error> {
    let Some(pod) = pod else { return Ok(()) };
    let name = pod.name_any();
    edit::delete(pods, &name, &pod.uid().unwrap_or_default()).await?;
    notes.push(Note::done(events::SUCCESSFUL_DELETE, format!("told pod {name} to end")));
    Ok(())
}

async fn change_record(
    around: &mut Surroundings,
    context: &Context,
    change: impl FnOnce(&mut MigrationState),
) -> Result<(), Error> {
    let state = around.vmi.as_ref().and_then(|vmi| vmi.status.as_ref()?.migration_state.clone());
    let Some(mut state) = state else { return Ok(()) };
    change(&mut state);
    write_record(around, context, state).await
}

async fn write_record(
    around: &mut Surroundings,
    context: &Context,
    state: MigrationState,
) -> Result<(), Error> {
    let Some(mut vmi) = around.vmi.clone() else { return Ok(()) };
    vmi.status.get_or_insert_default().migration_state = Some(state);
    write(around, context, vmi).await
}

/// Writes the instance's status, valid for the version that was looked at.
async fn write(
    around: &mut Surroundings,
    context: &Context,
    vmi: VirtualMachineInstance,
) -> Result<(), Error> {
    if around.vmi.as_ref().and_then(|before| before.status.as_ref()) == vmi.status.as_ref() {
        return Ok(());
    }
    let instances = Api::namespaced(context.client.clone(), &vmi.namespace().unwrap_or_default());
    around.vmi = Some(edit::status(&instances, &vmi).await?);
    Ok(())
}

async fn relabel(
    around: &mut Surroundings,
    context: &Context,
    wanted: &[(&str, Option<&str>)],
) -> Result<(), Error> {
    let Some(vmi) = &around.vmi else { return Ok(()) };
    let instances = Api::namespaced(context.client.clone(), &vmi.namespace().unwrap_or_default());
    around.vmi = Some(edit::labels(&instances, vmi, wanted).await?);
    Ok(())
}
