//! An event is one thing with two faces.

use kube::runtime::events::{Event, EventType, Recorder};
use serde_json::json;

use crate::Space;

#[tokio::test]
async fn what_a_recorder_writes_kubectl_finds() {
    let space = Space::new().await;
    let about = space.config_map("subject", &json!({})).await;
    let reference = k8s_openapi::api::core::v1::ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("ConfigMap".into()),
        name: Some("subject".into()),
        namespace: Some(space.name.clone()),
        uid: about["metadata"]["uid"].as_str().map(str::to_owned),
        ..Default::default()
    };
    let recorder = Recorder::new(space.client.clone(), "a.test/suite".into());
    let event = Event {
        type_: EventType::Warning,
        reason: "Happened".into(),
        note: Some("it happened".into()),
        action: "Testing".into(),
        secondary: None,
    };
    // The second time it is a series of the first.
    recorder.publish(&event, &reference).await.unwrap();
    recorder.publish(&event, &reference).await.unwrap();

    let uid = about["metadata"]["uid"].as_str().unwrap();
    let selector = format!(
        "involvedObject.name%3Dsubject,involvedObject.namespace%3D{},involvedObject.kind%3DConfigMap,involvedObject.uid%3D{uid}",
        space.name
    );
    let found = space.http.get(&space.core(&format!("events?fieldSelector={selector}"))).await.ok();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
    let core = &found["items"][0];
    assert_eq!(core["message"], "it happened");
    assert_eq!(core["reportingComponent"], "a.test/suite");
    assert_eq!(core["series"]["count"], 2);
    let name = core["metadata"]["name"].as_str().unwrap();
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events/{name}", space.name);
    let modern = space.http.get(&path).await.ok();
    assert_eq!((&modern["note"], &modern["regarding"]["uid"]), (&json!("it happened"), &json!(uid)));
    assert_eq!(modern["metadata"]["uid"], core["metadata"]["uid"]);
}
