//! What a migration says of itself. The progress is the handler's, and is kept as it is.

use api::condition::{self, ConditionStatus, Observed};
use api::kubevirt::{MigrationPhase, MigrationPhaseTransition, MigrationStatus};
use api::names::{conditions, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use migration::{Decision, Effect, Outcome};

use super::Migration;
use super::facts::Surroundings;
use crate::edit;
use crate::error::Error;

/// The status once everything that was decided is done.
pub(super) fn after(
    migration: &Migration,
    decision: &Decision,
    around: &Surroundings,
    now: Timestamp,
) -> MigrationStatus {
    let mut status = migration.status.clone().unwrap_or_default();
    enter(&mut status, decision.phase, now);
    if let Some(state) = around.record(migration) {
        status.migration_state = Some(state.clone());
    }
    match &decision.outcome {
        Outcome::Waits(wait) => {
            set(&mut status, conditions::MIGRATION_QUEUED, wait.reason, &wait.message, now);
        }
        _ => {
            condition::remove(&mut status.conditions, conditions::MIGRATION_QUEUED);
        }
    }
    if decision.phase != MigrationPhase::Pending {
        condition::remove(&mut status.conditions, conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA);
    }
    let asked = decision.effects.iter().find_map(|effect| match effect {
        Effect::RequestAbort(why) => Some(why),
        _ => None,
    });
    let deleted = migration.metadata.deletion_timestamp.is_some();
    match (asked, &decision.outcome) {
        (Some(why), _) | (None, Outcome::Aborted(why)) => {
            let reason = if deleted { reasons::DELETED } else { reasons::GIVEN_UP };
            set(&mut status, conditions::MIGRATION_ABORT_REQUESTED, reason, why, now);
        }
        _ => {}
    }
    if let Outcome::Failed(why) | Outcome::Aborted(why) = &decision.outcome {
        let state = status.migration_state.get_or_insert_default();
        state.failure_reason.get_or_insert_with(|| why.clone());
        state.failed = true;
        state.completed = true;
        state.migration_uid.clone_from(&migration.metadata.uid);
    }
    status
}

/// Enters a phase and remembers when; entering it again changes nothing.
fn enter(status: &mut MigrationStatus, phase: MigrationPhase, now: Timestamp) {
    if status.phase == Some(phase) {
        return;
    }
    status.phase = Some(phase);
    status
        .phase_transition_timestamps
        .push(MigrationPhaseTransition { phase, phase_transition_timestamp: Time(now) });
}

fn set(status: &mut MigrationStatus, type_: &str, reason: &str, message: &str, now: Timestamp) {
    let observed = Observed { type_, status: ConditionStatus::True, reason, message };
    condition::set(&mut status.conditions, &observed, now);
}

/// Says that a quota is in the way, if that is what the API server said.
pub(super) async fn refused(
    migrations: &Api<Migration>,
    migration: &Migration,
    error: &Error,
) -> Result<(), Error> {
    let message = error.explain();
    if !message.contains("exceeded quota") {
        return Ok(());
    }
    let mut refused = migration.clone();
    let status = refused.status.get_or_insert_default();
    let observed = Observed {
        type_: conditions::MIGRATION_REJECTED_BY_RESOURCE_QUOTA,
        status: ConditionStatus::True,
        reason: "",
        message: &message,
    };
    if condition::set(&mut status.conditions, &observed, Timestamp::now()) {
        edit::status(migrations, &refused).await?;
    }
    Ok(())
}
