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
        let starts = places(|effect| matches!(effect, Effect::StartDomain));
        let cleans = places(|effect| matches!(effect, Effect::CleanUp));
        let exits = places(|effect| matches!(effect, Effect::Exit { .. }));
        prop_assert!(prepares.len() <= 1 && starts.len() <= 1 && cleans.len() <= 1 && exits.len() <= 1);
        prop_assert!(starts.is_empty() || prepares[0] < starts[0]);
        prop_assert!(exits.is_empty() || cleans[0] < exits[0]);
        prop_assert_eq!(launcher.status().ending.is_some(), !cleans.is_empty());
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
