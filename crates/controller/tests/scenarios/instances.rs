//! The way of an instance from nothing to a running guest, and what is said when it ends early.

use api::condition::{self, ConditionEntry as _};
use api::kubevirt::InstancePhase;
use api::names::{conditions, labels};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, instance};

#[tokio::test]
async fn an_instance_without_a_machine_starts_and_is_handed_to_the_handler_of_its_node() {
    let cluster = Cluster::with_controller().await;
    let created = cluster.create_instance("finch").await;
    let pod = cluster.pod_of(&created).await;
    assert!(pod.name_any().starts_with("virt-launcher-finch-"), "{}", pod.name_any());
    let scheduling = cluster.phase("finch", InstancePhase::Scheduling).await;
    let status = scheduling.status.unwrap();
    assert!(
        status.interfaces[0].mac.unwrap().to_string().starts_with("02:"),
        "an address is chosen before the pod starts"
    );
    assert!(condition::is_true(&status.conditions, conditions::LIVE_MIGRATABLE));

    cluster.run_pod(&pod, "node01").await;
    let scheduled = cluster.phase("finch", InstancePhase::Scheduled).await;
    assert_eq!(scheduled.labels()[labels::NODE_NAME], "node01");
    let status = scheduled.status.unwrap();
    assert_eq!(status.node_name.as_deref(), Some("node01"));
    assert_eq!(status.active_pods[&pod.uid().unwrap()], "node01");
    assert!(condition::is_false(&status.conditions, conditions::READY), "the guest does not run yet");

    cluster.handler_says("finch", InstancePhase::Running).await;
    let running = cluster.ready("finch").await;
    let phases: Vec<String> = running
        .status
        .unwrap()
        .phase_transition_timestamps
        .iter()
        .map(|transition| transition.phase.to_string())
        .collect();
    assert_eq!(phases, ["Pending", "Scheduling", "Scheduled", "Running"]);
}

#[tokio::test]
async fn an_instance_that_no_node_takes_says_so_and_starts_when_one_does() {
    let cluster = Cluster::with_controller().await;
    let created = cluster.create_instance("finch").await;
    let pod = cluster.pod_of(&created).await;
    let refused = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available",
    }]});
    cluster.pod_status(&pod, refused).await;
    eventually("the reason", async || {
        let status = cluster.instance("finch").await.status?;
        let told = condition::find(&status.conditions, conditions::POD_SCHEDULED)?;
        (told.reason() == "Unschedulable" && told.message() == "0/1 nodes are available").then_some(())
    })
    .await;
    let running = cluster.run("finch").await;
    let conditions = running.status.unwrap().conditions;
    assert!(condition::find(&conditions, conditions::POD_SCHEDULED).is_none(), "it is over: {conditions:?}");
}

#[tokio::test]
async fn a_pod_that_ends_before_the_guest_runs_fails_the_instance_with_its_reason() {
    let cluster = Cluster::with_controller().await;
    let created = cluster.create_instance("finch").await;
    let pod = cluster.pod_of(&created).await;
    cluster.bind(&pod, "node01").await;
    let ended = json!({ "phase": "Failed", "containerStatuses": [{
        "name": "compute", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": { "exitCode": 3, "reason": "Error", "message": "no such device" } },
    }]});
    cluster.pod_status(&pod, ended).await;
    let failed = cluster.phase("finch", InstancePhase::Failed).await;
    let status = failed.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("PodFailed"));
    let told = condition::find(&status.conditions, conditions::SYNCHRONIZED).unwrap();
    assert!(
        told.message().ends_with("its container ended with code 3 (Error): no such device"),
        "{}",
        told.message()
    );
    assert_eq!(cluster.pods_of(&created).await.len(), 1, "a failed instance gets no second pod");
}

#[tokio::test]
async fn a_pod_that_somebody_deletes_before_the_guest_runs_fails_the_instance() {
    let cluster = Cluster::with_controller().await;
    let created = cluster.create_instance("finch").await;
    let pod = cluster.pod_of(&created).await;
    cluster.phase("finch", InstancePhase::Scheduling).await;
    cluster.pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    let failed = cluster.phase("finch", InstancePhase::Failed).await;
    assert_eq!(failed.status.unwrap().reason.as_deref(), Some("PodNotExists"));
}

#[tokio::test]
async fn an_instance_on_a_lost_node_fails_only_when_its_pod_is_gone() {
    let cluster = Cluster::with_controller().await;
    cluster.create_instance("finch").await;
    let running = cluster.run("finch").await;
    let pod = cluster.pod_of(&running).await;
    cluster.lose_node("node01").await;
    // Kubernetes tells the pod to end; nobody there can confirm that it did.
    cluster.pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    eventually("the instance to be unready", async || {
        let status = cluster.instance("finch").await.status?;
        let ready = condition::find(&status.conditions, conditions::READY)?;
        assert_eq!(status.phase, Some(InstancePhase::Running), "its guest may still run there");
        (ready.reason() == "PodTerminating").then_some(())
    })
    .await;
    cluster.pod_goes(&pod).await;
    let failed = cluster.phase("finch", InstancePhase::Failed).await;
    assert_eq!(failed.status.unwrap().reason.as_deref(), Some("NodeUnresponsive"));
}

#[tokio::test]
async fn an_instance_waits_for_a_claim_that_does_not_exist_yet() {
    let cluster = Cluster::with_controller().await;
    let mut waiting = instance("finch");
    waiting.spec.volumes =
        serde_json::from_value(json!([{ "name": "root", "persistentVolumeClaim": { "claimName": "root" } }]))
            .unwrap();
    waiting.spec.domain.devices.disks = serde_json::from_value(json!([{ "name": "root" }])).unwrap();
    let created = cluster.instances.create(&kube::api::PostParams::default(), &waiting).await.unwrap();
    eventually("the reason", async || {
        let status = cluster.instance("finch").await.status?;
        let told = condition::find(&status.conditions, conditions::SYNCHRONIZED)?;
        (told.reason() == "FailedPvcNotFound").then_some(())
    })
    .await;
    assert!(cluster.pods_of(&created).await.is_empty());
    let claims: kube::Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        kube::Api::namespaced(cluster.client.clone(), crate::support::NAMESPACE);
    let claim = crate::support::object(json!({
        "metadata": { "name": "root" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } },
    }));
    claims.create(&kube::api::PostParams::default(), &claim).await.unwrap();
    // A nudge in place of the ten seconds until the next look.
    let nudge = Patch::Merge(json!({ "metadata": { "labels": { "nudge": "1" } } }));
    cluster.instances.patch("finch", &PatchParams::default(), &nudge).await.unwrap();
    let running = cluster.run("finch").await;
    assert!(condition::is_true(&running.status.unwrap().conditions, conditions::LIVE_MIGRATABLE));
}
