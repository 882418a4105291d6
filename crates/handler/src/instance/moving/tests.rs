#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use api::kubevirt::{InstancePhase, MigrationMode};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::decide::{Decision, Told, decide};
use super::*;
use crate::road::Here;

/// One side of a move from node `a` to node `b`.
struct Side {
    node: &'static str,
    pod: Pod,
    gone: bool,
    instance: VirtualMachineInstance,
    heard: Status,
    told: Told,
    here: Option<Here>,
    receiving: Option<&'static str>,
    sending: Option<&'static str>,
    obstacle: Option<Obstacle>,
}

fn side(node: &'static str, pod: &str, phase: Phase, extra: &Value) -> Side {
    let mut state = json!({ "migrationUid": "m", "sourceNode": "a", "sourcePod": "first", "targetNode": "b",
        "targetPod": "second", "migrationConfiguration": { "bandwidthPerMigration": "64Mi", "maxDowntimeMs": 200 } });
    state.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let condition = json!({ "type": "Accelerated", "status": "False" });
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "uid": "u" }, "spec": { "domain": { "devices": {} } },
        "status": { "phase": "Running", "nodeName": "a", "migrationState": state, "conditions": [condition] },
    });
    Side {
        node,
        pod: serde_json::from_value(json!({ "metadata": { "name": pod }, "status": { "phase": "Running" } }))
            .unwrap(),
        gone: false,
        instance: serde_json::from_value(instance).unwrap(),
        heard: Status { phase, ..Status::default() },
        told: Told::default(),
        here: Some(Here {
            address: "192.0.2.2".parse().unwrap(),
            network: MigrationNetworkType::Migration,
            tls: true,
        }),
        receiving: None,
        sending: None,
        obstacle: None,
    }
}

fn source(phase: Phase, extra: &Value) -> Side {
    side("a", "first", phase, extra)
}

fn target(phase: Phase, extra: &Value) -> Side {
    side("b", "second", phase, extra)
}

fn published() -> Value {
    json!({ "targetNodeAddress": "192.0.2.2", "targetDirectMigrationNodePorts": { "9186": 0 } })
}

impl Side {
    fn decide(&self) -> Decision {
        let situation = Situation {
            node: self.node,
            pod: (!self.gone).then_some(&self.pod),
            known: &self.pod,
            instance: Some(&self.instance),
            connected: true,
            heard: Some(&self.heard),
            told: &self.told,
            attached: true,
            accelerator: AcceleratorPolicy::Probe,
            here: self.here,
            receiving: self.receiving,
            sending: self.sending,
            obstacle: self.obstacle.as_ref(),
        };
        decide(&situation, Timestamp::from_second(100).unwrap())
    }

    fn reporting(mut self, phase: MigrationPhase, reason: Option<&str>) -> Self {
        self.heard.migration = Some(MigrationReport {
            uid: "m".to_owned(),
            phase,
            mode: MigrationMode::PreCopy,
            reason: reason.map(str::to_owned),
            sample: ProgressSample { total_bytes: 9, ..ProgressSample::default() },
        });
        self
    }

    /// What is new in the record of the move.
    fn recorded(&self) -> MigrationState {
        self.decide().status.unwrap().migration_state.unwrap()
    }
}

#[test]
fn a_target_prepares_opens_its_door_and_then_says_where_it_is() {
    let mut side = target(Phase::Waiting, &json!({}));
    let Some(Command::PrepareTarget { accelerator, .. }) = side.decide().tell else {
        panic!("it is prepared")
    };
    assert_eq!(accelerator, AcceleratorPolicy::Tcg, "as where it comes from");
    side.told.start = true;
    assert_eq!(side.decide(), Decision::default(), "once");

    let mut side = target(Phase::ReadyForMigration, &json!({}));
    let decision = side.decide();
    let wanted = Receive { uid: "m".into(), source_node: "a".into(), instance: "u".into(), tls: true };
    assert_eq!(
        (decision.receive, decision.status),
        (Some(wanted.clone()), None),
        "not before the door is open"
    );
    side.receiving = Some("m");
    let state = side.recorded();
    assert_eq!(state.target_node_address.as_deref(), Some("192.0.2.2"));
    assert_eq!(state.target_direct_migration_node_ports, BTreeMap::from([("9186".to_owned(), 0)]));
    assert_eq!(state.migration_network_type, Some(MigrationNetworkType::Migration));
    assert_eq!(state.target_state.unwrap().node_address.as_deref(), Some("192.0.2.2"));
    side.here = None;
    assert_eq!(side.decide().status, None, "it is nowhere");

    let side = target(Phase::Running, &published());
    let state = side.recorded();
    assert!(state.target_node_domain_detected && state.target_node_domain_ready_timestamp.is_some());
    assert!(state.target_state.unwrap().domain_ready_timestamp.is_some());
    assert_eq!(
        side.decide().status.unwrap().phase,
        side.instance.status.as_ref().unwrap().phase,
        "not its to say"
    );
    let done = target(Phase::Running, &json!({ "completed": true }));
    assert_eq!(done.decide().receive, None, "nobody is expected any more");
}

