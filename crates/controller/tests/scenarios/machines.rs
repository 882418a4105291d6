//! Machines under every run strategy: start, stop, restart, and what a guest's end leads to.

use api::condition;
use api::kubevirt::{InstancePhase, PrintableStatus};
use api::names::{conditions, finalizers};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, instance};

#[tokio::test]
async fn a_machine_starts_runs_and_stops() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    cluster.printable("wren", PrintableStatus::Starting).await;
    let running = cluster.run("wren").await;
    let machine = cluster.printable("wren", PrintableStatus::Running).await;
    let owner = &running.owner_references()[0];
    assert_eq!((Some(&owner.uid), owner.controller), (machine.uid().as_ref(), Some(true)));
    eventually("the machine to be ready", async || {
        let status = cluster.machines.get("wren").await.unwrap().status?;
        (status.ready && status.created && status.observed_generation == Some(1)).then_some(())
    })
    .await;

    cluster.set_run_strategy("wren", "Halted").await;
    cluster.printable("wren", PrintableStatus::Stopping).await;
    cluster.pod_ends_when_told(&running).await;
    cluster.instance_gone(&running).await;
    let stopped = cluster.printable("wren", PrintableStatus::Stopped).await.status.unwrap();
    assert!(!stopped.ready && !stopped.created);
    let ready = condition::find(&stopped.conditions, conditions::READY).unwrap();
    assert_eq!(ready.reason.as_deref(), Some("VMINotExists"));
}

#[tokio::test]
async fn a_guest_that_powers_off_is_started_again_under_always() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let first = cluster.run("wren").await;
    cluster.handler_says("wren", InstancePhase::Succeeded).await;
    cluster.pod_ends_when_told(&first).await;
    let second = cluster.next_instance(&first).await;
    cluster.run("wren").await;
    assert_ne!(first.uid(), second.uid());
    cluster.printable("wren", PrintableStatus::Running).await;
}

#[tokio::test]
async fn a_guest_that_powers_off_stays_off_under_rerun_on_failure_once_and_manual() {
    let cluster = Cluster::with_controller().await;
    for (name, strategy) in [("robin", "RerunOnFailure"), ("swift", "Once"), ("heron", "Manual")] {
        cluster.create_machine(name, strategy).await;
        if strategy == "Manual" {
            cluster.printable(name, PrintableStatus::Stopped).await;
            cluster.request(name, json!([{ "action": "Start" }])).await;
        }
        let running = cluster.run(name).await;
        cluster.handler_says(name, InstancePhase::Succeeded).await;
        let pod = cluster.pod_of(&running).await;
        cluster.pod_ends(&pod, "Succeeded").await;
        cluster.printable(name, PrintableStatus::Stopped).await;
        let ended = cluster.instance(name).await;
        assert_eq!(ended.uid(), running.uid(), "{strategy}: the record of the end stays");
    }
}

#[tokio::test]
async fn a_guest_that_fails_is_started_again_under_always_and_rerun_on_failure_and_not_under_once() {
    let cluster = Cluster::with_controller().await;
    for (name, strategy, expected) in [
        ("wren", "Always", PrintableStatus::CrashLoopBackOff),
        ("robin", "RerunOnFailure", PrintableStatus::CrashLoopBackOff),
        ("swift", "Once", PrintableStatus::Stopped),
    ] {
        cluster.create_machine(name, strategy).await;
        let running = cluster.run(name).await;
        cluster.handler_says(name, InstancePhase::Failed).await;
        let pod = cluster.pod_of(&running).await;
        cluster.pod_ends(&pod, "Failed").await;
        let machine = cluster.printable(name, expected).await;
        let counted = machine.status.unwrap().start_failure.map(|failure| failure.consecutive_fail_count);
        assert_eq!(counted, Some(1), "{strategy}");
        if expected == PrintableStatus::CrashLoopBackOff {
            // The pause is over: as if ten seconds had passed.
            let patch =
                json!({ "status": { "startFailure": { "retryAfterTimestamp": "2020-01-01T00:00:00Z" } } });
            cluster.machines.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            cluster.next_instance(&running).await;
        }
    }
}

#[tokio::test]
async fn a_halted_machine_never_starts() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Halted").await;
    cluster.printable("wren", PrintableStatus::Stopped).await;
    assert!(cluster.instances.get_opt("wren").await.unwrap().is_none());
}

