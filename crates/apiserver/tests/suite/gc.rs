//! Garbage collection by owner.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::eventually;

use crate::Space;

async fn owner_and_child(space: &Space, finalizers: Value) -> Api<ConfigMap> {
    let owner = space.config_map("owner", &json!({})).await;
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "finalizers": finalizers, "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true},
    ]}});
    space.http.post(&space.core("configmaps"), &child).await.ok();
    Api::namespaced(space.client.clone(), &space.name)
}

async fn gone(maps: &Api<ConfigMap>, name: &str) {
    eventually(&format!("the end of {name}"), async || {
        maps.get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_child_follows_in_the_background() {
    let space = Space::new().await;
    let maps = owner_and_child(&space, json!([])).await;
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    gone(&maps, "child").await;
}

#[tokio::test]
async fn a_child_goes_first_in_the_foreground() {
    let space = Space::new().await;
    let maps = owner_and_child(&space, json!(["a.test/slow"])).await;
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the child to be deleted", async || {
        maps.get("child").await.unwrap().metadata.deletion_timestamp
    })
    .await;
    let owner = maps.get("owner").await.unwrap();
    assert_eq!(owner.metadata.finalizers.as_deref(), Some(["foregroundDeletion".to_owned()].as_slice()));
    space
        .http
        .patch("merge", &space.core("configmaps/child"), &json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    gone(&maps, "owner").await;
}

#[tokio::test]
async fn an_orphan_stays() {
    let space = Space::new().await;
    let maps = owner_and_child(&space, json!([])).await;
    maps.delete("owner", &DeleteParams::orphan()).await.unwrap();
    gone(&maps, "owner").await;
    assert!(maps.get("child").await.unwrap().metadata.owner_references.is_none());
}

#[tokio::test]
async fn an_owner_is_known_by_uid() {
    let space = Space::new().await;
    space.config_map("owner", &json!({})).await;
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-000000000000"},
    ]}});
    space.http.post(&space.core("configmaps"), &child).await.ok();
    gone(&Api::namespaced(space.client.clone(), &space.name), "child").await;
}
