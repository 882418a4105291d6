//! An instance that is deleted goes, whatever it was doing, and never before its pod.

use api::kubevirt::InstancePhase;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testkit::eventually;

use crate::support::Cluster;

#[tokio::test]
async fn an_instance_deleted_before_the_controller_saw_it_goes_at_once() {
    let cluster = Cluster::new().await;
    let created = cluster.create_instance("finch").await;
    cluster.delete_instance("finch").await;
    cluster.start();
    cluster.instance_gone(&created).await;
    assert!(cluster.pods_of(&created).await.is_empty());
}

#[tokio::test]
async fn an_instance_deleted_while_its_pod_waits_for_a_node_takes_the_pod_with_it() {
    let cluster = Cluster::with_controller().await;
    let created = cluster.create_instance("finch").await;
    cluster.pod_of(&created).await;
    cluster.delete_instance("finch").await;
    cluster.pod_ends_when_told(&created).await;
    cluster.instance_gone(&created).await;
    assert!(cluster.pods_of(&created).await.is_empty());
}

#[tokio::test]
async fn an_instance_deleted_in_every_later_phase_stays_until_its_pod_is_gone() {
    let cluster = Cluster::with_controller().await;
    for phase in
        [InstancePhase::Scheduled, InstancePhase::Running, InstancePhase::Succeeded, InstancePhase::Failed]
    {
        let name = phase.to_string().to_lowercase();
        let created = cluster.create_instance(&name).await;
        let pod = cluster.pod_of(&created).await;
        cluster.run_pod(&pod, "node01").await;
        cluster.phase(&name, InstancePhase::Scheduled).await;
        if phase != InstancePhase::Scheduled {
            cluster.handler_says(&name, phase).await;
        }
        cluster.delete_instance(&name).await;
        let told = eventually("the pod to be told to end", async || {
            let pod = cluster.pods_of(&created).await.pop()?;
            pod.metadata.deletion_timestamp.is_some().then_some(pod)
        })
        .await;
        let grace = told.metadata.deletion_grace_period_seconds;
        assert_eq!(grace, Some(45), "{phase}: the guest's 30 seconds, and some for the launcher");
        assert!(cluster.instances.get_opt(&name).await.unwrap().is_some(), "{phase}: the pod is still there");
        cluster.pod_goes(&told).await;
        cluster.instance_gone(&created).await;
    }
}

#[tokio::test]
async fn a_pod_that_ended_does_not_hold_its_instance() {
    let cluster = Cluster::with_controller().await;
    cluster.create_instance("finch").await;
    let running = cluster.run("finch").await;
    let pod = cluster.pod_of(&running).await;
    cluster.handler_says("finch", InstancePhase::Succeeded).await;
    cluster.pod_ends(&pod, "Succeeded").await;
    cluster.delete_instance("finch").await;
    cluster.instance_gone(&running).await;
}

#[tokio::test]
async fn the_time_that_a_guest_has_is_its_own() {
    let cluster = Cluster::with_controller().await;
    let mut slow = crate::support::instance("finch");
    slow.spec.termination_grace_period_seconds = Some(600);
    let created = cluster.instances.create(&kube::api::PostParams::default(), &slow).await.unwrap();
    let pod = cluster.pod_of(&created).await;
    assert_eq!(pod.spec.unwrap().termination_grace_period_seconds, Some(615));
}

#[tokio::test]
async fn a_finalizer_of_somebody_else_is_left_alone() {
    let cluster = Cluster::with_controller().await;
    cluster.create_instance("finch").await;
    let running = cluster.run("finch").await;
    let mut finalizers = running.finalizers().to_vec();
    finalizers.push("example.com/mine".into());
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    cluster.instances.patch("finch", &PatchParams::default(), &patch).await.unwrap();
    cluster.delete_instance("finch").await;
    cluster.pod_ends_when_told(&running).await;
    eventually("our finalizer to go", async || {
        let left = cluster.instances.get("finch").await.unwrap();
        (left.finalizers() == ["example.com/mine"]).then_some(())
    })
    .await;
    let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    cluster.instances.patch("finch", &PatchParams::default(), &none).await.unwrap();
    cluster.instance_gone(&running).await;
}