#[test]
fn a_source_waits_for_an_address_opens_sockets_and_moves_once() {
    assert_eq!(source(Phase::Running, &json!({})).decide().send, None);
    let mut side = source(Phase::Running, &published());
    let decision = side.decide();
    assert_eq!(decision.send.unwrap().target, "192.0.2.2:9186".parse().unwrap());
    assert_eq!(decision.tell, None, "not before the sockets are there");
    side.sending = Some("m");
    let Some(Command::Migrate { options }) = side.decide().tell else { panic!("it moves") };
    assert_eq!(options.settings.bandwidth().unwrap().unwrap().get(), 64 << 20);
    assert_eq!(options.sockets, "u");
    side.told.migrate = Some("m".to_owned());
    assert_eq!(side.decide().tell, None);
}

#[test]
fn a_move_under_way_is_recorded_and_its_sockets_stay() {
    let mut side = source(Phase::Running, &published()).reporting(MigrationPhase::Running, None);
    side.sending = Some("m");
    let decision = side.decide();
    assert!(decision.send.is_some());
    assert_eq!(decision.progress.unwrap().sample.total_bytes, 9);
    let state = side.recorded();
    assert_eq!((state.mode, state.completed), (Some(MigrationMode::PreCopy), false));
    assert!(state.start_timestamp.is_some());
}

#[test]
fn a_move_that_died_with_its_handler_is_reported_and_not_begun_again() {
    let side = source(Phase::Running, &published()).reporting(MigrationPhase::Running, None);
    let decision = side.decide();
    assert_eq!((decision.send, decision.tell), (None, None), "its sockets are gone");
    let side =
        source(Phase::Running, &published()).reporting(MigrationPhase::Failed, Some("the socket was closed"));
    let decision = side.decide();
    assert_eq!((decision.send, decision.tell), (None, None));
    let state = side.recorded();
    assert!(state.completed && state.failed && state.end_timestamp.is_some());
    let expected = "the handler of node a ended while the guest moved through it. The guest goes on at node a: move it again. \
                    The hypervisor says: the socket was closed";
    assert_eq!(state.failure_reason.as_deref(), Some(expected));
    assert_eq!(state.abort_status, None);
    // The same with the handler that began it.
    let mut side =
        source(Phase::Running, &published()).reporting(MigrationPhase::Failed, Some("the socket was closed"));
    side.sending = Some("m");
    let reason = side.recorded().failure_reason.unwrap();
    assert!(
        reason.starts_with("the hypervisor gave up, though the handler of node b could be reached"),
        "{reason}"
    );
    assert!(reason.ends_with("and move it again. The hypervisor says: the socket was closed"), "{reason}");
}

#[test]
fn what_ended_a_move_is_said_after_what_it_looked_like_from_outside() {
    let asked = json!({ "abortRequested": true, "failureReason": "the target pod ended" });
    let mut record = published();
    record.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
    let side = source(Phase::Running, &record).reporting(MigrationPhase::Failed, Some("it was closed"));
    let reason = side.recorded().failure_reason.unwrap();
    assert!(reason.starts_with("the target pod ended: the handler of node a ended while"), "{reason}");
    // Once.
    record["failureReason"] = json!(reason);
    record["failed"] = json!(true);
    let side = source(Phase::Running, &record).reporting(MigrationPhase::Failed, Some("it was closed"));
    assert_eq!(side.recorded().failure_reason.unwrap(), reason);
}

