//! Disruption budgets: what may be evicted, and when again.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use kube::api::EvictParams;
use serde_json::{Value, json};
use testkit::eventually;

use crate::support::{Cluster, Witness, staying, workload};

async fn budget(cluster: &Cluster, spec: Value) {
    let mut object =
        json!({"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    crate::support::merge(&mut object["spec"], spec);
    cluster.create::<PodDisruptionBudget>(object).await;
}

async fn status(cluster: &Cluster, what: &str, is: impl Fn(&PodDisruptionBudgetStatus) -> bool) {
    eventually(what, async || {
        let status = cluster.api::<PodDisruptionBudget>().get("b").await.unwrap().status?;
        is(&status).then_some(())
    })
    .await;
}

/// Expected, desired, healthy and allowed.
fn numbers(status: &PodDisruptionBudgetStatus) -> [i32; 4] {
    [status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed]
        .map(Option::unwrap_or_default)
}

#[tokio::test]
async fn evictions_obey_the_budget_and_go_on_when_a_replacement_is_there() {
    let cluster = Cluster::new(&["a", "b"]).await;
    cluster.create::<Deployment>(workload("web", "one", json!({"replicas": 3}))).await;
    budget(&cluster, json!({"maxUnavailable": 1})).await;
    status(&cluster, "one to spare", |status| numbers(status) == [3, 2, 3, 1]).await;
    let witness = Witness::of(cluster.api(), "web").await;
    let old = staying(&cluster.pods().await);
    for pod in &old {
        eventually("the eviction to be allowed", async || {
            match cluster.api::<Pod>().evict(pod, &EvictParams::default()).await {
                Ok(_) => Some(()),
                Err(kube::Error::Api(refused)) if refused.code == 429 => None,
                Err(other) => panic!("{other}"),
            }
        })
        .await;
    }
    status(&cluster, "all to be replaced", |status| {
        numbers(status) == [3, 2, 3, 1] && status.disrupted_pods.is_none()
    })
    .await;
    assert!(!staying(&cluster.pods().await).iter().any(|name| old.contains(name)));
    assert_eq!(witness.seen().fewest_ready, 2, "never more than one was missing");
}

#[tokio::test]
async fn a_single_pod_that_must_work_cannot_be_evicted() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", json!({"metadata": {"labels": {"app": "web"}}})).await;
    budget(&cluster, json!({"minAvailable": 1})).await;
    status(&cluster, "nothing to spare", |status| {
        let reason =
            status.conditions.as_ref().and_then(|conditions| conditions.first()).map(|known| &*known.reason);
        numbers(status) == [1, 1, 1, 0] && reason == Some("InsufficientPods")
    })
    .await;
    let refused = cluster.api::<Pod>().evict("p", &EvictParams::default()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 429), "{refused}");
}

#[tokio::test]
async fn a_share_of_pods_that_nobody_scales_allows_nothing() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", json!({"metadata": {"labels": {"app": "web"}}})).await;
    budget(&cluster, json!({"minAvailable": "50%"})).await;
    status(&cluster, "the failure", |status| {
        let condition = status.conditions.as_ref().and_then(|conditions| conditions.first());
        condition
            .is_some_and(|known| known.reason == "SyncFailed" && known.message.contains("no controller ref"))
            && numbers(status)[3] == 0
    })
    .await;
}

#[tokio::test]
async fn shares_are_of_what_the_deployment_wants() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.create::<Deployment>(workload("web", "one", json!({"replicas": 4}))).await;
    budget(&cluster, json!({"minAvailable": "50%"})).await;
    status(&cluster, "half to spare", |status| numbers(status) == [4, 2, 4, 2]).await;
}
