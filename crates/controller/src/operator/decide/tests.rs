//! Roll-outs as tables: pods in, pace and conditions out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn installation(network: Option<&str>) -> KubeVirt {
    let spec = json!({ "configuration": { "migrations": { "network": network } } });
    let mut installation = KubeVirt::new("kubevirt", serde_json::from_value(spec).unwrap());
    installation.metadata.namespace = Some("kubevirt".into());
    installation.metadata.uid = Some("u1".into());
    installation.metadata.generation = Some(3);
    installation
}

/// The hash that pods of this network carry.
fn id(network: Option<&str>) -> String {
    render(&installation(network), network).unwrap().id
}

fn set(desired: i32) -> DaemonSet {
    let body = json!({
        "metadata": { "name": "virt-handler", "generation": 2 },
        "status": { "observedGeneration": 2, "desiredNumberScheduled": desired, "currentNumberScheduled": desired,
            "numberMisscheduled": 0, "numberReady": 0 },
    });
    serde_json::from_value(body).unwrap()
}

/// A handler on a node: made for this network, ready or not.
fn pod(node: &str, network: Option<&str>, ready: bool) -> Value {
    json!({
        "metadata": {
            "name": format!("virt-handler-{node}"), "namespace": "kubevirt", "creationTimestamp": Time(now()),
            "annotations": { annotations::INSTALL_STRATEGY_IDENTIFIER: id(network) },
        },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "podIP": "10.244.0.7", "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" },
            "lastTransitionTime": Time(now()) }] },
    })
}

fn seen(pods: Vec<Value>) -> Seen {
    let pods: Vec<Arc<Pod>> =
        pods.into_iter().map(|pod| Arc::new(serde_json::from_value(pod).unwrap())).collect();
    let desired = i32::try_from(pods.len()).unwrap();
    Seen { definition_exists: true, handlers: Some(set(desired)), pods, ..Seen::default() }
}

/// The same, of handlers that have reached each other on this network.
fn reaching(network: Option<&str>, pods: Vec<Value>) -> Seen {
    let mut seen = seen(pods);
    let nodes: Vec<_> = seen.pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    let network = network.map(|network| full_name(network, "kubevirt"));
    for node in &nodes {
        let others: Vec<_> = nodes.iter().filter(|other| *other != node).collect();
        let report = json!({ "network": network, "reached": others, "unreached": {}, "at": Time(now()) });
        seen.reports.insert(node.clone(), serde_json::from_value(report).unwrap());
    }
    seen
}

fn decided(installation: &KubeVirt, seen: &Seen) -> Decision {
    decide(installation, seen, now()).unwrap()
}

fn pace_of_set(decision: &Decision) -> IntOrString {
    let set = serde_json::to_value(decision.apply.as_ref().unwrap()).unwrap();
    serde_json::from_value(set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].clone()).unwrap()
}

/// Reason, and whether Available, Progressing and Degraded hold.
fn said(decision: &Decision) -> (String, [bool; 3]) {
    let conditions = &decision.status.conditions;
    let holds = [conditions::AVAILABLE, conditions::PROGRESSING, conditions::DEGRADED]
        .map(|type_| condition::is_true(conditions, type_));
    let available = condition::find(conditions, conditions::AVAILABLE).unwrap();
    (available.reason.clone().unwrap(), holds)
}

fn message(decision: &Decision, type_: &str) -> String {
    condition::find(&decision.status.conditions, type_).unwrap().message.clone().unwrap()
}

fn deployed(network: Option<&str>) -> KubeVirt {
    let mut installation = installation(network);
    installation.status = Some(KubeVirtStatus {
        observed_deployment_id: Some(id(None)),
        phase: Some(KubeVirtPhase::Deployed),
        ..KubeVirtStatus::default()
    });
    installation
}

const NEW: Option<&str> = Some("fast");
const TEN: &str = "10%";

#[test]
fn a_roll_out_begins_with_a_canary_and_goes_on_faster_once_it_is_ready() {
    let ten = IntOrString::String(TEN.into());
    let updating = (reasons::UPDATE_IN_PROGRESS.to_owned(), [true, true, true]);
    let all_ready = (reasons::ALL_COMPONENTS_READY.to_owned(), [true, false, false]);
    for (pods, pace, expected) in [
        (vec![pod("a", None, true), pod("b", None, true)], CANARY, updating.clone()),
        (vec![pod("a", NEW, false), pod("b", None, true)], CANARY, updating.clone()),
        (vec![pod("a", NEW, true), pod("b", None, true)], ten.clone(), updating.clone()),
        (vec![pod("a", NEW, true), pod("b", NEW, false)], ten, updating),
        (vec![pod("a", NEW, true), pod("b", NEW, true)], CANARY, all_ready),
    ] {
        let decision = decided(&deployed(NEW), &reaching(NEW, pods));
        assert_eq!((pace_of_set(&decision), said(&decision)), (pace, expected));
        assert_eq!(decision.status.observed_generation, Some(3));
        assert_eq!(decision.status.target_deployment_id, Some(id(NEW)));
    }
}

