//! Watches as they are on the wire.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Options, Server};

use crate::{Space, version};

fn brief(event: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

#[tokio::test]
async fn all_watchers_see_the_same_order() {
    let space = Space::new().await;
    let things = space.things().await;
    let from = version(&space.http.get(&things.path).await.ok());
    let path = format!("{}?watch=true&resourceVersion={from}", things.path);
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(space.http.watch(&path).await);
    }
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    let create =
        async |name: &String| space.http.post(&things.path, &things.body(name, json!({}))).await.ok();
    futures::future::join_all(names.iter().map(create)).await;
    let mut orders = Vec::new();
    for watch in &mut watches {
        let mut order = Vec::new();
        for _ in &names {
            order.push(version(&watch.soon().await["object"]));
        }
        assert!(order.is_sorted(), "{order:?}");
        orders.push(order);
    }
    orders.dedup();
    assert_eq!(orders.len(), 1);
}

#[tokio::test]
async fn a_deletion_has_a_version_to_resume_from() {
    let space = Space::new().await;
    let things = space.things().await;
    let created = space.http.post(&things.path, &things.body("a", json!({"x": 1}))).await.ok();
    let path = |from: u64| format!("{}?watch=true&resourceVersion={from}", things.path);
    let mut watch = space.http.watch(&path(version(&created))).await;
    space.http.delete(&things.at("a")).await.ok();
    let deleted = watch.soon().await;
    assert_eq!(brief(&deleted), ("DELETED".into(), "a".into()));
    assert_eq!(deleted["object"]["spec"]["x"], 1);
    assert!(version(&deleted["object"]) > version(&created));

    let mut resumed = space.http.watch(&path(version(&deleted["object"]))).await;
    space.http.post(&things.path, &things.body("b", json!({}))).await.ok();
    assert_eq!(brief(&resumed.soon().await), ("ADDED".into(), "b".into()));
}

#[tokio::test]
async fn a_streamed_list_says_where_it_ends() {
    let space = Space::new().await;
    let things = space.things().await;
    for name in ["b", "a"] {
        space.http.post(&things.path, &things.body(name, json!({}))).await.ok();
    }
    let query =
        "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut watch = space.http.watch(&format!("{}?{query}", things.path)).await;
    assert_eq!(brief(&watch.soon().await), ("ADDED".into(), "a".into()));
    assert_eq!(brief(&watch.soon().await), ("ADDED".into(), "b".into()));
    let end = watch.soon().await;
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["kind"], "Thing");
    space.http.delete(&things.at("a")).await.ok();
    assert_eq!(brief(&watch.soon().await), ("DELETED".into(), "a".into()));
}

#[tokio::test]
async fn a_watch_ends_in_time_and_cleanly() {
    let space = Space::new().await;
    let things = space.things().await;
    let mut watch = space.http.watch(&format!("{}?watch=true&timeoutSeconds=1", things.path)).await;
    let end = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    assert_eq!(end.expect("it ends"), None);
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_matters() {
    let mut server = Server::start(Options { durable: true, history: Some(100) }).await;
    if !server.can_restart() {
        testkit::not_run("this server is not ours to restart");
        return;
    }
    let path = "/api/v1/namespaces/default/secrets";
    let secret = |name: String| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let mut http = server.http().await;
    let first = http.post(path, &secret("first".into())).await.ok();
    for number in 0..150 {
        http.post(path, &secret(format!("s{number}"))).await.ok();
    }
    let before = version(&http.get(path).await.ok());
    server.kill().await;
    http = server.http().await;
    let list = http.get(path).await.ok();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(151));
    assert!(version(&list) >= before);

    // Too old is an event of the stream: an HTTP error would make clients try the same again for ever.
    let from = version(&first);
    let mut old = http.watch(&format!("{path}?watch=true&resourceVersion={from}")).await;
    assert_eq!(old.status, 200);
    let error = old.soon().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{error}");

    let mut watch = http.watch(&format!("{path}?watch=true&resourceVersion={}", version(&list))).await;
    let after = http.post(path, &secret("after".into())).await.ok();
    assert!(version(&after) > version(&list));
    assert_eq!(brief(&watch.soon().await), ("ADDED".into(), "after".into()));
}
