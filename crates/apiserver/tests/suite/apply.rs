//! Server-side apply through kube-rs: ownership, conflicts, force, removal.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::Space;

fn map(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
}

#[tokio::test]
async fn managers_share_an_object_and_fight_over_a_field() {
    let space = Space::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), &space.name);
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    maps.patch("a", &one, &map(&json!({"x": "1", "y": "1"}))).await.unwrap();
    maps.patch("a", &two, &map(&json!({"z": "2"}))).await.unwrap();

    let conflict = maps.patch("a", &two, &map(&json!({"x": "2", "z": "2"}))).await.unwrap_err();
    let kube::Error::Api(status) = conflict else { panic!("{conflict}") };
    assert!(status.is_conflict() && status.message.contains(r#"conflict with "one": .data.x"#), "{status:?}");

    maps.patch("a", &two.clone().force(), &map(&json!({"x": "2", "z": "2"}))).await.unwrap();
    let left = maps.patch("a", &one, &map(&json!({"y": "1"}))).await.unwrap();
    let data: Vec<_> = left.data.unwrap().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(data, ["x=2", "y=1", "z=2"]);
    let left = maps.patch("a", &two, &map(&json!({}))).await.unwrap();
    assert_eq!(left.data.unwrap().into_keys().collect::<Vec<_>>(), ["y"]);
}

#[tokio::test]
async fn applying_the_same_again_changes_nothing() {
    let space = Space::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), &space.name);
    let apply = async || maps.patch("a", &PatchParams::apply("one"), &map(&json!({"x": "1"}))).await.unwrap();
    let first = apply().await;
    // Another second, and so another time in managedFields, if that were written.
    let second = testkit::eventually("the next second", async || {
        let again = apply().await;
        let now = jiff::Timestamp::now().to_string();
        let created = first.metadata.creation_timestamp.as_ref()?.0.to_string();
        (now[..19] > created[..19]).then_some(again)
    })
    .await;
    assert_eq!(first, second);
}
