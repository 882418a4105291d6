//! The life of a launcher, step by step and in any order.

#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::kubevirt::VirtualMachineInstanceSpec;
use proptest::prelude::*;

use super::*;

fn instance(uid: &str, grace: Option<i64>) -> Box<VirtualMachineInstance> {
    let spec = VirtualMachineInstanceSpec { termination_grace_period_seconds: grace, ..Default::default() };
    let mut vmi = VirtualMachineInstance::new("testvm", spec);
    vmi.metadata.uid = Some(uid.to_owned());
    Box::new(vmi)
}

fn start(uid: &str) -> Input {
    let command = Command::Start { vmi: instance(uid, Some(12)), accelerator: AcceleratorPolicy::Probe };
    Input::Command { command, from: 7 }
}

fn told(command: Command) -> Input {
    Input::Command { command, from: 7 }
}

fn prepared() -> Input {
    Input::Prepared { interfaces: Vec::new(), accelerator: Accelerator::Tcg, accelerator_reason: None }
}

fn migrate(uid: &str) -> Input {
    told(Command::Migrate {
        options: Box::new(MigrateOptions { uid: uid.to_owned(), ..MigrateOptions::default() }),
    })
}

fn target(uid: &str) -> Input {
    let vmi = instance(uid, Some(12));
    told(Command::PrepareTarget { vmi, accelerator: AcceleratorPolicy::Tcg })
}

fn move_ended(outcome: Result<(), &str>) -> Input {
    Input::MoveEnded { outcome: outcome.map_err(str::to_owned), sample: None }
}

fn report(launcher: &Supervisor) -> (MigrationPhase, Option<&str>) {
    let report = launcher.status().migration.as_ref().unwrap();
    (report.phase, report.reason.as_deref())
}

fn wake(seconds: u64) -> Effect {
    Effect::Wake { after: Duration::from_secs(seconds) }
}

fn refused(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Refuse { to: 7, .. }])
}

/// A launcher whose guest runs.
fn running() -> Supervisor {
    let mut launcher = Supervisor::new();
    for input in [start("a"), prepared(), Input::Started, Input::Domain(DomainState::Running)] {
        launcher.decide(input);
    }
    assert_eq!(launcher.status().phase, Phase::Running);
    launcher
}

fn ending(launcher: &Supervisor) -> (Outcome, &str) {
    let ending = launcher.status().ending.as_ref().unwrap();
    (ending.outcome, &ending.reason)
}

#[test]
fn the_straight_way() {
    let mut launcher = Supervisor::new();
    let effects = launcher.decide(start("a"));
    assert!(matches!(effects[..], [Effect::Prepare { .. }, Effect::Publish]));
    assert_eq!(launcher.decide(prepared()), [Effect::StartDomain, Effect::Publish]);
    assert_eq!(launcher.decide(Input::Started), [Effect::Publish]);
    assert_eq!(launcher.decide(Input::Domain(DomainState::ShutDown)), [Effect::CleanUp, Effect::Publish]);
    let effects = launcher.decide(Input::Cleaned { problems: vec!["a veth stayed".to_owned()] });
    assert_eq!(effects, [Effect::Publish, Effect::Exit { code: 0 }]);
    assert_eq!(ending(&launcher), (Outcome::Succeeded, "GuestShutdown"));
    assert_eq!(launcher.status().problems, ["a veth stayed"]);
}

#[test]
fn one_vm_only() {
    let mut launcher = running();
    assert!(launcher.decide(start("a")).is_empty(), "it runs already");
    assert!(refused(&launcher.decide(start("b"))));
}

#[test]
fn the_power_button_is_pressed_until_the_time_is_over() {
    let mut launcher = running();
    assert_eq!(launcher.decide(Input::Terminate), [Effect::PressPowerButton, wake(5), Effect::Publish]);
    assert_eq!(launcher.decide(Input::Woke), [Effect::PressPowerButton, wake(5)]);
    assert_eq!(
        launcher.decide(Input::Woke),
        [Effect::PressPowerButton, wake(2)],
        "of twelve seconds, two are left"
    );
    assert_eq!(launcher.decide(Input::Woke), [Effect::Kill, wake(5)]);
    assert_eq!(launcher.decide(Input::Woke), [Effect::Kill, wake(5)], "until it is gone");
    launcher.decide(Input::Domain(DomainState::Destroyed));
    assert_eq!(ending(&launcher), (Outcome::Succeeded, "Killed"));
    assert!(launcher.decide(Input::Woke).is_empty());
}