#[tokio::test]
async fn a_manual_machine_starts_stops_and_restarts_when_a_person_says_so() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Manual").await;
    cluster.printable("wren", PrintableStatus::Stopped).await;
    cluster.request("wren", json!([{ "action": "Start" }])).await;
    let first = cluster.run("wren").await;
    let obeyed = async || {
        eventually("the request to be taken off", async || {
            let status = cluster.machines.get("wren").await.unwrap().status?;
            status.state_change_requests.is_empty().then_some(())
        })
        .await;
    };
    obeyed().await;

    let restart = json!([{ "action": "Stop", "uid": first.uid() }, { "action": "Start" }]);
    cluster.request("wren", restart).await;
    cluster.pod_ends_when_told(&first).await;
    cluster.next_instance(&first).await;
    let second = cluster.run("wren").await;
    obeyed().await;

    cluster.request("wren", json!([{ "action": "Stop", "uid": second.uid() }])).await;
    cluster.pod_ends_when_told(&second).await;
    cluster.instance_gone(&second).await;
    cluster.printable("wren", PrintableStatus::Stopped).await;
    obeyed().await;
}

#[tokio::test]
async fn a_restart_under_always_is_a_stop() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let first = cluster.run("wren").await;
    cluster.request("wren", json!([{ "action": "Stop", "uid": first.uid() }])).await;
    cluster.pod_ends_when_told(&first).await;
    cluster.next_instance(&first).await;
    cluster.run("wren").await;
    cluster.printable("wren", PrintableStatus::Running).await;
}

#[tokio::test]
async fn the_ethernet_address_of_a_machine_is_the_same_after_stop_and_start() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let mac = |instance: &api::kubevirt::VirtualMachineInstance| {
        instance.status.as_ref().unwrap().interfaces[0].mac.unwrap()
    };
    let first = cluster.run("wren").await;
    cluster.set_run_strategy("wren", "Halted").await;
    cluster.pod_ends_when_told(&first).await;
    cluster.instance_gone(&first).await;
    cluster.set_run_strategy("wren", "Always").await;
    let second = cluster.run("wren").await;
    assert_ne!(first.uid(), second.uid());
    assert_eq!(mac(&first), mac(&second));
}

#[tokio::test]
async fn a_change_of_the_template_asks_for_a_restart_and_takes_effect_with_it() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let first = cluster.run("wren").await;
    let patch =
        json!({ "spec": { "template": { "spec": { "domain": { "memory": { "guest": "128Mi" } } } } } });
    cluster.machines.patch("wren", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let required = async |expected: bool| {
        eventually("the condition", async || {
            let status = cluster.machines.get("wren").await.unwrap().status?;
            (condition::is_true(&status.conditions, conditions::RESTART_REQUIRED) == expected).then_some(())
        })
        .await;
    };
    required(true).await;
    cluster.delete_instance("wren").await;
    cluster.pod_ends_when_told(&first).await;
    let second = cluster.next_instance(&first).await;
    assert_eq!(second.spec.domain.memory.unwrap().guest.unwrap().0, "128Mi");
    required(false).await;
}

#[tokio::test]
async fn an_instance_that_is_somebody_elses_is_left_alone_and_reported() {
    let cluster = Cluster::with_controller().await;
    let foreign = cluster.instances.create(&PostParams::default(), &instance("wren")).await.unwrap();
    cluster.create_machine("wren", "Always").await;
    eventually("the failure", async || {
        let status = cluster.machines.get("wren").await.unwrap().status?;
        let failure = condition::find(&status.conditions, conditions::FAILURE)?;
        (failure.reason.as_deref() == Some("InstanceNotOwned")).then_some(())
    })
    .await;
    cluster.delete_instance("wren").await;
    let own = cluster.next_instance(&foreign).await;
    assert_eq!(own.owner_references()[0].name, "wren");
}

#[tokio::test]
async fn deleting_a_machine_ends_its_guest_first() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let running = cluster.run("wren").await;
    cluster.delete_machine("wren").await;
    let leaving = cluster.printable("wren", PrintableStatus::Terminating).await;
    assert!(leaving.finalizers().iter().any(|finalizer| finalizer == finalizers::MACHINE));
    cluster.pod_ends_when_told(&running).await;
    cluster.machine_gone("wren").await;
    cluster.instance_gone(&running).await;
}

#[tokio::test]
async fn a_machine_that_no_node_takes_says_so() {
    let cluster = Cluster::with_controller().await;
    cluster.create_machine("wren", "Always").await;
    let pod = cluster.pod_of(&cluster.instance("wren").await).await;
    let refused =
        json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] });
    cluster.pod_status(&pod, refused).await;
    cluster.printable("wren", PrintableStatus::Unschedulable).await;
}
