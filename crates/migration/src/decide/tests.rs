//! What is decided for a move in every phase, as a table, and what holds whatever is there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use MigrationPhase::{
    Failed, Pending, PreparingTarget, Running, Scheduled, Scheduling, Succeeded, TargetReady,
};

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn time(second: i64) -> Time {
    Time(at(second))
}

/// A move as it is in this phase when all is well; the record, where there is one, is given.
fn facts(phase: Option<MigrationPhase>, record: Record<'_>) -> Facts<'_> {
    let target = match phase {
        None | Some(Pending) => Target::None,
        Some(Scheduling) => Target::Waiting { unschedulable: None },
        _ => Target::Runs { node: "b".into(), marked: false },
    };
    Facts {
        phase,
        since: at(NOW - 1),
        deleted: false,
        instance: Instance::Runs { node: "a".into() },
        has_rival: false,
        target,
        source_lives: true,
        record,
        abort_since: None,
        start: Turn::Go,
        hand_over: Turn::Go,
        deadlines: Deadlines::default(),
        unready: None,
    }
}

fn handed_over() -> MigrationState {
    MigrationState {
        migration_uid: Some("m".into()),
        source_pod: Some("first".into()),
        target_node: Some("b".into()),
        ..MigrationState::default()
    }
}

fn listening() -> MigrationState {
    MigrationState { target_node_address: Some("192.0.2.2".into()), ..handed_over() }
}

fn sending() -> MigrationState {
    MigrationState { start_timestamp: Some(time(NOW - 1)), ..listening() }
}

fn arrived() -> MigrationState {
    MigrationState {
        completed: true,
        end_timestamp: Some(time(NOW)),
        target_node_domain_ready_timestamp: Some(time(NOW)),
        ..sending()
    }
}

fn decided(facts: &Facts<'_>) -> Decision {
    decide(facts, at(NOW))
}

#[test]
fn the_way_of_a_move_that_goes_well() {
    let (handed_over, listening, sending, arrived) = (handed_over(), listening(), sending(), arrived());
    let runs = Target::Runs { node: "b".into(), marked: true };
    let rows: [(_, Facts<'_>, _, Vec<Effect>); 9] = [
        ("new", facts(None, Record::None), Pending, vec![]),
        ("its turn", facts(Some(Pending), Record::None), Scheduling, vec![Effect::CreateTarget]),
        ("no node yet", facts(Some(Scheduling), Record::None), Scheduling, vec![]),
        (
            "the pod runs",
            Facts { target: runs.clone(), ..facts(Some(Scheduling), Record::None) },
            Scheduled,
            vec![],
        ),
        ("room there", facts(Some(Scheduled), Record::None), PreparingTarget, vec![Effect::HandOver]),
        ("it listens", facts(Some(PreparingTarget), Record::Ours(&listening)), TargetReady, vec![]),
        ("it is sent", facts(Some(TargetReady), Record::Ours(&sending)), Running, vec![]),
        (
            "it arrived",
            facts(Some(Running), Record::Ours(&arrived)),
            Succeeded,
            vec![Effect::MarkTarget, Effect::SwitchOver, Effect::Forget],
        ),
        (
            "killed after the hand-over",
            facts(Some(Scheduled), Record::Ours(&handed_over)),
            PreparingTarget,
            vec![Effect::HandOver],
        ),
    ];
    for (what, facts, phase, effects) in rows {
        let decision = decided(&facts);
        assert_eq!((decision.phase, decision.effects), (phase, effects), "{what}");
    }
}

#[test]
fn a_move_is_given_up_in_the_way_that_is_safe() {
    let (handed_over, listening, sending) = (handed_over(), listening(), sending());
    let aborting = MigrationState { abort_requested: true, ..sending.clone() };
    let why = || texts::ABORTED.to_owned();
    let delete = vec![Effect::DeleteTarget, Effect::Forget];
    let close = vec![Effect::Close(why()), Effect::Release, Effect::DeleteTarget, Effect::Forget];
    let deleted = |phase, record| Facts { deleted: true, ..facts(Some(phase), record) };
    let rows = [
        ("nothing made", deleted(Pending, Record::None), Failed, vec![Effect::Forget]),
        ("no node yet", deleted(Scheduling, Record::None), Failed, delete.clone()),
        ("waits for room", deleted(Scheduled, Record::None), Failed, delete),
        ("target not ready", deleted(PreparingTarget, Record::Ours(&handed_over)), Failed, close.clone()),
        (
            "the source may begin",
            deleted(TargetReady, Record::Ours(&listening)),
            TargetReady,
            vec![Effect::RequestAbort(why())],
        ),
        (
            "the source sends",
            deleted(Running, Record::Ours(&sending)),
            Running,
            vec![Effect::RequestAbort(why())],
        ),
        (
            "it is asked",
            Facts { abort_since: Some(at(NOW - 59)), ..deleted(Running, Record::Ours(&aborting)) },
            Running,
            vec![],
        ),
        (
            "it does not answer",
            Facts { abort_since: Some(at(NOW - 60)), ..deleted(Running, Record::Ours(&aborting)) },
            Failed,
            close,
        ),
    ];
    for (what, facts, phase, effects) in rows {
        let decision = decided(&facts);
        assert_eq!((decision.phase, decision.effects), (phase, effects), "{what}");
    }
    let seen = MigrationState { target_node_domain_ready_timestamp: Some(time(NOW)), ..sending.clone() };
    let late = decided(&deleted(Running, Record::Ours(&seen)));
    assert_eq!(
        (late.phase, late.effects),
        (Running, vec![Effect::MarkTarget]),
        "too late: the guest is there"
    );
}

#[test]
fn the_source_may_die_once_the_guest_is_there() {
    let seen = MigrationState { target_node_domain_ready_timestamp: Some(time(NOW - 15)), ..sending() };
    assert_eq!(decided(&facts(Some(Running), Record::Ours(&seen))).phase, Succeeded);
    let post_copy = MigrationState { mode: Some(MigrationMode::PostCopy), ..seen };
    assert_eq!(decided(&facts(Some(Running), Record::Ours(&post_copy))).phase, Running, "its memory is not");
}

#[test]
fn a_guest_that_has_arrived_is_taken_over_when_its_source_ends_without_a_word() {
    let here = MigrationState { target_node_domain_detected: true, ..sending() };
    let waits = decided(&facts(Some(Running), Record::Ours(&here)));
    assert_eq!((waits.phase, waits.effects), (Running, Vec::new()), "it may yet go on at the source");
    let orphan = Facts { source_lives: false, ..facts(Some(Running), Record::Ours(&here)) };
    let decision = decided(&orphan);
    assert_eq!((decision.phase, decision.effects), (Running, vec![Effect::Complete]));
    let late = Facts { abort_since: Some(at(NOW - 100)), deleted: true, ..orphan };
    assert_eq!(decided(&late).effects, [Effect::Complete], "there is nothing else left of it");
    let absent = sending();
    let lost = Facts { source_lives: false, ..facts(Some(Running), Record::Ours(&absent)) };
    assert_eq!(decided(&lost).effects, [], "not all of it is there");
}

#[test]
fn a_guest_that_left_and_was_not_seen_is_at_home_where_it_went() {
    let left = MigrationState {
        target_node_domain_ready_timestamp: None,
        end_timestamp: Some(time(NOW - 60)),
        ..arrived()
    };
    let decision = decided(&facts(Some(Running), Record::Ours(&left)));
    assert_eq!((decision.phase, decision.effects), (Failed, vec![Effect::SwitchOver, Effect::Forget]));
}

#[test]
fn what_ends_a_move_is_said() {
    let (sending, handed_over) = (sending(), handed_over());
    let failed = MigrationState {
        completed: true,
        failed: true,
        failure_reason: Some("no route".into()),
        ..sending.clone()
    };
    let bound = Instance::Bound { reason: "R".into(), message: "M".into() };
    let unschedulable = Target::Waiting { unschedulable: Some("0/3 nodes".into()) };
    let long_ago = at(NOW - 300);
    let rows: [(Facts<'_>, &str); 11] = [
        (Facts { instance: Instance::Gone, ..facts(Some(Pending), Record::None) }, texts::NO_INSTANCE),
        (
            Facts { instance: Instance::Ended, ..facts(Some(Running), Record::Ours(&sending)) },
            texts::INSTANCE_ENDED,
        ),
        (
            Facts { instance: bound, ..facts(Some(Pending), Record::None) },
            "Cannot migrate VMI, Reason: R, Message: M",
        ),
        (Facts { has_rival: true, ..facts(None, Record::None) }, texts::RIVAL),
        (
            Facts { target: unschedulable, since: long_ago, ..facts(Some(Scheduling), Record::None) },
            "no node took the target pod within 5 minutes: 0/3 nodes",
        ),
        (
            Facts { target: Target::Ended, ..facts(Some(PreparingTarget), Record::Ours(&handed_over)) },
            texts::TARGET_ENDED,
        ),
        (
            Facts {
                since: long_ago,
                unready: Some("node b has no certificate"),
                ..facts(Some(PreparingTarget), Record::Ours(&handed_over))
            },
            "the handler of node b did not get the target ready within 5 minutes: node b has no certificate",
        ),
        (Facts { target: Target::None, ..facts(Some(Scheduled), Record::None) }, texts::TARGET_GONE),
        (facts(Some(Running), Record::None), texts::RECORD_CLEARED),
        (facts(Some(Running), Record::Other), texts::RECORD_TAKEN),
        (facts(Some(Running), Record::Ours(&failed)), "no route"),
    ];
    for (facts, why) in rows {
        let decision = decided(&facts);
        assert_eq!((decision.phase, decision.outcome), (Failed, Outcome::Failed(why.into())));
    }
}

#[test]
fn what_is_left_of_a_move_goes() {
    let state = arrived();
    let mut over = facts(Some(Succeeded), Record::Ours(&state));
    assert_eq!(decided(&over).again, Some(Duration::from_secs(29)), "the source pod ends by itself");
    over.since = at(NOW - 30);
    assert_eq!(decided(&over).effects, [Effect::DeleteSource]);
    over.source_lives = false;
    assert_eq!(decided(&over).effects, []);
    over.deleted = true;
    assert_eq!(decided(&over).effects, [Effect::RemoveFinalizer]);
    let lost = facts(Some(Failed), Record::None);
    assert_eq!(decided(&lost).effects, [Effect::DeleteTarget]);
}

prop_compose! {
    fn records()(
        flags in prop::array::uniform5(any::<bool>()),
        times in prop::array::uniform3(prop::option::of(0..3000_i64)),
        mode in prop::option::of(prop::sample::select(MigrationMode::ALL.to_vec())),
    ) -> MigrationState {
        let [completed, failed, abort_requested, listens, detected] = flags;
        let ago = |time: Option<i64>| time.map(|time| Time(at(NOW - time)));
        let [start, end, ready] = times;
        MigrationState {
            migration_uid: Some("m".into()),
            source_pod: Some("first".into()),
            completed,
            failed: failed && completed,
            abort_requested,
            target_node_address: listens.then(|| "192.0.2.2".into()),
            target_node_domain_detected: detected,
            start_timestamp: ago(start),
            end_timestamp: ago(end),
            target_node_domain_ready_timestamp: ago(ready),
            mode,
            ..MigrationState::default()
        }
    }
}

fn phases() -> impl Strategy<Value = Option<MigrationPhase>> {
    let ours = [Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded, Failed];
    prop::option::of(prop::sample::select(ours.to_vec()))
}

fn targets() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::None),
        Just(Target::Ending),
        Just(Target::Ended),
        any::<bool>().prop_map(|stuck| Target::Waiting { unschedulable: stuck.then(|| "full".into()) }),
        (any::<bool>(), any::<bool>())
            .prop_map(|(there, marked)| Target::Runs { node: if there { "a" } else { "b" }.into(), marked }),
    ]
}

