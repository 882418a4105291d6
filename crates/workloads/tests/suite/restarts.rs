//! The controllers may be killed at any moment, and whoever comes after them goes on. When all is done they rest.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, Witness, image, image_of, is_leaving, workload};

#[tokio::test]
async fn killed_again_and_again_in_the_middle_of_rollouts_they_still_keep_to_the_bounds() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.create::<Deployment>(workload("web", "one", json!({"replicas": 3, "strategy": strategy}))).await;
    cluster.create::<DaemonSet>(workload("agent", "one", json!({}))).await;
    let all_of = async |cluster: &Cluster, version: &str| {
        let pods = cluster.pods().await;
        pods.len() == 6
            && pods.iter().all(|pod| {
                let ready = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                let ready =
                    ready.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status == "True");
                image_of(pod) == version && ready && !is_leaving(pod)
            })
    };
    eventually("the first version", async || all_of(&cluster, "one").await.then_some(())).await;
    let (web, agent) = (Witness::of(cluster.api(), "web").await, Witness::of(cluster.api(), "agent").await);
    cluster.patch::<Deployment>("web", image("two")).await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    let mut kills = 0;
    while !all_of(&cluster, "two").await {
        assert!(kills < 1000, "no rollout gets on");
        // A little more life each time, so that every step is cut somewhere and the work ends nevertheless.
        tokio::time::sleep(Duration::from_millis(kills % 40)).await;
        cluster.kill_controllers().await;
        cluster.start_controllers();
        kills += 1;
    }
    assert!(kills > 1, "the rollout was over before anybody was killed");
    assert!(web.seen().most <= 4 && web.seen().fewest_ready >= 3, "{:?}", web.seen());
    assert!(agent.seen().most <= 3 && agent.seen().fewest_ready >= 2, "{:?}", agent.seen());
}

/// Everything but what nodes renew, with its version.
async fn versions(cluster: &Cluster) -> Vec<String> {
    let http = testkit::Http::new(cluster.client.clone());
    let mut all = Vec::new();
    for path in [
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/events",
        "/apis/apps/v1/daemonsets",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
        "/apis/apps/v1/controllerrevisions",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/discovery.k8s.io/v1/endpointslices",
    ] {
        let list = http.get(path).await.ok();
        let items = list["items"].as_array().unwrap();
        all.extend(items.iter().map(|item| {
            format!("{path} {} {}", item["metadata"]["name"], item["metadata"]["resourceVersion"])
        }));
    }
    all
}

#[tokio::test]
async fn a_cluster_at_rest_is_left_at_rest() {
    let mut cluster = Cluster::new(&["a", "b"]).await;
    cluster.create::<Deployment>(workload("web", "one", json!({"replicas": 3}))).await;
    cluster.create::<DaemonSet>(workload("agent", "one", json!({}))).await;
    cluster.create::<Service>(json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})).await;
    let selector = json!({"matchLabels": {"app": "web"}});
    cluster
        .create::<PodDisruptionBudget>(
            json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": selector}}),
        )
        .await;
    cluster.pod("waits", json!({"spec": {"nodeSelector": {"no": "where"}}})).await;
    cluster.waits_because("waits").await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    // Every renewal wakes all controllers.
    let renewals = async |number: usize| {
        for _ in 0..number {
            let before = leases.get("a").await.unwrap().metadata.resource_version;
            eventually("a renewal", async || {
                (leases.get("a").await.unwrap().metadata.resource_version != before).then_some(())
            })
            .await;
        }
    };
    let rests = async |cluster: &Cluster| {
        eventually("the cluster to come to rest", async || {
            let before = versions(cluster).await;
            renewals(4).await;
            (versions(cluster).await == before).then_some(before)
        })
        .await
    };
    let before = rests(&cluster).await;
    assert!(before.len() > 20, "{before:?}");
    cluster.stop_controllers().await;
    cluster.start_controllers();
    renewals(4).await;
    assert_eq!(versions(&cluster).await, before, "who comes after finds nothing to do");
}