#[test]
fn a_shorter_time_counts_and_none_is_at_once() {
    let mut launcher = running();
    launcher.decide(told(Command::Shutdown { grace_seconds: 600 }));
    assert!(launcher.decide(told(Command::Shutdown { grace_seconds: 3 })).is_empty());
    assert_eq!(launcher.decide(Input::Woke), [Effect::Kill, wake(5)]);
    let mut launcher = running();
    assert_eq!(launcher.decide(told(Command::Kill))[0], Effect::Kill);
    let mut launcher = running();
    assert_eq!(launcher.decide(told(Command::Shutdown { grace_seconds: 0 }))[0], Effect::Kill);
}

#[test]
fn told_to_end_before_the_guest_runs() {
    let mut launcher = Supervisor::new();
    assert_eq!(launcher.decide(Input::Terminate), [Effect::CleanUp, Effect::Publish]);
    assert_eq!(ending(&launcher), (Outcome::Failed, "NeverStarted"));

    let mut launcher = Supervisor::new();
    launcher.decide(start("a"));
    assert!(
        launcher.decide(Input::Terminate).is_empty(),
        "what is being made must be known before it is taken away"
    );
    assert_eq!(launcher.decide(prepared()), [Effect::CleanUp, Effect::Publish]);

    let mut launcher = Supervisor::new();
    launcher.decide(start("a"));
    launcher.decide(prepared());
    launcher.decide(told(Command::Shutdown { grace_seconds: 60 }));
    launcher.decide(told(Command::Kill));
    assert_eq!(launcher.decide(Input::Started)[0], Effect::Kill, "the sooner of the two");
}

#[test]
fn failures_name_their_cause_and_clean_up() {
    let cause = "no such bridge".to_owned();
    let mut launcher = Supervisor::new();
    launcher.decide(start("a"));
    let effects = launcher.decide(Input::PreparationFailed { cause: cause.clone() });
    assert_eq!(effects, [Effect::CleanUp, Effect::Publish]);
    assert_eq!(ending(&launcher), (Outcome::Failed, "PreparationFailed"));
    assert_eq!(launcher.status().ending.as_ref().unwrap().message, cause);

    let mut launcher = Supervisor::new();
    launcher.decide(start("a"));
    launcher.decide(prepared());
    launcher.decide(Input::StartFailed { cause: cause.clone() });
    assert_eq!(ending(&launcher), (Outcome::Failed, "StartFailed"));

    for (input, reason) in [
        (Input::Domain(DomainState::Crashed("signal 9".to_owned())), "Crashed"),
        (Input::HypervisorLost { cause }, "HypervisorLost"),
    ] {
        let mut launcher = running();
        assert_eq!(launcher.decide(input)[0], Effect::CleanUp);
        assert_eq!(ending(&launcher), (Outcome::Failed, reason));
        let effects = launcher.decide(Input::Cleaned { problems: Vec::new() });
        assert_eq!(effects.last(), Some(&Effect::Exit { code: 1 }));
    }
}

#[test]
fn pausing_is_for_guests_that_run() {
    let mut launcher = Supervisor::new();
    assert!(refused(&launcher.decide(told(Command::Pause))));
    let mut launcher = running();
    assert_eq!(launcher.decide(told(Command::Pause)), [Effect::Pause]);
    assert_eq!(launcher.status().phase, Phase::Running, "it is paused when it is seen to be");
    launcher.decide(Input::Domain(DomainState::Paused));
    assert_eq!(launcher.status().phase, Phase::Paused);
    assert!(launcher.decide(told(Command::Pause)).is_empty());
    assert_eq!(launcher.decide(told(Command::Resume)), [Effect::Resume]);
    launcher.decide(Input::Terminate);
    assert!(launcher.decide(Input::Domain(DomainState::Running)).is_empty(), "it is still to end");
    assert!(refused(&launcher.decide(told(Command::Resume))));
}