fn instances() -> impl Strategy<Value = Instance> {
    prop_oneof![
        Just(Instance::Gone),
        Just(Instance::Ended),
        Just(Instance::Starting),
        Just(Instance::Bound { reason: "R".into(), message: "M".into() }),
        Just(Instance::Runs { node: "a".into() }),
    ]
}

fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![Just(Turn::Go), Just(Turn::Wait(Wait { reason: "R", message: "m".into() }))]
}

prop_compose! {
    fn situations()(
        phase in phases(),
        (target, instance) in (targets(), instances()),
        (start, hand_over) in (turns(), turns()),
        ago in 0..200_000_i64,
        abort in prop::option::of(0..200_i64),
        flags in prop::array::uniform3(any::<bool>()),
        record in (0..3, records()),
    ) -> (Facts<'static>, i32, MigrationState) {
        let facts = Facts {
            phase, target, instance, start, hand_over,
            since: at(NOW - ago),
            deleted: flags[0],
            has_rival: flags[1],
            source_lives: flags[2],
            record: Record::None,
            abort_since: abort.map(|abort| at(NOW - abort)),
            deadlines: Deadlines::default(),
            unready: None,
        };
        (facts, record.0, record.1)
    }
}

fn rank(phase: MigrationPhase) -> usize {
    let order = [Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded, Failed];
    order.iter().position(|other| *other == phase).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_holds_whatever_is_there((mut facts, kind, state) in situations()) {
        facts.record = match kind {
            0 => Record::None,
            1 => Record::Other,
            _ => Record::Ours(&state),
        };
        let decision = decide(&facts, at(NOW));
        let before = facts.phase.map_or(0, rank);
        let after = rank(decision.phase);
        let has = |effect: &Effect| decision.effects.contains(effect);

        let ended = facts.phase.is_some_and(MigrationPhase::is_final);
        prop_assert!(if ended { after == before } else { after >= before }, "phases only go forward");
        prop_assert!(after - before <= 1 || decision.phase.is_final(), "no phase is left out");
        if facts.phase == Some(decision.phase) && !decision.phase.is_final() {
            prop_assert!(decision.again.is_some(), "every wait has a deadline: {decision:?}");
        }

        let gone = matches!(facts.instance, Instance::Gone | Instance::Ended);
        let left = kind == 2 && state.completed && !state.failed;
        let seen = kind == 2 && state.target_node_domain_ready_timestamp.is_some() && !state.failed;
        if has(&Effect::SwitchOver) {
            prop_assert!(left || seen, "the home changes only to where the guest is");
            prop_assert!(!has(&Effect::DeleteTarget));
        }
        let orphan = kind == 2 && state.target_node_domain_detected && !facts.source_lives && facts.target.lives();
        let orphan = orphan && !state.completed;
        if has(&Effect::Complete) {
            prop_assert!(orphan, "only the source knows whether it may go on there");
        }
        if (left || seen || orphan) && !gone && !ended {
            prop_assert!(!has(&Effect::DeleteTarget), "the guest's only place is never deleted: {decision:?}");
        }
        if has(&Effect::DeleteSource) {
            prop_assert_eq!(facts.phase, Some(Succeeded), "the source goes only when the guest has left it");
        }
        if matches!(decision.phase, Failed) && !ended && facts.target.lives() {
            prop_assert!(has(&Effect::DeleteTarget) || has(&Effect::SwitchOver), "losers go");
        }
        if has(&Effect::RemoveFinalizer) {
            prop_assert!(ended && facts.deleted, "it is held until it is over");
        }
    }
}
