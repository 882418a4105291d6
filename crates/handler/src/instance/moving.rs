//! A move, from the side of this node: what the launcher is told, which roads are open, what `migrationState` says. Pure.
//!
//! ```text
//!  target   waiting ─► (prepare) ─► ready ─► (door open) ─► address published ─► arrived ─► (take over) ─► guest runs ─► ready timestamp
//!  source                                                    └─► (sockets open) ─► (migrate) ─► launcher: running ─► start timestamp
//!                                                                abort requested ─► (cancel)      └─► completed, failed, cancelled ─► end
//! ```
//!
//! A guest that has arrived stands still until the source's launcher says, through the tunnel, that it is gone there. If that word is lost,
//! the record has it: completed and not failed, which a source's handler writes when its launcher has ended so. The take-over of
//! the diagram is for that case. Where the record says failed, the guest goes on at the source, and what has arrived is killed.
//!
//! Each step follows from what the instance and the launcher say, none from memory: a handler that was killed finds out from its
//! launcher how the move went that died with it. It is never begun a second time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use api::condition::{self, ConditionStatus};
use api::kubevirt::{
    AbortStatus, MigrationNetworkType, MigrationOptions, MigrationState, ProgressSample, SourceState,
    TargetState, VirtualMachineInstance,
};
use api::names::{channels, conditions, ports};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use wire::{AcceleratorPolicy, Command, MigrateOptions, MigrationPhase, MigrationReport, Phase, Status};

use super::decide::{Situation, Told};
use super::role::Role;

/// Why a move was given up that somebody asked to give up without saying why.
const ABORTED: &str = "Live migration has been aborted";

/// A door that is open at the target, as long as this is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receive {
    /// UID of the migration.
    pub uid: String,
    /// The only node whose handler may come in.
    pub source_node: String,
    /// What the sockets are named after.
    pub instance: String,
    pub tls: bool,
}

/// Sockets that are open at the source, as long as this is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// UID of the migration.
    pub uid: String,
    /// The only node whose handler may answer.
    pub target_node: String,
    pub target: SocketAddr,
    /// What the sockets are named after.
    pub instance: String,
    pub tls: bool,
}

/// How far a move is, for the object that asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// UID of the migration.
    pub uid: String,
    pub sample: ProgressSample,
    /// There will be no other.
    pub last: bool,
}

/// What was in the way of a move, as the sockets that lead to its target know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The target's handler could not be reached, or did not let this one in.
    Unreached(String),
    /// A connection that was in use broke, and not from here.
    Broke(String),
}

/// What the launcher says of this very move.
fn report<'a>(heard: Option<&'a Status>, state: &MigrationState) -> Option<&'a MigrationReport> {
    heard?.migration.as_ref().filter(|report| Some(&report.uid) == state.migration_uid.as_ref())
}

fn options(state: &MigrationState) -> MigrationOptions {
    state.migration_configuration.clone().unwrap_or_default()
}

/// Which door is to be open.
pub fn receive(
    situation: &Situation<'_>,
    role: Role<'_>,
    instance: &VirtualMachineInstance,
) -> Option<Receive> {
    let Role::Target(state) = role else { return None };
    let phase = situation.heard?.phase;
    let expects = matches!(phase, Phase::ReadyForMigration | Phase::Arrived | Phase::Running | Phase::Paused);
    if !expects || state.completed {
        return None;
    }
    Some(Receive {
        uid: state.migration_uid.clone()?,
        source_node: state.source_node.clone()?,
        instance: source_instance(state, instance),
        tls: !options(state).disable_tls,
    })
}

/// Which sockets are to be open: until the end is written down, for whether they were there says how it came. Those of a move that
/// began with another handler are gone, and so is the move.
pub fn send(situation: &Situation<'_>, role: Role<'_>, instance: &VirtualMachineInstance) -> Option<Send> {
    let Role::Source(state) = role else { return None };
    let uid = state.migration_uid.clone()?;
    let wanted = match report(situation.heard, state) {
        None => !state.abort_requested,
        Some(_) => situation.sending == Some(uid.as_str()),
    };
    let address: IpAddr = state.target_node_address.as_ref()?.parse().ok()?;
    let by_channel = state.target_direct_migration_node_ports.iter();
    let port =
        by_channel.filter(|(_, channel)| **channel == channels::RPC).find_map(|(port, _)| port.parse().ok());
    wanted.then_some(Send {
        uid,
        target_node: state.target_node.clone()?,
        target: SocketAddr::new(address, port.unwrap_or(ports::MIGRATION_TUNNEL)),
        instance: source_instance(state, instance),
        tls: !options(state).disable_tls,
    })
}

