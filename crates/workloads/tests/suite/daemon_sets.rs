//! One pod a node, through updates and through the comings and goings of nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, Witness, image, image_of, is_leaving, staying, workload};

async fn rolled_out(cluster: &Cluster, name: &str, nodes: i32) -> DaemonSet {
    eventually("the set to be everywhere", async || {
        let set = cluster.api::<DaemonSet>().get(name).await.unwrap();
        let status = set.status.clone().unwrap_or_default();
        let done = status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.updated_number_scheduled.unwrap_or_default() == nodes
            && status.number_available.unwrap_or_default() == nodes
            && status.current_number_scheduled == nodes
            && status.number_ready == nodes
            && status.number_unavailable.is_none()
            && status.number_misscheduled == 0;
        done.then_some(set)
    })
    .await
}

async fn set(cluster: &Cluster, spec: Value) {
    cluster.create::<DaemonSet>(workload("agent", "one", spec)).await;
}

fn nodes_of(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter()
        .filter(|pod| !is_leaving(pod))
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect()
}

#[tokio::test]
async fn every_node_has_one_pod_also_a_new_one() {
    let cluster = Cluster::new(&["a", "b"]).await;
    set(&cluster, json!({})).await;
    rolled_out(&cluster, "agent", 2).await;
    cluster.add_node("c", json!({})).await;
    rolled_out(&cluster, "agent", 3).await;
    let pods = cluster.pods().await;
    assert_eq!(nodes_of(&pods), BTreeSet::from(["a".into(), "b".into(), "c".into()]));
    let labels = pods[0].metadata.labels.as_ref().unwrap();
    assert!(labels.contains_key("controller-revision-hash"), "{labels:?}");
    assert_eq!(labels["pod-template-generation"], "1");
}

#[tokio::test]
async fn an_update_takes_down_one_node_at_a_time() {
    let cluster = Cluster::new(&["a", "b", "c", "d"]).await;
    set(&cluster, json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}})).await;
    rolled_out(&cluster, "agent", 4).await;
    let witness = Witness::of(cluster.api(), "agent").await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    rolled_out(&cluster, "agent", 4).await;
    assert!(cluster.pods().await.iter().all(|pod| image_of(pod) == "two"));
    assert_eq!(witness.seen().fewest_ready, 3, "exactly one pod was missing at the worst moment");
    assert_eq!(witness.seen().most, 4);
}

#[tokio::test]
async fn an_update_that_does_not_work_stops_at_the_first_node() {
    let cluster = Cluster::new(&["a", "b", "c"]).await;
    set(&cluster, json!({})).await;
    rolled_out(&cluster, "agent", 3).await;
    let witness = Witness::of(cluster.api(), "agent").await;
    cluster.patch::<DaemonSet>("agent", image("broken")).await;
    eventually("the first broken pod", async || {
        let status = cluster.api::<DaemonSet>().get("agent").await.unwrap().status.unwrap();
        (status.updated_number_scheduled == Some(1) && status.number_unavailable == Some(1)).then_some(())
    })
    .await;
    // Whoever goes back replaces the broken one at once, though a pod is missing already.
    cluster.patch::<DaemonSet>("agent", image("one")).await;
    rolled_out(&cluster, "agent", 3).await;
    assert_eq!(witness.seen().fewest_ready, 2);
}

#[tokio::test]
async fn a_surge_has_the_new_pod_ready_before_the_old_one_goes() {
    let cluster = Cluster::new(&["a", "b", "c"]).await;
    set(&cluster, json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}})).await;
    rolled_out(&cluster, "agent", 3).await;
    let witness = Witness::of(cluster.api(), "agent").await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    rolled_out(&cluster, "agent", 3).await;
    eventually("the old pods to be gone", async || (cluster.pods().await.len() == 3).then_some(())).await;
    assert_eq!(witness.seen().fewest_ready, 3);
    assert!(cluster.pods().await.iter().all(|pod| image_of(pod) == "two"));
}

#[tokio::test]
async fn on_delete_waits_for_a_person() {
    let cluster = Cluster::new(&["a", "b"]).await;
    set(&cluster, json!({"updateStrategy": {"type": "OnDelete"}})).await;
    rolled_out(&cluster, "agent", 2).await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    eventually("the update to be seen", async || {
        let set = cluster.api::<DaemonSet>().get("agent").await.unwrap();
        let status = set.status.unwrap();
        (status.observed_generation == set.metadata.generation && status.updated_number_scheduled.is_none())
            .then_some(())
    })
    .await;
    let victim = staying(&cluster.pods().await)[0].clone();
    cluster.api::<Pod>().delete(&victim, &DeleteParams::default()).await.unwrap();
    eventually("one updated pod", async || {
        let status = cluster.api::<DaemonSet>().get("agent").await.unwrap().status.unwrap();
        (status.updated_number_scheduled == Some(1) && status.number_available == Some(2)).then_some(())
    })
    .await;
    let mut images: Vec<String> = cluster.pods().await.iter().map(image_of).collect();
    images.sort();
    assert_eq!(images, ["one", "two"]);
}

