//! What is decided for a machine under every strategy, as a table, and what holds whatever is there.

use api::condition;
use api::kubevirt::PrintableStatus;
use api::names::conditions;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn vm(strategy: &str, change: impl FnOnce(&mut Value)) -> VirtualMachine {
    let mut object = json!({
        "metadata": { "name": "wren", "namespace": "default", "uid": "m1", "generation": 3, "finalizers": [finalizers::MACHINE] },
        "spec": { "runStrategy": strategy, "template": { "metadata": { "labels": { "app": "wren" } }, "spec": { "domain": { "devices": {} } } } },
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

fn vmi(phase: &str, deleting: bool) -> VirtualMachineInstance {
    let mut vmi = instance::of(&vm("Always", |_| {}));
    vmi.metadata.uid = Some("i1".into());
    vmi.metadata.deletion_timestamp = deleting.then(|| Time(at(NOW)));
    vmi.status = Some(
        serde_json::from_value(json!({
            "phase": phase,
            "phaseTransitionTimestamps": [
                { "phase": "Running", "phaseTransitionTimestamp": at(NOW - 100).to_string() },
                { "phase": phase, "phaseTransitionTimestamp": at(NOW).to_string() },
            ],
        }))
        .unwrap(),
    );
    vmi
}

#[derive(Debug, PartialEq)]
enum Does {
    Nothing,
    Starts,
    Deletes,
}

fn does(decision: &Decision) -> Does {
    match decision.actions.as_slice() {
        [] => Does::Nothing,
        [Action::Create(vmi)] => {
            assert_eq!(vmi.metadata.owner_references.as_ref().unwrap()[0].uid, "m1");
            Does::Starts
        }
        [Action::Delete { uid, .. }] if uid == "i1" => Does::Deletes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_strategy_with_every_instance() {
    use Does::{Deletes, Nothing, Starts};
    use PrintableStatus::{CrashLoopBackOff, Running, Starting, Stopped, Stopping, WaitingForReceiver};
    // Without an instance, one that runs, one that ended well, one that failed just now.
    let rows = [
        (
            "Always",
            [(Starts, Starting), (Nothing, Running), (Deletes, Starting), (Nothing, CrashLoopBackOff)],
        ),
        (
            "RerunOnFailure",
            [(Starts, Starting), (Nothing, Running), (Nothing, Stopped), (Nothing, CrashLoopBackOff)],
        ),
        ("Once", [(Starts, Starting), (Nothing, Running), (Nothing, Stopped), (Nothing, Stopped)]),
        ("Manual", [(Nothing, Stopped), (Nothing, Running), (Nothing, Stopped), (Nothing, Stopped)]),
        ("Halted", [(Nothing, Stopped), (Deletes, Stopping), (Deletes, Stopped), (Deletes, Stopped)]),
        (
            "WaitAsReceiver",
            [
                (Nothing, WaitingForReceiver),
                (Nothing, Running),
                (Nothing, WaitingForReceiver),
                (Nothing, WaitingForReceiver),
            ],
        ),
    ];
    for (strategy, expected) in rows {
        let instances =
            [None, Some(vmi("Running", false)), Some(vmi("Succeeded", false)), Some(vmi("Failed", false))];
        for (instance, (action, printable)) in instances.into_iter().zip(expected) {
            let decision = decide(&vm(strategy, |_| {}), instance.as_ref(), at(NOW));
            let phase = instance.and_then(|instance| instance.status?.phase);
            assert_eq!(does(&decision), action, "{strategy} with {phase:?}");
            assert_eq!(decision.status.printable_status, Some(printable), "{strategy} with {phase:?}");
        }
    }
}

#[test]
fn running_is_another_word_for_a_strategy() {
    for (running, expected) in [(true, Does::Starts), (false, Does::Nothing)] {
        let vm = vm("Always", |object| {
            object["spec"]["running"] = json!(running);
            object["spec"].as_object_mut().unwrap().remove("runStrategy");
        });
        assert_eq!(does(&decide(&vm, None, at(NOW))), expected);
    }
}

#[test]
fn each_failure_in_a_row_makes_the_next_pause_longer_up_to_five_minutes() {
    let pauses: Vec<u64> = (1..=7).map(pause_after).collect();
    assert_eq!(pauses, [10, 40, 90, 160, 250, 300, 300]);
    assert_eq!(pause_after(u32::MAX), 300);
}

#[test]
fn a_failed_instance_is_counted_once_and_replaced_after_the_pause() {
    let failed = vmi("Failed", false);
    let mut machine = vm("Always", |_| {});
    let first = decide(&machine, Some(&failed), at(NOW));
    let counted = first.status.start_failure.clone().unwrap();
    assert_eq!((counted.consecutive_fail_count, counted.last_failed_vmi_uid.as_deref()), (1, Some("i1")));
    assert_eq!(first.again, Some(Duration::from_secs(10)));
    machine.status = Some(first.status.clone());
    let second = decide(&machine, Some(&failed), at(NOW + 9));
    assert_eq!(
        (second.status.start_failure, does(&decide(&machine, Some(&failed), at(NOW + 10)))),
        (first.status.start_failure, Does::Deletes)
    );
}

#[test]
fn a_guest_that_ran_for_long_was_started_well() {
    let mut failed = vmi("Failed", false);
    failed.status.as_mut().unwrap().phase_transition_timestamps[0].phase_transition_timestamp =
        Time(at(NOW - 301));
    let before = |object: &mut Value| {
        object["status"] = json!({ "startFailure": { "consecutiveFailCount": 4, "lastFailedVMIUID": "i0" } });
    };
    let count = |vmi: &VirtualMachineInstance| {
        let status = decide(&vm("Always", before), Some(vmi), at(NOW)).status;
        status.start_failure.map(|failure| failure.consecutive_fail_count)
    };
    assert_eq!(count(&failed), Some(1), "it counts anew");
    assert_eq!(count(&vmi("Failed", false)), Some(5), "a hundred seconds are not well started");
    let mut running = vmi("Running", false);
    assert_eq!(count(&running), Some(4));
    running.status.as_mut().unwrap().phase_transition_timestamps[0].phase_transition_timestamp =
        Time(at(NOW - 301));
    assert_eq!(count(&running), None, "forgotten");
}

#[test]
fn a_change_of_the_template_is_noticed_and_what_admission_filled_in_is_not() {
    let required = |vm: &VirtualMachine, vmi: &VirtualMachineInstance| {
        condition::is_true(&decide(vm, Some(vmi), at(NOW)).status.conditions, conditions::RESTART_REQUIRED)
    };
    let mut running = vmi("Running", false);
    assert!(!required(&vm("Always", |_| {}), &running));
    let cluster = crate::admission::defaults::ClusterDefaults {
        interface: api::kubevirt::DefaultNetworkInterface::Masquerade,
        cpu_model: Some("Haswell".into()),
        eviction_strategy: None,
    };
    crate::admission::defaults::fill_in(&mut running.spec, &cluster);
    assert!(!required(&vm("Always", |_| {}), &running));
    let changed = vm("Always", |object| object["spec"]["template"]["spec"]["hostname"] = json!("other"));
    assert!(required(&changed, &running));
    assert!(!required(&changed, &vmi("Succeeded", false)), "the next start comes anyway");
}

#[test]
fn the_instance_carries_the_template_and_the_generation() {
    let made = instance::of(&vm("Always", |_| {}));
    assert_eq!(made.labels()["app"], "wren");
    assert_eq!(instance::generation(&made), Some(3));
    assert_eq!(made.finalizers(), [finalizers::INSTANCE]);
    let status = decide(&vm("Always", |_| {}), Some(&vmi("Running", false)), at(NOW)).status;
    assert_eq!((status.observed_generation, status.desired_generation), (Some(3), Some(3)));
}

prop_compose! {
    fn any_vm()(
        strategy in prop_oneof!["Always", "RerunOnFailure", "Once", "Manual", "Halted", "WaitAsReceiver"],
        deleting: bool,
        held: bool,
        requests in proptest::collection::vec(prop_oneof!["Start", "Stop"], 0..3),
    ) -> VirtualMachine {
        vm(&strategy, |object| {
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!(at(NOW).to_string());
            }
            if !held {
                object["metadata"]["finalizers"] = json!([]);
            }
            let requests: Vec<Value> = requests.iter().map(|action| json!({ "action": action })).collect();
            object["status"] = json!({ "stateChangeRequests": requests });
        })
    }
}

prop_compose! {
    fn any_vmi()(
        phase in prop_oneof!["Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "Unknown"],
        deleting: bool,
    ) -> VirtualMachineInstance {
        vmi(&phase, deleting)
    }
}

proptest! {
    #[test]
    fn deciding_again_on_what_was_decided_changes_no_status(vm in any_vm(), vmi in proptest::option::of(any_vmi())) {
        let first = decide(&vm, vmi.as_ref(), at(NOW));
        let mut next = vm;
        next.status = Some(first.status.clone());
        let second = decide(&next, vmi.as_ref(), at(NOW));
        next.status = Some(second.status.clone());
        let third = decide(&next, vmi.as_ref(), at(NOW));
        prop_assert_eq!(second.status, third.status);
    }

    #[test]
    fn there_is_never_a_second_instance_and_none_is_deleted_twice(vm in any_vm(), vmi in proptest::option::of(any_vmi())) {
        let decision = decide(&vm, vmi.as_ref(), at(NOW));
        let creates = decision.actions.iter().any(|action| matches!(action, Action::Create(_)));
        let deletes = decision.actions.iter().any(|action| matches!(action, Action::Delete { .. }));
        prop_assert!(!(creates && (vmi.is_some() || vm.metadata.deletion_timestamp.is_some())));
        prop_assert!(!(deletes && vmi.is_none_or(|vmi| vmi.metadata.deletion_timestamp.is_some())));
    }

    #[test]
    fn a_machine_is_let_go_only_without_an_instance(vm in any_vm(), vmi in proptest::option::of(any_vmi())) {
        let decision = decide(&vm, vmi.as_ref(), at(NOW));
        if decision.actions.contains(&Action::RemoveFinalizer) {
            prop_assert!(vmi.is_none() && vm.metadata.deletion_timestamp.is_some());
        }
    }
}

#[test]
fn a_start_that_was_asked_of_a_halted_machine_is_not_remembered() {
    let asked =
        |object: &mut Value| object["status"] = json!({ "stateChangeRequests": [{ "action": "Start" }] });
    assert_eq!(decide(&vm("Halted", asked), None, at(NOW)).status.state_change_requests, []);
    let manual = decide(&vm("Manual", asked), None, at(NOW));
    assert_eq!(
        (does(&manual), manual.status.state_change_requests.len()),
        (Does::Starts, 1),
        "until there is an instance"
    );
}
