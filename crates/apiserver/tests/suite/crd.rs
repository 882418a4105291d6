//! Definitions: derived by kube-rs, applied, used, changed, deleted.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::eventually;

use crate::Space;

#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "suite.test",
    version = "v1",
    kind = "Gizmo",
    namespaced,
    status = "GizmoStatus",
    shortname = "gz"
)]
#[serde(rename_all = "camelCase")]
struct GizmoSpec {
    #[schemars(length(min = 2))]
    title: String,
    #[serde(default)]
    replicas: i32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct GizmoStatus {
    ready: bool,
}

#[tokio::test]
async fn a_derived_definition_serves_typed_objects() {
    let space = Space::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(space.client.clone());
    let apply = PatchParams::apply("suite").force();
    let name = Gizmo::crd_name();
    definitions.patch(name, &apply, &Patch::Apply(Gizmo::crd())).await.unwrap();
    await_condition(definitions.clone(), name, conditions::is_crd_established()).await.unwrap();

    let gizmos: Api<Gizmo> = Api::namespaced(space.client.clone(), &space.name);
    let gizmo = Gizmo::new("a", GizmoSpec { title: "first".into(), replicas: 3 });
    let created = eventually("the resource to be served", async || {
        gizmos.create(&PostParams::default(), &gizmo).await.ok()
    })
    .await;
    assert_eq!(created.spec.replicas, 3);
    let status = Patch::Merge(json!({"status": {"ready": true}}));
    let patched = gizmos.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert!(patched.status.unwrap().ready);

    let short = Gizmo::new("b", GizmoSpec { title: "x".into(), replicas: 0 });
    let refused = gizmos.create(&PostParams::default(), &short).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 422 && status.message.contains("spec.title")),
        "{refused}"
    );

    let discovery = kube::discovery::group(&space.client, "suite.test").await.unwrap();
    let (resource, capabilities) = discovery.recommended_kind("Gizmo").unwrap();
    assert_eq!(resource.plural, "gizmos");
    assert!(capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "status"));
}

#[tokio::test]
async fn defaults_appear_on_what_was_stored_before_them() {
    let space = Space::new().await;
    let spec = |properties| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let things = space.define(spec(json!({"a": {"type": "string"}}))).await;
    space.http.post(&things.path, &things.body("old", json!({"a": "x", "unknown": 1}))).await.ok();
    let stored = space.http.get(&things.at("old")).await.ok();
    assert_eq!(stored["spec"], json!({"a": "x"}), "unknown fields are pruned");

    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{}", things.group);
    let schema = spec(json!({"a": {"type": "string"}, "b": {"type": "integer", "default": 5}}));
    let change =
        json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]);
    space.http.patch("json", &definition, &change).await.ok();
    let read = eventually("the default", async || {
        let read = space.http.get(&things.at("old")).await.ok();
        (read["spec"]["b"] == 5).then_some(read)
    })
    .await;
    assert_eq!(
        read["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"],
        "reading writes nothing"
    );
    let list = space.http.get(&things.path).await.ok();
    assert_eq!(list["items"][0]["spec"]["b"], 5);
}

#[tokio::test]
async fn rules_hold_between_old_and_new() {
    let space = Space::new().await;
    let spec = json!({
        "type": "object",
        "properties": {"size": {"type": "integer"}, "name": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "size never shrinks"}],
    });
    let things = space.define(json!({"type": "object", "properties": {"spec": spec}})).await;
    space.http.post(&things.path, &things.body("a", json!({"size": 5}))).await.ok();
    space.http.patch("merge", &things.at("a"), &json!({"spec": {"size": 6}})).await.ok();
    let refusal = space
        .http
        .patch("merge", &things.at("a"), &json!({"spec": {"size": 4}}))
        .await
        .refused(422, "Invalid");
    assert!(refusal["message"].as_str().unwrap().contains("size never shrinks"));
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects() {
    let space = Space::new().await;
    let things = space.things().await;
    space.http.post(&things.path, &things.body("a", json!({}))).await.ok();
    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{}", things.group);
    space.http.delete(&definition).await.ok();
    eventually("the end of the definition", async || {
        (space.http.get(&definition).await.status == 404).then_some(())
    })
    .await;
    eventually("the end of the resource", async || {
        (space.http.get(&things.path).await.status == 404).then_some(())
    })
    .await;
}