/// Sockets are named after the instance at the source, on both sides.
fn source_instance(state: &MigrationState, instance: &VirtualMachineInstance) -> String {
    let named = state.source_state.as_ref().and_then(|side| side.common.virtual_machine_instance_uid.clone());
    named.or_else(|| instance.metadata.uid.clone()).unwrap_or_default()
}

/// What the launcher is to be told of a move.
pub fn command(
    situation: &Situation<'_>,
    role: Role<'_>,
    instance: &VirtualMachineInstance,
) -> Option<Command> {
    let heard = situation.heard?;
    let told = situation.told;
    match role {
        Role::Target(_) if heard.phase == Phase::Waiting && !told.start => Some(Command::PrepareTarget {
            vmi: Box::new(instance.clone()),
            accelerator: accelerator(instance).unwrap_or(situation.accelerator),
        }),
        Role::Source(state) => {
            let uid = state.migration_uid.as_deref()?;
            match report(Some(heard), state) {
                None if situation.sending == Some(uid) && told.migrate.as_deref() != Some(uid) => {
                    let ready =
                        matches!(heard.phase, Phase::Running | Phase::Paused) && !state.abort_requested;
                    let options = || Box::new(move_options(state, instance));
                    ready.then(|| Command::Migrate { options: options() })
                }
                Some(report) if !report.phase.is_final() && state.abort_requested && !told.cancel => {
                    Some(Command::CancelMigration)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// What a launcher is to be told that holds a guest which has not been let run. Either side's handler may be dead by now, so it
/// goes by the record alone.
pub fn arrived(role: Role<'_>, told: &Told, instance: &VirtualMachineInstance) -> Option<Command> {
    let take_over = || {
        let conditions = instance.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let paused = condition::find(conditions, conditions::PAUSED)
            .is_some_and(|told| told.status == ConditionStatus::True);
        Command::TakeOver { paused }
    };
    match role {
        // The instance's home is here, and nowhere else.
        Role::Home | Role::Source(_) => told.take_over.is_none().then(take_over),
        Role::Target(state) => (state.completed && told.take_over.is_none()).then(take_over),
        Role::Past => (!told.kill).then_some(Command::Kill),
    }
}

/// What executes the guest's instructions cannot change on the way.
fn accelerator(instance: &VirtualMachineInstance) -> Option<AcceleratorPolicy> {
    let status = instance.status.as_ref()?;
    let told = condition::find(&status.conditions, conditions::ACCELERATED)?;
    Some(if told.status == ConditionStatus::True { AcceleratorPolicy::Kvm } else { AcceleratorPolicy::Tcg })
}

fn move_options(state: &MigrationState, instance: &VirtualMachineInstance) -> MigrateOptions {
    MigrateOptions {
        uid: state.migration_uid.clone().unwrap_or_default(),
        sockets: source_instance(state, instance),
        settings: options(state),
    }
}

/// How far the move is that leaves from here.
pub fn progress(situation: &Situation<'_>, role: Role<'_>) -> Option<Progress> {
    let Role::Source(state) = role else { return None };
    let report = report(situation.heard, state)?;
    let over_network = state.migration_network_type == Some(MigrationNetworkType::Migration);
    let network = options(state).network.filter(|_| over_network);
    let sample = ProgressSample { network, ..report.sample.clone() };
    Some(Progress { uid: report.uid.clone(), sample, last: report.phase.is_final() })
}

/// What the record of the move says after what is known now.
pub fn record(situation: &Situation<'_>, role: Role<'_>, now: Timestamp) -> Option<MigrationState> {
    match role {
        Role::Source(state) => Some(source_record(situation, state, now)),
        Role::Target(state) => Some(target_record(situation, state, now)),
        Role::Home | Role::Past => None,
    }
}

fn source_record(situation: &Situation<'_>, state: &MigrationState, now: Timestamp) -> MigrationState {
    let mut new = state.clone();
    let refused = situation.told.refused.as_ref().filter(|(command, _)| command == "migrate");
    let Some(report) = report(situation.heard, state) else {
        let told = situation.told.migrate.is_some() && situation.told.migrate == state.migration_uid;
        if let Some((_, reason)) = refused.filter(|_| told) {
            new.fail(&format!("the launcher refused to move the guest: {reason}"), now);
        } else if state.abort_requested && !told && situation.heard.is_some() {
            new.abort_status = Some(AbortStatus::Succeeded);
            new.fail(ABORTED, now);
        }
        return new;
    };
    new.start_timestamp.get_or_insert(Time(now));
    new.mode = Some(report.mode);
    match report.phase {
        MigrationPhase::Running if state.abort_requested => {
            new.abort_status.get_or_insert(AbortStatus::Aborting);
        }
        MigrationPhase::Running => {}
        MigrationPhase::Completed => {
            new.completed = true;
            new.end_timestamp.get_or_insert(Time(now));
            if state.abort_requested {
                new.abort_status = Some(AbortStatus::Failed);
            }
        }
        MigrationPhase::Cancelled => {
            new.abort_status = Some(AbortStatus::Succeeded);
            new.fail(ABORTED, now);
        }
        MigrationPhase::Failed => {
            let why = why(situation, state, report);
            // Who asked for the end saw it from outside: what it looked like comes first, what it was after it.
            match new.failure_reason.take_if(|_| !state.failed) {
                Some(asked) => new.fail(&format!("{asked}: {why}"), now),
                None => new.fail(&why, now),
            }
        }
    }
    let side = new.source_state.get_or_insert_with(SourceState::default);
    side.common.node.get_or_insert_with(|| situation.node.to_owned());
    new
}

/// The hypervisor sees sockets that break; why they broke is known here. What it says comes last.
fn why(situation: &Situation<'_>, state: &MigrationState, report: &MigrationReport) -> String {
    let said = report.reason.as_deref().unwrap_or("the hypervisor does not say why");
    let (here, there) = (situation.node, state.target_node.as_deref().unwrap_or_default());
    let see = format!(
        "see what runs there with `kubectl get pods -A -o wide --field-selector spec.nodeName={there}`, and move it again"
    );
    let (happened, next) = match situation.obstacle {
        _ if situation.sending != Some(report.uid.as_str()) => (
            format!("the handler of node {here} ended while the guest moved through it"),
            "move it again".to_owned(),
        ),
        None => (
            format!(
                "the hypervisor gave up, though the handler of node {there} could be reached: the launcher there ended, or the \
                 hypervisors could not agree"
            ),
            see,
        ),
        Some(Obstacle::Unreached(why)) => {
            (why.clone(), format!("move it again when the handler of node {there} can be reached"))
        }
        Some(Obstacle::Broke(why)) => (
            format!(
                "the connection to node {there} broke while the guest moved ({why}): the handler or the launcher there ended, \
                 or the road was cut"
            ),
            see,
        ),
    };
    format!("{happened}. The guest goes on at node {here}: {next}. The hypervisor says: {said}")
}

fn target_record(situation: &Situation<'_>, state: &MigrationState, now: Timestamp) -> MigrationState {
    let mut new = state.clone();
    let phase = situation.heard.map(|heard| heard.phase);
    let open = state.migration_uid.as_deref().is_some_and(|uid| situation.receiving == Some(uid));
    if let (Some(Phase::ReadyForMigration), true, Some(here)) = (phase, open, situation.here) {
        let address = here.address.to_string();
        let listening = BTreeMap::from([(ports::MIGRATION_TUNNEL.to_string(), channels::RPC)]);
        new.target_node_address = Some(address.clone());
        new.target_direct_migration_node_ports = listening.clone();
        new.migration_network_type = Some(here.network);
        let side = new.target_state.get_or_insert_with(TargetState::default);
        side.node_address = Some(address);
        side.direct_migration_node_ports = listening;
    }
    if matches!(phase, Some(Phase::Arrived | Phase::Running | Phase::Paused)) {
        new.target_node_domain_detected = true;
        new.target_state.get_or_insert_with(TargetState::default).domain_detected = true;
    }
    if matches!(phase, Some(Phase::Running | Phase::Paused)) {
        new.target_node_domain_ready_timestamp.get_or_insert(Time(now));
        let ready = new.target_node_domain_ready_timestamp.clone();
        let side = new.target_state.get_or_insert_with(TargetState::default);
        side.domain_ready_timestamp = ready;
    }
    new
}

#[cfg(test)]
mod tests;
