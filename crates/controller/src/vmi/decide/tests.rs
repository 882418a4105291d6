//! What is decided for an instance in every phase, as a table, and what holds whatever is there.

use proptest::prelude::*;
use serde_json::{Value, json};

use api::names::labels;

use super::*;
use crate::vmi::migratable;

const NOW: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn vmi(phase: Option<&str>, change: impl FnOnce(&mut Value)) -> VirtualMachineInstance {
    let mut object = json!({
        "metadata": { "name": "finch", "namespace": "default", "uid": "u1", "finalizers": [finalizers::INSTANCE] },
        "spec": {
            "domain": { "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] } },
            "networks": [{ "name": "default", "pod": {} }],
        },
    });
    if let Some(phase) = phase {
        object["status"] = json!({
            "phase": phase, "nodeName": "node01",
            "phaseTransitionTimestamps": [{ "phase": phase, "phaseTransitionTimestamp": at(NOW - 5).to_string() }],
        });
    }
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

fn pod(phase: &str, node: Option<&str>, deleting: bool) -> Pod {
    let deletion = deleting.then(|| at(NOW).to_string());
    serde_json::from_value(json!({
        "metadata": { "name": "virt-launcher-finch-x", "uid": "p1", "deletionTimestamp": deletion },
        "spec": { "nodeName": node, "containers": [{ "name": "compute", "image": "launcher:1" }] },
        "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": if phase == "Running" { "True" } else { "False" } }] },
    }))
    .unwrap()
}

fn decide_at(vmi: &VirtualMachineInstance, pods: &[Pod], node_lost: bool, now: i64) -> Decision {
    let claims = BTreeMap::new();
    decide(
        &Situation { vmi, pods, claims: &claims, plugs: &[], node_lost, migratable_bindings: &[] },
        at(now),
    )
}

fn create_pod() -> Action {
    Action::CreatePod { claims: Claims::new() }
}

fn delete_pod() -> Action {
    Action::DeletePod { name: "virt-launcher-finch-x".into(), uid: "p1".into() }
}

#[test]
fn claims_come_before_the_pod_and_again_if_they_are_lost() {
    let claim = |name: &str| {
        Box::new(IPAMClaim::new(
            name,
            api::ipam::IPAMClaimSpec { network: "lan".into(), interface: String::new() },
        ))
    };
    let plug = |network: &str, standing| Plug { network: network.into(), standing };
    let decide_with = |phase, pods: &[Pod], plugs: &[Plug]| {
        let (vmi, claims) = (vmi(phase, |_| {}), BTreeMap::new());
        let situation =
            Situation { vmi: &vmi, pods, claims: &claims, plugs, node_lost: false, migratable_bindings: &[] };
        decide(&situation, at(NOW))
    };
    let missing = plug("blue", Standing::Missing(claim("finch.blue")));
    let mut plugs =
        vec![missing, plug("red", Standing::Loose(claim("finch.red"))), plug("plain", Standing::Unclaimed)];
    let claims = Claims::from([
        (interfaces::of_network("blue"), "finch.blue".to_owned()),
        (interfaces::of_network("red"), "finch.red".to_owned()),
    ]);
    let expected = [
        Action::MakeClaim(claim("finch.blue")),
        Action::HoldClaim(claim("finch.red")),
        Action::CreatePod { claims },
    ];
    assert_eq!(decide_with(None, &[], &plugs).actions, expected);

    let mut waiting = pod("Pending", None, false);
    assert_eq!(decide_with(Some("Scheduling"), &[waiting.clone()], &plugs).actions, [], "it refers to none");
    let list = r#"[{"name":"x","interface":"net1","ipam-claim-reference":"finch.blue"}]"#;
    waiting.annotations_mut().insert("k8s.v1.cni.cncf.io/networks".into(), list.into());
    let again = decide_with(Some("Scheduling"), &[waiting], &plugs);
    assert_eq!(again.actions, [Action::MakeClaim(claim("finch.blue"))]);

    plugs.push(plug(
        "taken",
        Standing::Refused { reason: "IPAMClaimNotOwned", message: "it is another's".into() },
    ));
    let refused = decide_with(None, &[], &plugs);
    assert_eq!(refused.actions, [], "nothing is half done");
    assert_eq!(refused.status.phase, Some(InstancePhase::Pending));
    assert!(
        refused.again.is_some() && condition::is_false(&refused.status.conditions, conditions::SYNCHRONIZED)
    );
}