#[test]
fn a_guest_that_moved_away_is_no_guest_that_ended() {
    let mut launcher = running();
    assert!(matches!(launcher.decide(migrate("m"))[..], [Effect::Migrate { .. }, Effect::Publish]));
    let sample = ProgressSample { total_bytes: 7, ..ProgressSample::default() };
    launcher.decide(Input::Moved { sample: sample.clone(), mode: MigrationMode::PreCopy });
    assert!(launcher.decide(Input::Domain(DomainState::Moving)).is_empty());
    assert!(launcher.decide(Input::Domain(DomainState::Migrated)).is_empty(), "the move itself tells");
    assert_eq!(launcher.decide(move_ended(Ok(()))), [Effect::CleanUp, Effect::Publish]);
    assert_eq!(report(&launcher), (MigrationPhase::Completed, None));
    assert_eq!(launcher.status().migration.as_ref().unwrap().sample, sample, "the last that is known");
    assert_eq!(ending(&launcher), (Outcome::Succeeded, Ending::MIGRATED));
    let effects = launcher.decide(Input::Cleaned { problems: Vec::new() });
    assert_eq!(effects.last(), Some(&Effect::Exit { code: 0 }));
}

#[test]
fn a_guest_whose_move_failed_goes_on_and_may_move_again() {
    let mut launcher = running();
    launcher.decide(migrate("m"));
    assert!(launcher.decide(migrate("m")).is_empty(), "it is on its way");
    assert!(refused(&launcher.decide(migrate("n"))), "one move at a time");
    assert_eq!(launcher.decide(move_ended(Err("no way"))), [Effect::Publish]);
    assert_eq!(report(&launcher), (MigrationPhase::Failed, Some("no way")));
    assert_eq!(launcher.status().phase, Phase::Running);
    assert!(launcher.decide(migrate("m")).is_empty(), "how it went is known");
    assert!(matches!(launcher.decide(migrate("n"))[0], Effect::Migrate { .. }));
}

#[test]
fn a_move_is_given_up_on_request() {
    let mut launcher = running();
    assert!(refused(&launcher.decide(told(Command::CancelMigration))));
    launcher.decide(migrate("m"));
    assert_eq!(launcher.decide(told(Command::CancelMigration)), [Effect::CancelMigration]);
    launcher.decide(move_ended(Err("cancelled by client")));
    assert_eq!(report(&launcher).0, MigrationPhase::Cancelled);
    launcher.decide(migrate("n"));
    launcher.decide(told(Command::CancelMigration));
    launcher.decide(move_ended(Ok(())));
    assert_eq!(report(&launcher).0, MigrationPhase::Completed, "it was too late");
}

#[test]
fn told_to_end_while_the_guest_moves() {
    // The pod is to go: the guest had better be elsewhere.
    let mut launcher = running();
    launcher.decide(migrate("m"));
    assert!(launcher.decide(Input::Terminate).is_empty());
    launcher.decide(move_ended(Ok(())));
    assert_eq!(ending(&launcher), (Outcome::Succeeded, Ending::MIGRATED));

    let mut launcher = running();
    launcher.decide(migrate("m"));
    launcher.decide(Input::Terminate);
    assert_eq!(launcher.decide(move_ended(Err("no way")))[0], Effect::PressPowerButton);

    // The guest is to go.
    let mut launcher = running();
    launcher.decide(migrate("m"));
    let shutdown = || told(Command::Shutdown { grace_seconds: 9 });
    assert_eq!(launcher.decide(shutdown()), [Effect::CancelMigration]);
    assert!(launcher.decide(shutdown()).is_empty(), "it is being given up");
    let effects = launcher.decide(move_ended(Err("cancelled by client")));
    assert_eq!(effects, [Effect::PressPowerButton, wake(5), Effect::Publish]);
    assert_eq!(report(&launcher).0, MigrationPhase::Cancelled);
    let mut launcher = running();
    launcher.decide(migrate("m"));
    assert_eq!(launcher.decide(told(Command::Kill))[0], Effect::Kill, "which needs no patience");
}

#[test]
fn a_guest_that_is_stopped_for_its_move_is_not_paused() {
    let mut launcher = running();
    launcher.decide(migrate("m"));
    assert!(launcher.decide(Input::Domain(DomainState::Paused)).is_empty());
    assert_eq!(launcher.status().phase, Phase::Running);
}

/// A launcher that waits for a guest.
fn waiting_for_guest() -> Supervisor {
    let mut launcher = Supervisor::new();
    assert!(matches!(launcher.decide(target("a"))[..], [Effect::Prepare { .. }, Effect::Publish]));
    assert_eq!(launcher.decide(prepared()), [Effect::AwaitDomain, Effect::Publish]);
    assert_eq!(launcher.status().phase, Phase::ReadyForMigration);
    launcher
}

