//! A launcher from the first hello to its end, as its instance shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Node as ApiNode;
use kube::api::{DeleteParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::node::{NODE, Node, isolated};
use crate::relay::Relay;

fn running() -> Value {
    json!({ "phase": "running", "accelerator": "tcg", "acceleratorReason": "there is no /dev/kvm", "interfaces": [{
        "name": "default", "mac": "02:00:00:00:00:01", "podInterface": "vnic0", "addresses": ["10.88.0.2"] }] })
}

/// A handler, and a VM that runs.
async fn up(node: &mut Node) -> (crate::node::LauncherPod, Relay) {
    node.start_handler();
    let pod = node.launcher_pod("vm", &["default"]).await;
    let mut launcher = pod.launcher().await;
    launcher.greet().await;
    launcher.status(json!({ "phase": "waiting" }));
    let start = launcher.hear().await;
    assert_eq!((&start["command"], &start["vmi"]["metadata"]["name"]), (&json!("start"), &json!("vm")));
    launcher.status(running());
    node.phase("vm", "Running").await;
    (pod, launcher)
}

#[test]
fn a_vm_starts_and_shows_its_addresses() {
    isolated("launchers::a_vm_starts_and_shows_its_addresses", |mut node| async move {
        let (_pod, _launcher) = up(&mut node).await;
        let status = node.phase("vm", "Running").await;
        let interface = json!({ "name": "default", "mac": "02:00:00:00:00:01", "ipAddress": "10.88.0.2",
            "ipAddresses": ["10.88.0.2"], "podInterfaceName": "vnic0", "infoSource": "domain" });
        assert_eq!(status["interfaces"], json!([interface]));
        let accelerated = &status["conditions"][0];
        assert_eq!((&accelerated["type"], &accelerated["status"]), (&json!("Accelerated"), &json!("False")));
        let nodes: Api<ApiNode> = Api::all(node.client.clone());
        let shown = nodes.get(NODE).await.unwrap().metadata;
        assert_eq!(shown.labels.unwrap()["kubevirt.io/schedulable"], "true");
        assert!(shown.annotations.unwrap().contains_key("kubevirt.io/heartbeat"));
    });
}

#[test]
fn a_new_handler_finds_a_running_vm_and_changes_nothing() {
    isolated("launchers::a_new_handler_finds_a_running_vm_and_changes_nothing", |mut node| async move {
        let (pod, mut launcher) = up(&mut node).await;
        let before = node.instances().get("vm").await.unwrap();
        node.kill_handler();
        launcher.expect("closed").await;
        node.start_handler();
        launcher.greet().await;
        launcher.status(running());
        // It is heard, and nothing came of it: the proxy answers, and neither the launcher nor the instance was told anything.
        assert_eq!(pod.proxy().await.ask("add", "default").await["response"], "added");
        launcher.status(
            json!({ "phase": "paused", "accelerator": "tcg", "acceleratorReason": "there is no /dev/kvm",
            "interfaces": running()["interfaces"] }),
        );
        node.instance("vm", "paused", |status| status["conditions"].to_string().contains("Paused")).await;
        let since = before.resource_version().unwrap();
        let changes = node.instances().watch(&WatchParams::default(), &since).await.unwrap();
        let first = std::pin::pin!(changes).try_next().await.unwrap();
        let Some(WatchEvent::Modified(first)) = first else { panic!("a change: {first:?}") };
        let (first, before) = (first.status.unwrap(), before.status.unwrap());
        assert!(
            format!("{:?}", first.conditions).contains("Paused"),
            "the first write is for the pause: {first:?}"
        );
        assert_eq!(first.phase_transition_timestamps, before.phase_transition_timestamps);
    });
}

#[test]
fn a_deleted_vm_is_shut_down() {
    isolated("launchers::a_deleted_vm_is_shut_down", |mut node| async move {
        let (pod, mut launcher) = up(&mut node).await;
        pod.proxy().await.ask("add", "default").await;
        let finalizer = json!({ "metadata": { "finalizers": ["test/stay"] } });
        let patch = kube::api::Patch::Merge(finalizer);
        node.instances().patch("vm", &kube::api::PatchParams::default(), &patch).await.unwrap();
        node.instances().delete("vm", &DeleteParams::default()).await.unwrap();
        assert_eq!(launcher.hear().await, json!({ "command": "shutdown", "graceSeconds": 5 }));
        launcher.status(json!({ "phase": "cleaning-up", "ending": { "outcome": "succeeded", "reason": "GuestShutdown", "message": "It shut down." } }));
        assert_eq!(node.phase("vm", "Succeeded").await["reason"], "GuestShutdown");
        launcher.kill();
        node.set_pod_phase(&pod.name, "Succeeded").await;
        crate::node::eventually("its address is given back", || node.leases().is_empty()).await;
    });
}

#[test]
fn a_guest_that_does_not_go_is_killed() {
    isolated("launchers::a_guest_that_does_not_go_is_killed", |mut node| async move {
        let (pod, mut launcher) = up(&mut node).await;
        node.pods().delete(&pod.name, &DeleteParams::default()).await.unwrap();
        assert_eq!(launcher.hear().await["command"], "shutdown");
        assert_eq!(launcher.hear().await, json!({ "command": "kill" }));
    });
}

#[test]
fn a_crash_and_a_lost_launcher_are_failures_with_a_reason() {
    isolated("launchers::a_crash_and_a_lost_launcher_are_failures_with_a_reason", |mut node| async move {
        let (_, mut launcher) = up(&mut node).await;
        launcher.status(json!({ "phase": "cleaning-up", "ending": { "outcome": "failed", "reason": "Crashed", "message": "QEMU died." } }));
        let status = node.phase("vm", "Failed").await;
        assert_eq!(status["reason"], "Crashed");
        assert!(status["conditions"].to_string().contains("QEMU died."));

        let lost = node.launcher_pod("lost", &["default"]).await;
        let mut launcher = lost.launcher().await;
        launcher.greet().await;
        launcher.status(running());
        node.phase("lost", "Running").await;
        lost.proxy().await.ask("add", "default").await;
        launcher.kill();
        // A launcher that does not answer may still run its guest: only the end of its pod is the end.
        assert_eq!(
            node.instances().get("lost").await.unwrap().status.unwrap().phase.unwrap().as_str(),
            "Running"
        );
        node.lose_pod(&lost).await;
        assert_eq!(node.phase("lost", "Failed").await["reason"], "LauncherLost");
        crate::node::eventually("its address is given back", || node.leases().is_empty()).await;
    });
}

#[test]
fn an_end_is_known_though_somebody_else_wrote_meanwhile() {
    isolated("launchers::an_end_is_known_though_somebody_else_wrote_meanwhile", |node| async move {
        let overtake = Arc::new(AtomicBool::new(false));
        node.start_overtaken_handler("vm", Arc::clone(&overtake));
        let pod = node.launcher_pod("vm", &["default"]).await;
        let mut launcher = pod.launcher().await;
        launcher.greet().await;
        launcher.status(running());
        node.phase("vm", "Running").await;
        launcher.kill();
        overtake.store(true, Ordering::Relaxed);
        node.lose_pod(&pod).await;
        assert_eq!(node.phase("vm", "Failed").await["reason"], "LauncherLost");
        assert!(!overtake.load(Ordering::Relaxed), "it was overtaken");
    });
}

#[test]
fn who_is_not_the_launcher_is_not_believed() {
    isolated("launchers::who_is_not_the_launcher_is_not_believed", |mut node| async move {
        let (_, _launcher) = up(&mut node).await;
        let (a, b) = (node.launcher_pod("a", &[]).await, node.launcher_pod("b", &[]).await);
        // Pod a shows the handler to the launcher of pod b.
        std::os::unix::fs::symlink(b.private.join("launcher.sock"), a.private.join("launcher.sock")).unwrap();
        let mut launcher = b.launcher().await;
        let mut greeted = 0;
        while greeted == 0 {
            launcher.expect("connected").await;
            // A connection that is for pod a is closed without a word.
            let said = launcher.line().await;
            if said != "closed" {
                assert!(said.contains("hello"), "{said}");
                greeted += 1;
            }
        }
        launcher.send(r#"{"event":"hello","version":1}"#);
        launcher.status(running());
        node.phase("b", "Running").await;
        assert_eq!(
            node.instances().get("a").await.unwrap().status.unwrap().phase.unwrap().as_str(),
            "Scheduled"
        );
    });
}