/// Phase, pods, whether the node is lost; the next phase and what is done.
type Row = (Option<&'static str>, Vec<Pod>, bool, InstancePhase, Vec<Action>);

#[test]
fn every_phase_with_every_pod() {
    use InstancePhase::{Failed, Running, Scheduled, Scheduling, Succeeded};
    let label = || Action::SetNodeLabel { node: "node01".into() };
    let rows: [Row; 21] = [
        (None, vec![], false, Scheduling, vec![create_pod()]),
        (Some("Pending"), vec![], false, Scheduling, vec![create_pod()]),
        (Some("Pending"), vec![pod("Pending", None, false)], false, Scheduling, vec![]),
        (Some("Pending"), vec![pod("Running", Some("node01"), false)], false, Scheduled, vec![label()]),
        (Some("Scheduling"), vec![pod("Pending", None, false)], false, Scheduling, vec![]),
        (Some("Scheduling"), vec![pod("Pending", Some("node01"), false)], false, Scheduling, vec![]),
        (Some("Scheduling"), vec![pod("Running", Some("node01"), false)], false, Scheduled, vec![label()]),
        (Some("Scheduling"), vec![pod("Failed", Some("node01"), false)], false, Failed, vec![]),
        (Some("Scheduling"), vec![pod("Succeeded", Some("node01"), false)], false, Failed, vec![]),
        (Some("Scheduling"), vec![], false, Failed, vec![]),
        (Some("Scheduled"), vec![pod("Running", Some("node01"), false)], false, Scheduled, vec![]),
        (Some("Scheduled"), vec![pod("Failed", Some("node01"), false)], false, Failed, vec![]),
        (Some("Scheduled"), vec![], false, Failed, vec![]),
        (Some("Running"), vec![pod("Running", Some("node01"), false)], false, Running, vec![]),
        (Some("Running"), vec![pod("Running", Some("node01"), true)], true, Running, vec![]),
        (Some("Running"), vec![pod("Failed", Some("node01"), false)], false, Running, vec![]),
        (Some("Running"), vec![pod("Failed", Some("node01"), false)], true, Failed, vec![]),
        (Some("Running"), vec![], true, Failed, vec![]),
        (Some("Succeeded"), vec![pod("Running", Some("node01"), false)], false, Succeeded, vec![]),
        (Some("Succeeded"), vec![pod("Succeeded", Some("node01"), false)], false, Succeeded, vec![]),
        (Some("Failed"), vec![], false, Failed, vec![]),
    ];
    for (phase, pods, node_lost, expected, actions) in rows {
        let decision = decide_at(&vmi(phase, |_| {}), &pods, node_lost, NOW);
        let situation = format!("{phase:?} with {:?}, node lost: {node_lost}", pods.first().map(pod_phase));
        assert_eq!(decision.status.phase, Some(expected), "{situation}");
        assert_eq!(decision.actions, actions, "{situation}");
    }
}

#[test]
fn a_guest_whose_pod_is_gone_has_a_minute_for_its_handler_to_speak() {
    let gone = |since: i64| {
        vmi(Some("Running"), |object| {
            object["status"]["conditions"] = json!([{
                "type": "Ready", "status": "False", "reason": "PodTerminating", "lastTransitionTime": at(since).to_string(),
            }]);
        })
    };
    let waiting = decide_at(&gone(NOW - 59), &[], false, NOW);
    assert_eq!(
        (waiting.status.phase, waiting.again),
        (Some(InstancePhase::Running), Some(Duration::from_secs(1)))
    );
    let over = decide_at(&gone(NOW - 60), &[], false, NOW);
    assert_eq!(over.status.phase, Some(InstancePhase::Failed));
    assert_eq!(over.status.reason.as_deref(), Some(reasons::POD_NOT_EXISTS));
}

#[test]
fn a_launcher_that_does_not_end_after_its_guest_is_ended() {
    let ended = vmi(Some("Succeeded"), |_| {});
    let pods = [pod("Running", Some("node01"), false)];
    let waiting = decide_at(&ended, &pods, false, NOW);
    assert_eq!((waiting.actions, waiting.again), (vec![], Some(Duration::from_secs(25))));
    assert_eq!(decide_at(&ended, &pods, false, NOW + 25).actions, [delete_pod()]);
}

#[test]
fn a_deleted_instance_waits_for_its_pods_and_nothing_else() {
    let deleted =
        |phase| vmi(phase, |object| object["metadata"]["deletionTimestamp"] = json!(at(NOW).to_string()));
    for phase in [
        None,
        Some("Pending"),
        Some("Scheduling"),
        Some("Scheduled"),
        Some("Running"),
        Some("Succeeded"),
        Some("Failed"),
    ] {
        let vmi = deleted(phase);
        assert_eq!(decide_at(&vmi, &[], false, NOW).actions, [Action::RemoveFinalizer], "{phase:?}");
        let running = pod("Running", Some("node01"), false);
        assert_eq!(decide_at(&vmi, &[running], false, NOW).actions, [delete_pod()], "{phase:?}");
        let ending = pod("Running", Some("node01"), true);
        assert_eq!(decide_at(&vmi, &[ending], true, NOW).actions, [], "{phase:?}");
        let over = pod("Failed", Some("node01"), true);
        assert_eq!(decide_at(&vmi, &[over], false, NOW).actions, [Action::RemoveFinalizer], "{phase:?}");
    }
}

#[test]
fn the_finalizer_comes_before_the_pod() {
    let new = vmi(None, |object| object["metadata"]["finalizers"] = json!([]));
    assert_eq!(decide_at(&new, &[], false, NOW).actions, [Action::AddFinalizer, create_pod()]);
}

#[test]
fn what_cannot_move_says_why() {
    let situation = |spec: Value, annotations: Value| {
        vmi(None, |object| {
            object["spec"] = spec;
            object["metadata"]["annotations"] = annotations;
        })
    };
    let bridge = json!({
        "domain": { "devices": { "interfaces": [{ "name": "default", "bridge": {} }] } },
        "networks": [{ "name": "default", "pod": {} }],
    });
    let short =
        json!({ "domain": { "devices": { "interfaces": [{ "type": "pod-network", "bridge": {} }] } } });
    let secondary = json!({
        "domain": { "devices": { "interfaces": [{ "name": "a", "bridge": {} }] } },
        "networks": [{ "name": "a", "multus": { "networkName": "x" } }],
    });
    let plugin = json!({
        "domain": { "devices": { "interfaces": [{ "name": "a", "binding": { "name": "l2bridge" } }] } },
        "networks": [{ "name": "a", "multus": { "networkName": "x" } }],
    });
    let disk = |shared: bool| {
        json!({
            "domain": { "devices": {} },
            "volumes": [{ "name": "root", "hostDisk": { "path": "/d", "type": "Disk", "shared": shared } }],
        })
    };
    let claim = json!({ "domain": { "devices": {} }, "volumes": [{ "name": "root", "persistentVolumeClaim": { "claimName": "c" } }] });
    let passthrough = json!({ "domain": { "devices": {}, "cpu": { "model": "host-passthrough" } } });
    let allowed = json!({ "kubevirt.io/allow-pod-bridge-network-live-migration": "" });
    for (spec, annotations, migratable, expected) in [
        (bridge.clone(), json!({}), vec![], Some(reasons::INTERFACE_NOT_LIVE_MIGRATABLE)),
        (bridge, allowed, vec![], None),
        (short, json!({}), vec![], Some(reasons::INTERFACE_NOT_LIVE_MIGRATABLE)),
        (secondary, json!({}), vec![], None),
        (plugin.clone(), json!({}), vec![], Some(reasons::INTERFACE_NOT_LIVE_MIGRATABLE)),
        (plugin, json!({}), vec!["l2bridge".to_owned()], None),
        (disk(false), json!({}), vec![], Some(reasons::DISKS_NOT_LIVE_MIGRATABLE)),
        (disk(true), json!({}), vec![], None),
        (claim, json!({}), vec![], Some(reasons::DISKS_NOT_LIVE_MIGRATABLE)),
        (passthrough, json!({}), vec![], Some(reasons::CPU_MODE_NOT_LIVE_MIGRATABLE)),
    ] {
        let vmi = situation(spec.clone(), annotations);
        let claims = BTreeMap::new();
        let situation = Situation {
            vmi: &vmi,
            pods: &[],
            claims: &claims,
            plugs: &[],
            node_lost: false,
            migratable_bindings: &migratable,
        };
        let reason = migratable::decide(&situation).map(|obstacle| obstacle.reason);
        assert_eq!(reason, expected, "{spec}");
    }
}

#[test]
fn pods_that_a_guest_has_left_do_not_pile_up() {
    let made = |name: &str, phase: &str, second: i64, job: Option<&str>| -> Pod {
        let mut pod = pod(phase, Some("node01"), false);
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.uid = Some(name.to_owned());
        pod.metadata.creation_timestamp = Some(Time(at(second)));
        pod.metadata.labels = job.map(|job| [(labels::MIGRATION_JOB_UID.to_owned(), job.to_owned())].into());
        pod
    };
    // It came from `third`, and is at `fourth`; `failed` is what a move left that came to nothing.
    let running = vmi(Some("Running"), |object| {
        object["status"]["migrationState"] = json!({ "completed": true, "targetNode": "node01",
            "sourcePod": "third", "targetPod": "fourth", "sourceNode": "node02" });
    });
    let mut pods = vec![
        made("first", "Succeeded", 1, None),
        made("third", "Succeeded", 3, Some("m2")),
        made("failed", "Failed", 4, Some("m3")),
        made("fourth", "Running", 5, Some("m4")),
    ];
    let gone = |pods: &[Pod]| -> Vec<String> {
        let actions = decide_at(&running, pods, false, NOW).actions.into_iter();
        let name = |action| if let Action::DeletePod { name, .. } = action { Some(name) } else { None };
        actions.filter_map(name).collect()
    };
    assert_eq!(gone(&pods), ["first"]);
    pods[0].metadata.deletion_timestamp = Some(Time(at(NOW)));
    assert_eq!(gone(&pods), [""; 0], "it was told already");
    // The one that it is on its way to is none of them.
    pods.insert(1, made("second", "Succeeded", 2, Some("m1")));
    pods.push(made("next", "Pending", 6, Some("m5")));
    assert_eq!(gone(&pods), ["second"]);
}

prop_compose! {
    fn any_pod()(phase in prop_oneof!["Pending", "Running", "Succeeded", "Failed"], node: bool, deleting: bool) -> Pod {
        pod(&phase, node.then_some("node01"), deleting)
    }
}

prop_compose! {
    fn any_vmi()(
        phase in proptest::option::of(prop_oneof!["Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "Unknown"]),
        held: bool,
        deleting: bool,
    ) -> VirtualMachineInstance {
        vmi(phase.as_deref(), |object| {
            if !held {
                object["metadata"]["finalizers"] = json!([]);
            }
            if deleting {
                object["metadata"]["deletionTimestamp"] = json!(at(NOW).to_string());
            }
        })
    }
}

proptest! {
    #[test]
    fn deciding_again_on_what_was_decided_changes_nothing(vmi in any_vmi(), pod in proptest::option::of(any_pod()), lost: bool) {
        let pods: Vec<Pod> = pod.into_iter().collect();
        let first = decide_at(&vmi, &pods, lost, NOW);
        prop_assume!(!first.actions.contains(&create_pod()));
        let mut next = vmi;
        next.status = Some(first.status.clone());
        let second = decide_at(&next, &pods, lost, NOW);
        // One step may open the next; it must not open a third.
        next.status = Some(second.status.clone());
        let third = decide_at(&next, &pods, lost, NOW);
        prop_assert_eq!(second.status, third.status);
    }

    #[test]
    fn an_instance_is_never_called_failed_while_its_pod_may_run(vmi in any_vmi(), pod in any_pod(), lost: bool) {
        let before = vmi.status.as_ref().and_then(|status| status.phase);
        let decision = decide_at(&vmi, std::slice::from_ref(&pod), lost, NOW);
        if !ended(&pod) && before != Some(InstancePhase::Failed) {
            prop_assert_ne!(decision.status.phase, Some(InstancePhase::Failed));
            prop_assert!(!decision.actions.contains(&Action::RemoveFinalizer));
        }
    }

    #[test]
    fn a_pod_is_made_only_when_there_is_none(vmi in any_vmi(), pod in proptest::option::of(any_pod()), lost: bool) {
        let pods: Vec<Pod> = pod.into_iter().collect();
        let decision = decide_at(&vmi, &pods, lost, NOW);
        if decision.actions.contains(&create_pod()) {
            prop_assert!(pods.is_empty() && vmi.metadata.deletion_timestamp.is_none());
        }
    }

    #[test]
    fn what_the_handler_wrote_is_left_as_it_is(pod in proptest::option::of(any_pod()), lost: bool) {
        let written = vmi(Some("Running"), |object| {
            object["status"]["conditions"] = json!([{ "type": "AgentConnected", "status": "True" }, { "type": "Paused", "status": "False" }]);
            object["status"]["interfaces"] = json!([{ "name": "default", "mac": "02:00:00:00:00:09", "ipAddress": "10.0.0.7" }]);
        });
        let pods: Vec<Pod> = pod.into_iter().collect();
        let after = decide_at(&written, &pods, lost, NOW).status;
        let before = written.status.unwrap();
        prop_assert_eq!(&after.interfaces, &before.interfaces);
        for kept in ["AgentConnected", "Paused"] {
            prop_assert_eq!(condition::find(&after.conditions, kept), condition::find(&before.conditions, kept));
        }
    }
}

/// The two pods of an instance that moves from node01 to node02.
fn two_pods(source: &str, target: &str) -> [Pod; 2] {
    let named = |name: &str, mut pod: Pod, job: Option<&str>| {
        pod.metadata.name = Some(name.into());
        pod.metadata.uid = Some(name.into());
        pod.metadata.labels = job.map(|job| [(labels::MIGRATION_JOB_UID.to_owned(), job.to_owned())].into());
        pod
    };
    [
        named("first", pod(source, Some("node01"), false), None),
        named("second", pod(target, Some("node02"), false), Some("m1")),
    ]
}

fn moving(completed: bool, failed: bool, node: &str) -> VirtualMachineInstance {
    vmi(Some("Running"), |object| {
        object["status"]["nodeName"] = json!(node);
        object["status"]["migrationState"] = json!({
            "migrationUid": "m1", "sourceNode": "node01", "sourcePod": "first", "targetNode": "node02",
            "targetPod": "second", "completed": completed, "failed": failed,
        });
    })
}

#[test]
fn an_instance_that_moves_has_two_pods_and_runs_in_one() {
    use InstancePhase::{Failed, Running};
    let rows = vec![
        ("it moves", moving(false, false, "node01"), two_pods("Running", "Running"), true, Running),
        (
            "the source ended first",
            moving(false, false, "node01"),
            two_pods("Succeeded", "Running"),
            true,
            Running,
        ),
        ("it has moved", moving(true, false, "node02"), two_pods("Succeeded", "Running"), true, Running),
        (
            "it has moved and is lost",
            moving(true, false, "node02"),
            two_pods("Running", "Failed"),
            false,
            Failed,
        ),
        (
            "it has not and is lost",
            moving(true, true, "node01"),
            two_pods("Failed", "Running"),
            false,
            Failed,
        ),
        (
            "the target is not its home",
            moving(true, true, "node01"),
            two_pods("Running", "Failed"),
            true,
            Running,
        ),
    ];
    for (what, vmi, pods, ready, phase) in rows {
        let decision = decide_at(&vmi, &pods, true, NOW);
        assert_eq!(decision.status.phase, Some(phase), "{what}");
        assert_eq!(condition::is_true(&decision.status.conditions, conditions::READY), ready, "{what}");
        assert_eq!(decision.actions, [], "{what}");
    }
    let both = decide_at(&moving(false, false, "node01"), &two_pods("Running", "Running"), false, NOW);
    assert_eq!(both.status.active_pods.len(), 2);
}
