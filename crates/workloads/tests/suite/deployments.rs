//! Templates rolled out through ReplicaSets.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, Witness, image, image_of, is_leaving, staying, workload};

async fn deployment(cluster: &Cluster, spec: Value) {
    cluster.create::<Deployment>(workload("web", "one", spec)).await;
}

async fn rolled_out(cluster: &Cluster, replicas: i32) -> Deployment {
    eventually("the rollout to be done", async || {
        let web = cluster.api::<Deployment>().get("web").await.unwrap();
        let status = web.status.clone().unwrap_or_default();
        let done = status.observed_generation == web.metadata.generation
            && [status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas]
                .iter()
                .all(|number| number.unwrap_or_default() == replicas)
            && status.unavailable_replicas.is_none()
            && condition(&web, "Progressing")
                .is_some_and(|known| known.reason.as_deref() == Some("NewReplicaSetAvailable"));
        done.then_some(web)
    })
    .await
}

fn condition(deployment: &Deployment, type_: &str) -> Option<DeploymentCondition> {
    deployment.status.as_ref()?.conditions.clone()?.into_iter().find(|known| known.type_ == type_)
}

async fn progress(cluster: &Cluster, reason: &str) -> Deployment {
    eventually(reason, async || {
        let web = cluster.api::<Deployment>().get("web").await.unwrap();
        condition(&web, "Progressing")
            .is_some_and(|known| known.reason.as_deref() == Some(reason))
            .then_some(web)
    })
    .await
}

async fn sets(cluster: &Cluster) -> BTreeMap<String, ReplicaSet> {
    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap();
    let revision = |set: &ReplicaSet| set.annotations()["deployment.kubernetes.io/revision"].clone();
    sets.into_iter().map(|set| (revision(&set), set)).collect()
}

#[tokio::test]
async fn a_rollout_stays_within_its_bounds() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    deployment(&cluster, json!({"replicas": 4, "strategy": strategy})).await;
    let web = rolled_out(&cluster, 4).await;
    assert_eq!(condition(&web, "Available").unwrap().reason.as_deref(), Some("MinimumReplicasAvailable"));
    let witness = Witness::of(cluster.api(), "web").await;
    cluster.patch::<Deployment>("web", image("two")).await;
    rolled_out(&cluster, 4).await;
    let seen = witness.seen();
    assert!(seen.most <= 5, "desired and surge: {seen:?}");
    assert!(seen.fewest_ready >= 3, "desired without unavailable: {seen:?}");
    let pods = cluster.pods().await;
    assert!(pods.iter().filter(|pod| !is_leaving(pod)).all(|pod| image_of(pod) == "two"));
}

#[tokio::test]
async fn revisions_count_up_and_an_undo_takes_the_old_set_again() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 2})).await;
    let web = rolled_out(&cluster, 2).await;
    assert_eq!(web.annotations()["deployment.kubernetes.io/revision"], "1");
    let first = sets(&cluster).await["1"].name_any();
    cluster.patch::<Deployment>("web", image("two")).await;
    rolled_out(&cluster, 2).await;
    assert_eq!(sets(&cluster).await.keys().collect::<Vec<_>>(), ["1", "2"]);
    cluster.patch::<Deployment>("web", image("one")).await;
    let web = rolled_out(&cluster, 2).await;
    assert_eq!(web.annotations()["deployment.kubernetes.io/revision"], "3");
    let sets = sets(&cluster).await;
    assert_eq!(sets.keys().collect::<Vec<_>>(), ["2", "3"]);
    assert_eq!(sets["3"].name_any(), first);
    assert_eq!(sets["3"].annotations()["deployment.kubernetes.io/revision-history"], "1");
    let hash = sets["3"].labels()["pod-template-hash"].clone();
    assert_eq!(first, format!("web-{hash}"));
}

#[tokio::test]
async fn recreate_has_old_and_new_never_at_the_same_time() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 3, "strategy": {"type": "Recreate"}})).await;
    rolled_out(&cluster, 3).await;
    let witness = Witness::of(cluster.api(), "web").await;
    cluster.patch::<Deployment>("web", image("two")).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(witness.seen().fewest_ready, 0);
    assert_eq!(witness.seen().most, 3);
    assert!(cluster.pods().await.iter().all(|pod| image_of(pod) == "two"));
}

