//! Patches as clients send them.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::Space;

#[tokio::test]
async fn merge_deletes_by_null_and_holds_a_version() {
    let space = Space::new().await;
    let things = space.things().await;
    let created = space.http.post(&things.path, &things.body("a", json!({"x": 1, "y": [1, 2]}))).await.ok();
    let patched =
        space.http.patch("merge", &things.at("a"), &json!({"spec": {"x": null, "y": [3]}})).await.ok();
    assert_eq!(patched["spec"], json!({"y": [3]}));
    let stale =
        json!({"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"y": [4]}});
    space.http.patch("merge", &things.at("a"), &stale).await.refused(409, "Conflict");
}

#[tokio::test]
async fn json_patch_tests_for_absence_as_finalizer_helpers_do() {
    let space = Space::new().await;
    let things = space.things().await;
    space.http.post(&things.path, &things.body("a", json!({}))).await.ok();
    let add = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["a.test/f"]},
    ]);
    let patched = space.http.patch("json", &things.at("a"), &add).await.ok();
    assert_eq!(patched["metadata"]["finalizers"], json!(["a.test/f"]));
    space.http.patch("json", &things.at("a"), &add).await.refused(422, "Invalid");
}

#[tokio::test]
async fn strategic_merges_by_key_and_is_for_built_ins_only() {
    let space = Space::new().await;
    let things = space.things().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{"name": "one"}]});
    space.http.post(&space.core("serviceaccounts"), &account).await.ok();
    let path = space.core("serviceaccounts/a");
    let patched = space.http.patch("strategic", &path, &json!({"secrets": [{"name": "two"}]})).await.ok();
    assert_eq!(patched["secrets"].as_array().map(Vec::len), Some(2));
    let delete = json!({"secrets": [{"name": "one", "$patch": "delete"}]});
    let patched = space.http.patch("strategic", &path, &delete).await.ok();
    assert_eq!(patched["secrets"], json!([{"name": "two"}]));

    space.http.post(&things.path, &things.body("a", json!({}))).await.ok();
    let reply = space.http.patch("strategic", &things.at("a"), &json!({"spec": {}})).await;
    reply.refused(415, "UnsupportedMediaType");
}

#[tokio::test]
async fn status_and_scale_are_endpoints_of_their_own() {
    let space = Space::new().await;
    let things = space.things().await;
    let api: Api<DynamicObject> = Api::namespaced_with(space.client.clone(), &space.name, &things.resource());
    space.http.post(&things.path, &things.body("a", json!({"replicas": 1}))).await.ok();

    let status = Patch::Merge(json!({"status": {"replicas": 1}, "spec": {"replicas": 9}}));
    let patched = api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(
        (&patched.data["status"]["replicas"], &patched.data["spec"]["replicas"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(patched.metadata.generation, Some(1));

    let scale = api.get_scale("a").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1));
    let up = Patch::Merge(json!({"spec": {"replicas": 5}}));
    api.patch_scale("a", &PatchParams::default(), &up).await.unwrap();
    let thing = api.get("a").await.unwrap();
    assert_eq!((thing.metadata.generation, &thing.data["spec"]["replicas"]), (Some(2), &json!(5)));
}