#[test]
fn back_is_a_roll_out_like_any_other() {
    let mut before = deployed(None);
    before.status.as_mut().unwrap().observed_deployment_id = Some(id(NEW));
    let decision = decided(&before, &seen(vec![pod("a", NEW, true), pod("b", NEW, true)]));
    assert_eq!(said(&decision).0, reasons::UPDATE_IN_PROGRESS);
    let template = decision.apply.unwrap().spec.unwrap().template.metadata.unwrap();
    assert!(!template.annotations.unwrap().contains_key(annotations::NETWORKS));
}

#[test]
fn the_first_installation_is_no_update() {
    let nothing = Seen { definition_exists: true, ..Seen::default() };
    let decision = decided(&installation(None), &nothing);
    assert_eq!(said(&decision), (reasons::DEPLOYMENT_IN_PROGRESS.to_owned(), [false, true, false]));
    assert_eq!(decision.status.phase, Some(KubeVirtPhase::Deploying));
    assert!(condition::find(&decision.status.conditions, conditions::CREATED).is_none());
    let decision = decided(&installation(None), &reaching(None, vec![pod("a", None, true)]));
    assert_eq!(decision.status.phase, Some(KubeVirtPhase::Deployed));
    assert!(condition::is_true(&decision.status.conditions, conditions::CREATED));
    assert_eq!(message(&decision, conditions::AVAILABLE), "All components are ready.");
}

#[test]
fn a_roll_out_is_over_when_handlers_have_reached_each_other_and_only_it_waits_for_that() {
    let pods = || vec![pod("a", NEW, true), pod("b", NEW, true)];
    let cut_off = || {
        let mut seen = reaching(NEW, pods());
        let report = seen.reports.get_mut("a").unwrap();
        report.reached.clear();
        report.unreached.insert("b".into(), "timed out".into());
        seen
    };
    let decision = decided(&deployed(NEW), &cut_off());
    assert_eq!(said(&decision).0, reasons::UPDATE_IN_PROGRESS);
    let why = message(&decision, conditions::AVAILABLE);
    assert!(why.contains("a: does not reach b (timed out)"), "{why}");
    let done = decided(&deployed(NEW), &reaching(NEW, pods()));
    assert_eq!(said(&done).0, reasons::ALL_COMPONENTS_READY);

    let after = KubeVirt { status: Some(done.status), ..installation(NEW) };
    let decision = decided(&after, &cut_off());
    assert_eq!(said(&decision).0, reasons::ALL_COMPONENTS_READY);
    assert!(condition::is_false(&decision.status.conditions, conditions::MIGRATION_NETWORK_READY));
}

#[test]
fn a_node_that_does_not_answer_keeps_nobody_waiting_and_is_named() {
    let mut seen = reaching(NEW, vec![pod("a", NEW, true), pod("b", NEW, true)]);
    for gone in [pod("c", NEW, false), pod("c", None, true)] {
        seen.lost = vec![Arc::new(serde_json::from_value(gone).unwrap())];
        seen.handlers = Some(set(3));
        let decision = decided(&deployed(NEW), &seen);
        assert_eq!(said(&decision).0, reasons::ALL_COMPONENTS_READY);
        let network = message(&decision, conditions::MIGRATION_NETWORK_READY);
        assert!(network.ends_with("Nodes that do not answer are not asked: c."), "{network}");
    }
    seen.lost.clear();
    assert_eq!(said(&decided(&deployed(NEW), &seen)).0, reasons::UPDATE_IN_PROGRESS);
}

#[test]
fn it_is_not_complete_before_the_daemonset_was_looked_at_as_it_is() {
    let mut seen = seen(vec![pod("a", NEW, true)]);
    seen.handlers.as_mut().unwrap().metadata.generation = Some(3);
    assert_eq!(said(&decided(&deployed(NEW), &seen)).0, reasons::UPDATE_IN_PROGRESS);
}