#[tokio::test]
async fn pods_follow_the_labels_and_taints_of_nodes() {
    let cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.patch_node("c", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})).await;
    cluster.patch_node("a", json!({"metadata": {"labels": {"role": "worker"}}})).await;
    cluster.patch_node("c", json!({"metadata": {"labels": {"role": "worker"}}})).await;
    set(&cluster, json!({"template": {"spec": {"nodeSelector": {"role": "worker"}}}})).await;
    rolled_out(&cluster, "agent", 1).await;
    assert_eq!(nodes_of(&cluster.pods().await), BTreeSet::from(["a".into()]));
    cluster.patch_node("b", json!({"metadata": {"labels": {"role": "worker"}}})).await;
    cluster.patch_node("a", json!({"metadata": {"labels": {"role": null}}})).await;
    eventually("the pod to move", async || {
        let pods = cluster.pods().await;
        (pods.len() == 1 && nodes_of(&pods) == BTreeSet::from(["b".into()])).then_some(())
    })
    .await;
    // Who is there already may stay.
    cluster.patch_node("b", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})).await;
    eventually("the pod to be where it would not be put", async || {
        let status = cluster.api::<DaemonSet>().get("agent").await.unwrap().status.unwrap();
        (status.number_misscheduled == 1 && status.desired_number_scheduled == 0).then_some(())
    })
    .await;
    assert_eq!(cluster.pods().await.len(), 1);
    cluster.patch_node("b", json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})).await;
    eventually("the pod to leave", async || cluster.pods().await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_cordoned_node_keeps_its_pod_and_gets_a_new_one() {
    let cluster = Cluster::new(&["a"]).await;
    set(&cluster, json!({})).await;
    rolled_out(&cluster, "agent", 1).await;
    cluster.patch_node("a", json!({"spec": {"unschedulable": true}})).await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    rolled_out(&cluster, "agent", 1).await;
    assert_eq!(image_of(&cluster.pods().await[0]), "two");
}

#[tokio::test]
async fn a_pod_that_failed_is_replaced_with_pauses() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.create::<DaemonSet>(workload("agent", "fails", json!({}))).await;
    let started = std::time::Instant::now();
    let mut names = BTreeSet::new();
    while names.len() < 4 {
        let known = names.len();
        let found = eventually("another pod", async || {
            let more: Vec<String> =
                staying(&cluster.pods().await).into_iter().filter(|name| !names.contains(name)).collect();
            (!more.is_empty()).then_some(more)
        })
        .await;
        names.extend(found);
        assert!(names.len() > known);
    }
    // The first is replaced at once, the second after one second, the third after two more.
    assert!(started.elapsed() >= std::time::Duration::from_secs(3), "{:?}", started.elapsed());
    let pods = cluster.pods().await;
    assert!(pods.len() <= 2, "one, or one that leaves and one that comes: {}", pods.len());
}

#[tokio::test]
async fn old_templates_are_kept_for_undo_up_to_the_limit() {
    let cluster = Cluster::new(&["a"]).await;
    set(&cluster, json!({"revisionHistoryLimit": 2})).await;
    for version in ["two", "three", "four", "five"] {
        rolled_out(&cluster, "agent", 1).await;
        cluster.patch::<DaemonSet>("agent", image(version)).await;
    }
    rolled_out(&cluster, "agent", 1).await;
    let revisions = || async {
        let list = cluster.api::<ControllerRevision>().list(&ListParams::default()).await.unwrap();
        let mut numbers: Vec<i64> = list.iter().map(|revision| revision.revision).collect();
        numbers.sort_unstable();
        numbers
    };
    eventually("old templates to be forgotten", async || (revisions().await == [3, 4, 5]).then_some(()))
        .await;
    // Going back to a template that is known gives it a new number, not a second entry.
    cluster.patch::<DaemonSet>("agent", image("four")).await;
    rolled_out(&cluster, "agent", 1).await;
    eventually("the old template to be the newest", async || (revisions().await == [3, 5, 6]).then_some(()))
        .await;
}