#[test]
fn a_road_that_fails_is_named_with_what_to_do_and_what_the_hypervisor_says_comes_last() {
    let mut side =
        source(Phase::Running, &published()).reporting(MigrationPhase::Failed, Some("the socket was closed"));
    side.sending = Some("m");
    side.obstacle = Some(Obstacle::Unreached("node b does not answer".into()));
    let expected = "node b does not answer. The guest goes on at node a: move it again when the handler of node b can be \
                    reached. The hypervisor says: the socket was closed";
    assert_eq!(side.recorded().failure_reason.as_deref(), Some(expected));
    side.obstacle = Some(Obstacle::Broke("reset by peer".into()));
    let reason = side.recorded().failure_reason.unwrap();
    assert!(
        reason.starts_with("the connection to node b broke while the guest moved (reset by peer)"),
        "{reason}"
    );
    assert!(reason.contains("The guest goes on at node a"), "{reason}");
    assert!(reason.contains("spec.nodeName=b`, and move it again"), "{reason}");
    assert!(reason.ends_with("The hypervisor says: the socket was closed"), "{reason}");
}

#[test]
fn a_move_that_ended_well_ends_nothing_of_the_instance() {
    let mut side = source(Phase::CleaningUp, &published()).reporting(MigrationPhase::Completed, None);
    side.heard.ending = Some(wire::Ending {
        outcome: wire::Outcome::Succeeded,
        reason: wire::Ending::MIGRATED.to_owned(),
        message: String::new(),
    });
    let status = side.decide().status.unwrap();
    assert_eq!(status.phase, Some(InstancePhase::Running));
    let state = status.migration_state.unwrap();
    assert!(state.completed && !state.failed && state.end_timestamp.is_some());
    // The pod ended while nobody was there to listen.
    side.heard = Status::default();
    side.pod.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    let begun = json!({ "startTimestamp": "2026-01-01T00:00:00Z" });
    let mut lost = source(Phase::Waiting, &begun);
    lost.pod = side.pod;
    assert_eq!(lost.decide().status, None, "the guest may be at the target");
}

#[test]
fn only_the_pod_that_has_the_guest_takes_it_along_when_it_goes() {
    let moved = json!({ "completed": true });
    let came_to_nothing = json!({ "completed": true, "failed": true });
    for (state, home, node, pod, lost) in [
        (&moved, "b", "b", "second", true),
        (&moved, "b", "b", "of-an-earlier-move", false),
        (&moved, "b", "a", "first", false),
        (&came_to_nothing, "a", "a", "first", true),
        (&came_to_nothing, "a", "a", "of-an-earlier-move", false),
        (&came_to_nothing, "a", "b", "second", false),
    ] {
        for seen in ["Running", "Succeeded"] {
            // A handler that was not there when it ended has heard nothing of it.
            let mut side = side(node, pod, Phase::Waiting, state);
            side.pod.status.as_mut().unwrap().phase = Some(seen.to_owned());
            side.instance.status.as_mut().unwrap().node_name = Some(home.to_owned());
            side.gone = true;
            let phase = side.decide().status.and_then(|status| status.phase);
            assert_eq!(phase, lost.then_some(InstancePhase::Failed), "{pod} of node {node}, {state}");
        }
    }
}

#[test]
fn what_was_said_of_one_move_is_not_said_of_the_next() {
    let abort = json!({ "abortRequested": true, "failureReason": "its time is over" });
    let mut side = source(Phase::Running, &abort).reporting(MigrationPhase::Running, None);
    let settings = MigrationOptions::default();
    let first = MigrateOptions { uid: "before".into(), sockets: "u".into(), settings };
    let second = MigrateOptions { uid: "m".into(), ..first.clone() };
    let commands = [
        Command::Migrate { options: Box::new(first) },
        Command::CancelMigration,
        Command::Migrate { options: Box::new(second) },
    ];
    side.told.refused = Some(("migrate".into(), "it moves already".into()));
    for command in &commands {
        side.told.note(command, Timestamp::UNIX_EPOCH);
    }
    assert_eq!(side.decide().tell, Some(Command::CancelMigration));
    assert_eq!(side.told.refused, None);
}