#[tokio::test]
async fn scaling_changes_the_number_and_nothing_else() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 2})).await;
    rolled_out(&cluster, 2).await;
    let before = staying(&cluster.pods().await);
    let scale = |replicas: i32| {
        let api = cluster.api::<Deployment>();
        async move {
            let change = json!({"spec": {"replicas": replicas}});
            api.patch_scale("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        }
    };
    scale(5).await;
    rolled_out(&cluster, 5).await;
    let after = staying(&cluster.pods().await);
    assert!(before.iter().all(|name| after.contains(name)));
    scale(1).await;
    rolled_out(&cluster, 1).await;
    scale(0).await;
    rolled_out(&cluster, 0).await;
    eventually("the pods to be gone", async || cluster.pods().await.is_empty().then_some(())).await;
    assert_eq!(sets(&cluster).await.len(), 1);
}

#[tokio::test]
async fn a_rollout_that_gets_nowhere_says_so_and_keeps_what_works() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 3, "progressDeadlineSeconds": 1})).await;
    rolled_out(&cluster, 3).await;
    let witness = Witness::of(cluster.api(), "web").await;
    cluster.patch::<Deployment>("web", image("broken")).await;
    let web = progress(&cluster, "ProgressDeadlineExceeded").await;
    let known = condition(&web, "Progressing").unwrap();
    assert_eq!(known.status, "False");
    let name = sets(&cluster).await["2"].name_any();
    assert_eq!(known.message.unwrap(), format!("ReplicaSet {name:?} has timed out progressing."));
    assert_eq!(witness.seen().fewest_ready, 3, "a quarter of three, rounded down, is none");
    cluster.patch::<Deployment>("web", image("one")).await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test]
async fn a_paused_deployment_scales_but_does_not_roll() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 2})).await;
    rolled_out(&cluster, 2).await;
    cluster.patch::<Deployment>("web", json!({"spec": {"paused": true}})).await;
    progress(&cluster, "DeploymentPaused").await;
    cluster.patch::<Deployment>("web", image("two")).await;
    cluster.patch::<Deployment>("web", json!({"spec": {"replicas": 3}})).await;
    eventually("three of the old template", async || {
        let pods = cluster.pods().await;
        (pods.len() == 3 && pods.iter().all(|pod| image_of(pod) == "one")).then_some(())
    })
    .await;
    cluster.patch::<Deployment>("web", json!({"spec": {"paused": false}})).await;
    rolled_out(&cluster, 3).await;
    assert!(cluster.pods().await.iter().filter(|pod| !is_leaving(pod)).all(|pod| image_of(pod) == "two"));
}

#[tokio::test]
async fn a_set_takes_orphans_in_and_lets_go_of_what_it_does_not_select() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("orphan", json!({"metadata": {"labels": {"app": "web"}}})).await;
    cluster.create::<ReplicaSet>(workload("web", "one", json!({"replicas": 2}))).await;
    let ready = async |number: i32| {
        eventually("the set to have its pods", async || {
            let status = cluster.api::<ReplicaSet>().get("web").await.unwrap().status.unwrap_or_default();
            (status.ready_replicas == Some(number) && status.replicas == number).then_some(())
        })
        .await;
    };
    ready(2).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 2);
    let orphan = pods.iter().find(|pod| pod.name_any() == "orphan").unwrap();
    assert_eq!(orphan.owner_references()[0].name, "web");
    cluster.patch::<Pod>("orphan", json!({"metadata": {"labels": {"app": "other"}}})).await;
    eventually("another in its place", async || (cluster.pods().await.len() == 3).then_some(())).await;
    ready(2).await;
    let orphan = cluster.api::<Pod>().get("orphan").await.unwrap();
    assert!(orphan.owner_references().is_empty());
}

#[tokio::test]
async fn deleting_a_deployment_takes_its_pods_along_unless_they_are_orphaned() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 2})).await;
    rolled_out(&cluster, 2).await;
    cluster.api::<Deployment>().delete("web", &DeleteParams::orphan()).await.unwrap();
    eventually("the deployment to be gone", async || {
        cluster.api::<Deployment>().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    let names = staying(&cluster.pods().await);
    assert_eq!(names.len(), 2);
    // The same again finds its set and its pods.
    deployment(&cluster, json!({"replicas": 2})).await;
    rolled_out(&cluster, 2).await;
    assert_eq!(staying(&cluster.pods().await), names);
    cluster.api::<Deployment>().delete("web", &DeleteParams::default()).await.unwrap();
    eventually("everything to be gone", async || cluster.pods().await.is_empty().then_some(())).await;
}

#[tokio::test]
async fn every_pod_that_a_set_makes_is_told_by_name() {
    let cluster = Cluster::new(&["a"]).await;
    deployment(&cluster, json!({"replicas": 3})).await;
    rolled_out(&cluster, 3).await;
    let names = staying(&cluster.pods().await);
    let events = cluster.api::<k8s_openapi::api::events::v1::Event>();
    eventually("an event a pod", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let notes: Vec<String> = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("SuccessfulCreate"))
            .filter_map(|event| event.note.clone())
            .collect();
        names.iter().all(|name| notes.contains(&format!("Created pod: {name}"))).then_some(())
    })
    .await;
}