#[test]
fn a_guest_arrives() {
    let mut launcher = waiting_for_guest();
    assert!(launcher.decide(target("a")).is_empty(), "it is ready already");
    assert!(refused(&launcher.decide(target("b"))));
    assert!(refused(&launcher.decide(migrate("m"))), "it is not here");
    assert!(launcher.decide(Input::Domain(DomainState::Moving)).is_empty());
    assert_eq!(launcher.decide(Input::Domain(DomainState::Running)), [Effect::Publish]);
    assert_eq!(launcher.status().phase, Phase::Running);
    assert!(launcher.decide(start("a")).is_empty(), "it runs already");
    assert!(matches!(launcher.decide(migrate("n"))[0], Effect::Migrate { .. }), "and may go on");
}

#[test]
fn a_guest_that_has_arrived_runs_when_it_has_left_its_source() {
    let departed = Input::Departed { paused: false };
    for word in [departed.clone(), told(Command::TakeOver { paused: false })] {
        let mut launcher = waiting_for_guest();
        assert_eq!(launcher.decide(Input::Domain(DomainState::Paused)), [Effect::Publish]);
        assert_eq!(launcher.status().phase, Phase::Arrived);
        assert!(refused(&launcher.decide(told(Command::Resume))), "that is for the source to say");
        assert_eq!(launcher.decide(word.clone()), [Effect::TakeOver]);
        assert!(launcher.decide(word).is_empty(), "once");
        assert_eq!(launcher.decide(Input::Domain(DomainState::Running)), [Effect::Publish]);
        assert_eq!(launcher.status().phase, Phase::Running);
    }
    let mut launcher = waiting_for_guest();
    assert_eq!(launcher.decide(departed), [Effect::TakeOver], "though its arrival was not seen yet");
    launcher.decide(Input::Domain(DomainState::Paused));
    launcher.decide(Input::Domain(DomainState::Running));
    assert_eq!(launcher.status().phase, Phase::Running);

    let mut launcher = running();
    assert!(refused(&launcher.decide(told(Command::TakeOver { paused: false }))), "it began here");
}

#[test]
fn a_guest_that_was_paused_where_it_came_from_stays_so() {
    for seen_first in [true, false] {
        let mut launcher = waiting_for_guest();
        let inputs = [Input::Domain(DomainState::Paused), Input::Departed { paused: true }];
        let order = if seen_first { [0, 1] } else { [1, 0] };
        for index in order {
            assert!(!launcher.decide(inputs[index].clone()).contains(&Effect::TakeOver));
        }
        assert_eq!(launcher.status().phase, Phase::Paused);
        assert_eq!(launcher.decide(told(Command::Resume)), [Effect::Resume]);
    }
}

#[test]
fn told_to_end_with_a_guest_that_has_arrived() {
    let arrived = || {
        let mut launcher = waiting_for_guest();
        launcher.decide(Input::Domain(DomainState::Paused));
        launcher
    };
    let mut launcher = arrived();
    assert!(launcher.decide(Input::Terminate).is_empty(), "it may be nowhere else");
    assert_eq!(launcher.decide(Input::Departed { paused: false }), [Effect::TakeOver]);
    let effects = launcher.decide(Input::Domain(DomainState::Running));
    assert_eq!(effects[..2], [Effect::PressPowerButton, wake(5)]);

    let mut launcher = arrived();
    launcher.decide(Input::Terminate);
    assert_eq!(launcher.decide(told(Command::Kill)), [Effect::CleanUp, Effect::Publish], "it is elsewhere");
    assert_eq!(ending(&launcher), (Outcome::Failed, "NeverStarted"));
}

#[test]
fn a_guest_does_not_arrive() {
    for (input, reason) in [
        (Input::Domain(DomainState::Absent), "NeverArrived"),
        (Input::HypervisorLost { cause: "gone".to_owned() }, "HypervisorLost"),
        (Input::Terminate, "NeverStarted"),
        (told(Command::Kill), "NeverStarted"),
    ] {
        let mut launcher = waiting_for_guest();
        launcher.decide(Input::Domain(DomainState::Moving));
        assert_eq!(launcher.decide(input), [Effect::CleanUp, Effect::Publish]);
        assert_eq!(ending(&launcher), (Outcome::Failed, reason));
    }
}

#[test]
fn problems_are_the_last_few() {
    let mut launcher = running();
    for number in 0..100 {
        launcher.decide(Input::Problem { cause: number.to_string() });
    }
    assert_eq!(launcher.status().problems.len(), PROBLEMS);
    assert_eq!(launcher.status().problems.last().unwrap(), "99");
}

