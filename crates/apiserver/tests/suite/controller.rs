//! A whole controller of kube-runtime: finalizer helper, status, owned objects, events.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::json;
use testkit::eventually;

use crate::Space;

#[derive(Debug)]
struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

struct Context {
    client: Client,
    recorder: Recorder,
}

/// Every `source` gets a `copy` that it owns and an event; its cleaning up leaves a `tombstone`.
async fn reconcile(
    source: Arc<ConfigMap>,
    context: Arc<Context>,
) -> Result<Action, kube::runtime::finalizer::Error<Failure>> {
    let namespace = source.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let fail = |error: kube::Error| Failure(error.to_string());
    finalizer(&maps, "a.test/cleanup", source, async |event| match event {
        Finalizer::Apply(source) => {
            let owner = source.controller_owner_ref(&()).expect("a stored object has a name and a uid");
            let copy = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "copy", "ownerReferences": [owner]}, "data": source.data,
            });
            maps.patch("copy", &PatchParams::apply("controller"), &Patch::Apply(copy)).await.map_err(fail)?;
            let note = Event {
                type_: EventType::Normal,
                reason: "Copied".into(),
                note: Some("made a copy".into()),
                action: "Copying".into(),
                secondary: None,
            };
            context.recorder.publish(&note, &source.object_ref(&())).await.map_err(fail)?;
            Ok(Action::await_change())
        }
        Finalizer::Cleanup(_) => {
            let tombstone: ConfigMap =
                serde_json::from_value(json!({"metadata": {"name": "tombstone"}})).expect("a ConfigMap");
            match maps.create(&PostParams::default(), &tombstone).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                result => drop(result.map_err(fail)?),
            }
            Ok(Action::await_change())
        }
    })
    .await
}

#[tokio::test]
async fn a_controller_does_its_work_and_cleans_up() {
    let space = Space::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), &space.name);
    let reporter = Reporter { controller: "a.test/suite".into(), instance: Some("suite-1".into()) };
    let context =
        Context { client: space.client.clone(), recorder: Recorder::new(space.client.clone(), reporter) };
    let sources = watcher::Config::default().labels("role=source");
    let controller = Controller::new(maps.clone(), sources).owns(maps.clone(), watcher::Config::default());
    let running = controller
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(context))
        .for_each(async |_| {});
    let running = tokio::spawn(running);

    let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "source", "labels": {"role": "source"}}, "data": {"k": "v"}});
    space.http.post(&space.core("configmaps"), &source).await.ok();
    let copied = async |value: &str| {
        eventually("the copy", async || {
            let copy = maps.get_opt("copy").await.unwrap()?;
            (copy.data?.get("k")? == value).then_some(())
        })
        .await;
    };
    copied("v").await;
    space.http.patch("merge", &space.core("configmaps/source"), &json!({"data": {"k": "w"}})).await.ok();
    copied("w").await;
    // Someone tampers with the copy: the owner is reconciled again.
    maps.delete("copy", &DeleteParams::default()).await.unwrap();
    copied("w").await;

    let path = space.core("events?fieldSelector=reason%3DCopied,involvedObject.name%3Dsource");
    let event =
        eventually("the event", async || space.http.get(&path).await.ok()["items"].get(0).cloned()).await;
    assert_eq!((&event["message"], &event["type"]), (&json!("made a copy"), &json!("Normal")));

    maps.delete("source", &DeleteParams::default()).await.unwrap();
    eventually("the end of the source", async || {
        maps.get_opt("source").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(maps.get_opt("tombstone").await.unwrap().is_some());
    eventually("the end of the copy", async || maps.get_opt("copy").await.unwrap().is_none().then_some(()))
        .await;
    running.abort();
}

#[tokio::test]
async fn waiting_for_a_condition() {
    let space = Space::new().await;
    let things = space.things().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(space.client.clone());
    let name = format!("things.{}", things.group);
    let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(30), established).await.unwrap().unwrap();
    let uid = definitions.get(&name).await.unwrap().uid().unwrap();
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
    let deleted = await_condition(definitions, &name, conditions::is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(30), deleted).await.unwrap().unwrap();
}
