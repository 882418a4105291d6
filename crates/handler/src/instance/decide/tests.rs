#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use api::condition;
use api::names::{conditions, labels, reasons};
use kube::ResourceExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::{Ending, InterfaceStatus, Outcome};

use super::*;

const NODE: &str = "node1";

fn instance(phase: &str, deleting: bool) -> VirtualMachineInstance {
    let mut instance: VirtualMachineInstance = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "uid": "u" },
        "spec": { "domain": { "devices": { "interfaces": [{ "name": "default" }] } }, "terminationGracePeriodSeconds": 7 },
        "status": { "phase": phase, "nodeName": NODE, "interfaces": [{ "name": "default", "mac": "02:00:00:00:00:01" }] },
    }))
    .unwrap();
    instance.metadata.deletion_timestamp =
        deleting.then(|| json!("2026-01-01T00:00:00Z")).map(|time| serde_json::from_value(time).unwrap());
    instance
}

fn pod(phase: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "p" }, "status": { "phase": phase } }))
        .unwrap()
}

fn heard(phase: Phase) -> Status {
    Status { phase, ..Status::default() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[derive(Debug)]
struct Case {
    pod: Option<Pod>,
    instance: Option<VirtualMachineInstance>,
    connected: bool,
    heard: Option<Status>,
    told: Told,
    attached: bool,
}

impl Case {
    /// All is well, and the launcher says this.
    fn with(phase: &str, heard: Status) -> Self {
        Self {
            pod: Some(pod("Running")),
            instance: Some(instance(phase, false)),
            connected: true,
            heard: Some(heard),
            told: Told::default(),
            attached: true,
        }
    }

    fn decide(&self, now: Timestamp) -> Decision {
        let last = pod("Running");
        let situation = Situation {
            node: NODE,
            pod: self.pod.as_ref(),
            known: self.pod.as_ref().unwrap_or(&last),
            instance: self.instance.as_ref(),
            connected: self.connected,
            heard: self.heard.as_ref(),
            told: &self.told,
            attached: self.attached,
            accelerator: AcceleratorPolicy::Probe,
            here: None,
            receiving: None,
            sending: None,
            obstacle: None,
        };
        decide(&situation, now)
    }

    /// The status that is written, as JSON.
    fn status(&self) -> Value {
        serde_json::to_value(self.decide(at(100)).status.unwrap()).unwrap()
    }
}

#[test]
fn a_waiting_launcher_of_a_scheduled_instance_is_started_once() {
    let mut case = Case::with("Scheduled", heard(Phase::Waiting));
    assert!(matches!(case.decide(at(1)).tell, Some(Command::Start { .. })));
    case.told.start = true;
    assert_eq!(case.decide(at(1)), Decision::default());
    case.told.start = false;
    for phase in ["Scheduling", "Running", "Failed"] {
        case.instance = Some(instance(phase, false));
        assert_eq!(case.decide(at(1)).tell, None, "{phase}");
    }
    case.instance = Some(instance("Scheduled", true));
    assert_eq!(case.decide(at(1)).tell, None, "it is being deleted");
    case.instance = Some(instance("Scheduled", false));
    case.pod.as_mut().unwrap().labels_mut().insert(labels::MIGRATION_JOB_UID.to_owned(), "m".to_owned());
    assert_eq!(case.decide(at(1)).tell, None, "its guest comes from elsewhere");
}

#[test]
fn a_running_guest_is_reported_with_its_addresses() {
    let mut status = heard(Phase::Running);
    status.accelerator = Some(wire::Accelerator::Tcg);
    status.accelerator_reason = Some("there is no /dev/kvm".to_owned());
    status.interfaces = vec![InterfaceStatus {
        name: "default".parse().unwrap(),
        mac: "02:00:00:00:00:01".parse().unwrap(),
        pod_interface: "vnic0".parse().unwrap(),
        addresses: vec!["10.0.0.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
        mtu: None,
    }];
    let mut case = Case::with("Scheduled", status);
    let written = case.status();
    assert_eq!(written["phase"], "Running");
    let interface = json!({ "name": "default", "mac": "02:00:00:00:00:01", "ipAddress": "10.0.0.7",
        "ipAddresses": ["10.0.0.7", "2001:db8::7"], "podInterfaceName": "vnic0", "infoSource": "domain" });
    assert_eq!(written["interfaces"], json!([interface]));
    assert_eq!(written["conditions"][0]["type"], conditions::ACCELERATED);
    assert_eq!(written["conditions"][0]["message"], "there is no /dev/kvm");
    case.instance.as_mut().unwrap().status = case.decide(at(100)).status.map(|status| *status);
    assert_eq!(case.decide(at(200)), Decision::default(), "what is written is not written again");
}

#[test]
fn pausing_comes_and_goes() {
    let mut case = Case::with("Running", heard(Phase::Paused));
    let paused = case.decide(at(1)).status.unwrap();
    assert!(condition::is_true(&paused.conditions, conditions::PAUSED));
    case.instance.as_mut().unwrap().status = Some(*paused);
    case.heard = Some(heard(Phase::Running));
    let resumed = case.decide(at(2)).status.unwrap();
    assert!(condition::find(&resumed.conditions, conditions::PAUSED).is_none());
}

#[test]
fn a_guest_that_must_go_is_asked_and_then_killed() {
    let mut case = Case::with("Running", heard(Phase::Running));
    case.instance = Some(instance("Running", true));
    assert_eq!(case.decide(at(100)).tell, Some(Command::Shutdown { grace_seconds: 7 }));
    case.told.shutdown = Some(at(100));
    let waiting = case.decide(at(105));
    assert_eq!((waiting.tell, waiting.again), (None, Some(Duration::from_secs(7))));
    assert_eq!(case.decide(at(112)).tell, Some(Command::Kill));
    case.told.kill = true;
    assert_eq!(case.decide(at(112)).tell, None);
}

#[test]
fn a_guest_whose_instance_was_given_up_is_killed() {
    let case = Case::with("Failed", heard(Phase::Running));
    assert_eq!(case.decide(at(1)).tell, Some(Command::Kill));
    assert_eq!(case.decide(at(1)).status, None, "what has ended has ended");
}

#[test]
fn the_end_is_as_the_launcher_says() {
    for (outcome, phase) in [(Outcome::Succeeded, "Succeeded"), (Outcome::Failed, "Failed")] {
        let mut status = heard(Phase::CleaningUp);
        status.ending =
            Some(Ending { outcome, reason: "Because".to_owned(), message: "It was so.".to_owned() });
        let written = Case::with("Running", status).status();
        assert_eq!((&written["phase"], &written["reason"]), (&json!(phase), &json!("Because")));
    }
}

#[test]
fn an_end_without_a_word_is_as_the_pod_shows() {
    let case = |pod: Option<Pod>, deleting| Case {
        pod,
        instance: Some(instance("Running", deleting)),
        connected: false,
        heard: Some(heard(Phase::Running)),
        told: Told::default(),
        attached: true,
    };
    for (pod, deleting, phase, reason) in [
        (Some(pod("Succeeded")), false, "Succeeded", Value::Null),
        (Some(pod("Failed")), false, "Failed", json!(reasons::LAUNCHER_LOST)),
        (None, false, "Failed", json!(reasons::LAUNCHER_LOST)),
        (None, true, "Succeeded", Value::Null),
    ] {
        let case = case(pod, deleting);
        let decision = case.decide(at(1));
        assert!(decision.release && !decision.finished, "{phase}");
        let written = case.status();
        assert_eq!((&written["phase"], &written["reason"]), (&json!(phase), &reason));
    }
}

#[test]
fn a_refused_start_is_told_to_people() {
    let mut case = Case::with("Scheduled", heard(Phase::Waiting));
    case.told = Told {
        start: true,
        refused: Some(("start".to_owned(), "no such disk".to_owned())),
        ..Told::default()
    };
    let written = case.status();
    assert_eq!(written["phase"], "Scheduled");
    assert_eq!(written["conditions"][0]["message"], "the launcher refused to start: no such disk");
}

fn cases() -> impl Strategy<Value = Case> {
    let phases = ["Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "Unknown"];
    let guest = [
        Phase::Waiting,
        Phase::Preparing,
        Phase::Starting,
        Phase::Running,
        Phase::Paused,
        Phase::ShuttingDown,
        Phase::CleaningUp,
        Phase::Ended,
    ];
    let ending = prop::option::of(prop::sample::select(vec![Outcome::Succeeded, Outcome::Failed]));
    let heard =
        prop::option::of((prop::sample::select(guest.to_vec()), ending).prop_map(|(phase, outcome)| {
            Status {
                phase,
                ending: outcome.map(|outcome| Ending {
                    outcome,
                    reason: "R".to_owned(),
                    message: "M".to_owned(),
                }),
                ..Status::default()
            }
        }));
    let pods = prop::option::of(prop::sample::select(vec!["Pending", "Running", "Succeeded", "Failed"]));
    let instances = prop::option::of((prop::sample::select(phases.to_vec()), any::<bool>()));
    let told = (any::<bool>(), prop::option::of(0_i64..200), any::<bool>());
    (pods, instances, any::<bool>(), heard, told, any::<bool>()).prop_map(
        |(phase, shown, connected, heard, (start, shutdown, kill), attached)| Case {
            pod: phase.map(pod),
            instance: shown.map(|(phase, deleting)| instance(phase, deleting)),
            connected,
            heard,
            told: Told { start, shutdown: shutdown.map(at), kill, ..Told::default() },
            attached,
        },
    )
}

proptest! {
    /// A guest may still run in a pod that has not ended, unless its launcher says that it does not: then, and only then, may it
    /// be called ended and its vNICs taken away.
    #[test]
    fn nothing_is_given_up_while_a_guest_may_run(case in cases()) {
        let decision = case.decide(at(100));
        let over = case.pod.as_ref().is_none_or(pods::has_ended);
        let said = case.heard.as_ref().is_some_and(|heard| heard.ending.is_some());
        prop_assert!(over || !decision.release);
        prop_assert!(case.pod.is_none() || !decision.finished);
        prop_assert!(!(decision.release && decision.finished), "what cannot be given back is tried again");
        if let Some(status) = &decision.status {
            prop_assert!(over || said || !status.phase.unwrap().is_final());
        }
    }

    /// Writing what was decided leaves nothing to write.
    #[test]
    fn a_status_settles(mut case in cases()) {
        if let Some(status) = case.decide(at(100)).status {
            case.instance.as_mut().unwrap().status = Some(*status);
            prop_assert_eq!(case.decide(at(101)).status, None);
        }
    }

    /// A VM is started only where and when it may be, and what has ended stays as it is.
    #[test]
    fn a_start_is_rare_and_an_end_is_final(case in cases()) {
        let decision = case.decide(at(100));
        let phase = case.instance.as_ref().and_then(|instance| instance.status.as_ref()?.phase);
        if matches!(decision.tell, Some(Command::Start { .. })) {
            prop_assert_eq!(phase, Some(InstancePhase::Scheduled));
            prop_assert_eq!(case.heard.as_ref().map(|heard| heard.phase), Some(Phase::Waiting));
            prop_assert!(case.connected && !case.told.start);
        }
        if phase.is_some_and(InstancePhase::is_final) {
            prop_assert_eq!(decision.status, None);
        }
    }
}