fn any_input() -> impl Strategy<Value = Input> {
    let cause = || Just("cause".to_owned());
    prop_oneof![
        Just(start("a")),
        Just(start("b")),
        Just(target("a")),
        Just(migrate("m")),
        Just(migrate("n")),
        Just(told(Command::CancelMigration)),
        any::<bool>().prop_map(|paused| told(Command::TakeOver { paused })),
        any::<bool>().prop_map(|paused| Input::Departed { paused }),
        Just(Input::Moved { sample: ProgressSample::default(), mode: MigrationMode::PreCopy }),
        Just(move_ended(Ok(()))),
        Just(move_ended(Err("cause"))),
        (0..20_u32).prop_map(|grace_seconds| told(Command::Shutdown { grace_seconds })),
        Just(told(Command::Kill)),
        Just(told(Command::Pause)),
        Just(told(Command::Resume)),
        Just(Input::Terminate),
        Just(prepared()),
        cause().prop_map(|cause| Input::PreparationFailed { cause }),
        Just(Input::Started),
        cause().prop_map(|cause| Input::StartFailed { cause }),
        prop_oneof![
            Just(DomainState::Absent),
            Just(DomainState::Moving),
            Just(DomainState::Migrated),
            Just(DomainState::Running),
            Just(DomainState::Paused),
            Just(DomainState::ShutDown),
            Just(DomainState::Destroyed),
            cause().prop_map(DomainState::Crashed),
        ]
        .prop_map(Input::Domain),
        Just(Input::Woke),
        cause().prop_map(|cause| Input::HypervisorLost { cause }),
        Just(Input::Cleaned { problems: Vec::new() }),
        cause().prop_map(|cause| Input::Problem { cause }),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_things_are_made_once_and_cleaned_up_before_the_end(inputs in prop::collection::vec(any_input(), 0..40)) {
        let mut launcher = Supervisor::new();
        let mut done = Vec::new();
        for input in inputs {
            let before = launcher.status().clone();
            let effects = launcher.decide(input);
            prop_assert_eq!(effects.contains(&Effect::Publish), *launcher.status() != before);
            done.extend(effects);
        }
        let places = |wanted: fn(&Effect) -> bool| -> Vec<usize> {
            done.iter().enumerate().filter(|(_, effect)| wanted(effect)).map(|(place, _)| place).collect()
        };
        let prepares = places(|effect| matches!(effect, Effect::Prepare { .. }));
        let starts = places(|effect| matches!(effect, Effect::StartDomain | Effect::AwaitDomain));
        let cleans = places(|effect| matches!(effect, Effect::CleanUp));
        let exits = places(|effect| matches!(effect, Effect::Exit { .. }));
        prop_assert!(prepares.len() <= 1 && starts.len() <= 1 && cleans.len() <= 1 && exits.len() <= 1);
        prop_assert!(starts.is_empty() || prepares[0] < starts[0]);
        prop_assert!(exits.is_empty() || cleans[0] < exits[0]);
        prop_assert_eq!(launcher.status().ending.is_some(), !cleans.is_empty());
    }

    #[test]
    fn a_guest_that_comes_in_is_let_run_only_once_it_has_left_its_source(inputs in prop::collection::vec(any_input(), 0..40)) {
        let (mut launcher, mut departed) = (waiting_for_guest(), false);
        for input in inputs {
            let came_by_itself = matches!(input, Input::Domain(DomainState::Running));
            let word = matches!(input, Input::Departed { .. } | Input::Command { command: Command::TakeOver { .. }, .. });
            departed |= word || came_by_itself;
            let effects = launcher.decide(input);
            let runs = effects.iter().any(|effect| matches!(effect, Effect::TakeOver | Effect::Resume | Effect::StartDomain));
            prop_assert!(departed || !runs);
            prop_assert!(departed || !matches!(launcher.status().phase, Phase::Running | Phase::Paused));
        }
    }

    #[test]
    fn an_end_is_reached_from_everywhere(inputs in prop::collection::vec(any_input(), 0..20)) {
        let mut launcher = Supervisor::new();
        for input in inputs {
            launcher.decide(input);
        }
        launcher.decide(told(Command::Kill));
        for input in [prepared(), Input::Started, Input::Domain(DomainState::Destroyed), Input::Cleaned { problems: Vec::new() }] {
            launcher.decide(input);
        }
        prop_assert_eq!(launcher.status().phase, Phase::Ended);
    }
}