#[test]
fn a_move_is_given_up() {
    let abort = json!({ "abortRequested": true, "failureReason": "its time is over" });
    let mut side = source(Phase::Running, &abort).reporting(MigrationPhase::Running, None);
    assert_eq!(side.decide().tell, Some(Command::CancelMigration));
    assert_eq!(side.recorded().abort_status, Some(AbortStatus::Aborting));
    side.told.cancel = true;
    assert_eq!(side.decide().tell, None);
    let side =
        source(Phase::Running, &abort).reporting(MigrationPhase::Cancelled, Some("cancelled by client"));
    let state = side.recorded();
    assert_eq!((state.failed, state.abort_status), (true, Some(AbortStatus::Succeeded)));
    assert_eq!(state.failure_reason.as_deref(), Some("its time is over"), "who asked knows why");
    let late = source(Phase::CleaningUp, &abort).reporting(MigrationPhase::Completed, None).recorded();
    assert_eq!((late.failed, late.abort_status), (false, Some(AbortStatus::Failed)), "too late");

    // Before it began.
    let mut side = source(Phase::Running, &json!({ "abortRequested": true }));
    side.instance.status.as_mut().unwrap().migration_state.as_mut().unwrap().target_node_address =
        Some("192.0.2.2".into());
    let decision = side.decide();
    assert_eq!((decision.send, decision.tell), (None, None));
    let state = side.recorded();
    assert_eq!((state.completed, state.failure_reason.as_deref()), (true, Some(ABORTED)));
    assert_eq!(state.start_timestamp, None);
}

#[test]
fn a_launcher_that_refuses_ends_the_move() {
    let mut side = source(Phase::Running, &published());
    side.sending = Some("m");
    side.told.migrate = Some("m".to_owned());
    side.told.refused = Some(("migrate".to_owned(), "no".to_owned()));
    assert_eq!(side.recorded().failure_reason.as_deref(), Some("the launcher refused to move the guest: no"));
}

#[test]
fn a_pod_that_is_to_go_lets_its_guest_move_first() {
    let deleting = |side: &mut Side| {
        side.pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    };
    let mut side = source(Phase::Running, &published()).reporting(MigrationPhase::Running, None);
    deleting(&mut side);
    assert_eq!(side.decide().tell, None);
    side.instance.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    assert!(matches!(side.decide().tell, Some(Command::Shutdown { .. })), "the guest itself is to go");
}

#[test]
fn a_guest_that_has_arrived_waits_for_the_end_at_its_source() {
    let there = target(Phase::Arrived, &published()).decide();
    assert_eq!(there.tell, None, "its launcher hears it from the source's");
    assert!(there.receive.is_some(), "by the door");
    let record = there.status.unwrap().migration_state.unwrap();
    assert!(record.target_node_domain_detected, "it is all there");
    assert_eq!(record.target_node_domain_ready_timestamp, None, "and does not run");

    let take_over = |paused| Some(Command::TakeOver { paused });
    let completed = json!({ "completed": true });
    let mut left = target(Phase::Arrived, &completed);
    assert_eq!(left.decide().tell, take_over(false), "the record has the word that was lost");
    left.pod.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(90).unwrap()));
    assert_eq!(left.decide().tell, take_over(false), "it is nowhere else, also if the pod is to go");
    left.told.take_over = Some(Timestamp::from_second(95).unwrap());
    assert_eq!(left.decide().tell, None);

    let mut paused = target(Phase::Arrived, &completed);
    let condition = json!({ "type": "Paused", "status": "True" });
    let conditions = &mut paused.instance.status.as_mut().unwrap().conditions;
    conditions.push(serde_json::from_value(condition).unwrap());
    assert_eq!(paused.decide().tell, take_over(true));

    let mut home = target(Phase::Arrived, &completed);
    home.instance.status.as_mut().unwrap().node_name = Some("b".to_owned());
    assert_eq!(home.decide().tell, take_over(false), "the controller went on without it");

    let failed = target(Phase::Arrived, &json!({ "completed": true, "failed": true })).decide();
    assert_eq!(failed.tell, Some(Command::Kill), "it goes on at its source");
}
