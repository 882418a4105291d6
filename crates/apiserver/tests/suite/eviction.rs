//! Pods as data: bound, evicted, deleted with grace.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, PostParams};
use serde_json::json;

use crate::Space;

async fn pod(space: &Space, name: &str) -> Api<Pod> {
    let pods: Api<Pod> = Api::namespaced(space.client.clone(), &space.name);
    let pod = json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods
}

async fn bind(space: &Space, name: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    space.http.post(&space.core(&format!("pods/{name}/binding")), &binding).await.ok();
}

#[tokio::test]
async fn an_unbound_pod_is_evicted_at_once() {
    let space = Space::new().await;
    let pods = pod(&space, "a").await;
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_bound_pod_has_its_grace() {
    let space = Space::new().await;
    let pods = pod(&space, "a").await;
    bind(&space, "a").await;
    assert_eq!(pods.get("a").await.unwrap().spec.unwrap().node_name.as_deref(), Some("n1"));
    pods.evict("a", &EvictParams::default()).await.unwrap();
    let dying = pods.get("a").await.unwrap();
    assert!(dying.metadata.deletion_timestamp.is_some());
    assert_eq!(dying.metadata.deletion_grace_period_seconds, Some(30));
    // As the kubelet does when the containers have ended.
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_budget_forbids() {
    let space = Space::new().await;
    let pods = pod(&space, "a").await;
    bind(&space, "a").await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    space.http.patch("strategic", &space.core("pods/a/status"), &ready).await.ok();
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", space.name);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    space.http.post(&budgets, &budget).await.ok();
    // As the disruption controller does, which does not run here.
    let status = json!({"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptionsAllowed": 0}});
    space.http.patch("merge", &format!("{budgets}/b/status"), &status).await.ok();

    let refused = pods.evict("a", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.code, 429);
    // Whoever is told when to come back does so by itself, ten times, and kubectl drain never says why it waits.
    assert!(refused.details.is_none_or(|details| details.retry_after_seconds == 0));
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_none());
    let allowed = json!({"status": {"disruptionsAllowed": 1}});
    space.http.patch("merge", &format!("{budgets}/b/status"), &allowed).await.ok();
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn a_pod_that_does_not_work_may_go_while_enough_others_do() {
    let space = Space::new().await;
    let pods = pod(&space, "a").await;
    bind(&space, "a").await;
    let sick = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}});
    space.http.patch("strategic", &space.core("pods/a/status"), &sick).await.ok();
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", space.name);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    space.http.post(&budgets, &budget).await.ok();
    let status = |healthy: i64| json!({"status": {"observedGeneration": 1, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 0}});
    space.http.patch("merge", &format!("{budgets}/b/status"), &status(0)).await.ok();
    pods.evict("a", &EvictParams::default()).await.unwrap_err();
    space.http.patch("merge", &format!("{budgets}/b/status"), &status(1)).await.ok();
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
}