#[test]
fn a_canary_that_does_not_become_ready_degrades_and_stops() {
    let crashing = |mut pod: Value| {
        pod["status"]["containerStatuses"] = json!([{ "name": "virt-handler", "image": "", "imageID": "",
            "ready": false, "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]);
        pod
    };
    let late = |mut pod: Value| {
        let long_ago = Time(now() - SignedDuration::from_mins(5));
        pod["status"]["conditions"][0]["lastTransitionTime"] = json!(long_ago);
        pod
    };
    for (canary, why) in
        [(crashing(pod("a", NEW, false)), "CrashLoopBackOff"), (late(pod("a", NEW, false)), "in time")]
    {
        // Also when others are ready already.
        for other in [pod("b", None, true), pod("b", NEW, true)] {
            let decision = decided(&deployed(NEW), &seen(vec![canary.clone(), other]));
            assert_eq!(pace_of_set(&decision), CANARY);
            assert_eq!(said(&decision), (reasons::DEPLOYMENT_FAILED.to_owned(), [false, false, true]));
            let message = message(&decision, conditions::DEGRADED);
            assert!(message.contains("virt-handler-a on a") && message.contains(why), "{message}");
            assert!(condition::is_false(&decision.status.conditions, conditions::SYNCHRONIZED));
        }
    }
    // An old pod that is not ready is what the roll-out replaces.
    let decision =
        decided(&deployed(NEW), &seen(vec![crashing(pod("a", None, false)), pod("b", None, true)]));
    assert_eq!(said(&decision).0, reasons::UPDATE_IN_PROGRESS);
    let mended = decided(&deployed(NEW), &seen(vec![pod("a", NEW, true)]));
    assert!(condition::find(&mended.status.conditions, conditions::SYNCHRONIZED).is_none());
}

#[test]
fn what_the_nodes_handler_says_is_why_a_canary_fails() {
    let mut late = pod("a", NEW, false);
    late["status"]["conditions"][0]["lastTransitionTime"] = json!(Time(now() - SignedDuration::from_mins(5)));
    let mut seen = seen(vec![late]);
    let report = json!({ "problem": "migration0 has no address", "at": Time(now()) });
    seen.reports.insert("a".into(), serde_json::from_value(report).unwrap());
    assert!(
        message(&decided(&deployed(NEW), &seen), conditions::DEGRADED).contains("migration0 has no address")
    );
}

#[test]
fn a_pod_that_gets_no_network_is_named_and_what_its_predecessor_said_is_not_its_word() {
    let mut late = pod("a", NEW, false);
    late["status"]["podIP"] = Value::Null;
    late["status"]["conditions"][0]["lastTransitionTime"] = json!(Time(now() - SignedDuration::from_mins(5)));
    let mut seen = seen(vec![late]);
    let report = json!({ "problem": "it has to be replaced", "at": Time(now()) });
    seen.reports.insert("a".into(), serde_json::from_value(report).unwrap());
    let decision = decided(&deployed(NEW), &seen);
    for told in [conditions::DEGRADED, conditions::MIGRATION_NETWORK_READY] {
        let message = message(&decision, told);
        let says = ["no network yet", "`kubectl -n kubevirt describe pod virt-handler-a` says why"];
        assert!(says.iter().all(|words| message.contains(words)), "{message}");
    }
}

#[test]
fn without_its_definition_a_network_is_not_rolled_out() {
    let seen = Seen { definition_exists: false, ..seen(vec![pod("a", None, true)]) };
    let decision = decided(&deployed(NEW), &seen);
    assert!(decision.apply.is_none(), "those that are there stay");
    assert_eq!(said(&decision).0, reasons::DEPLOYMENT_FAILED);
    let why = message(&decision, conditions::DEGRADED);
    assert!(why.contains("spec.configuration.migrations.network") && why.contains("kubevirt/fast"), "{why}");
    assert!(condition::is_false(&decision.status.conditions, conditions::MIGRATION_NETWORK_READY));
    let none = Seen { handlers: None, pods: Vec::new(), ..seen };
    let first = decided(&installation(NEW), &none).apply.unwrap();
    let notes = first.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert!(!notes.contains_key(annotations::NETWORKS), "handlers are needed all the same");
}

#[test]
fn a_second_installation_stands_back() {
    let status = stand_back(&installation(None), "first", now());
    let condition = condition::find(&status.conditions, conditions::SYNCHRONIZED).unwrap();
    assert_eq!(condition.reason.as_deref(), Some(reasons::EXISTING_DEPLOYMENT));
}
