//! A write is seen by whoever wrote it, and nothing that the watch tells later takes it back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;

const SPACE: &str = "default";

fn map(name: &str, uid: &str, version: u64) -> ConfigMap {
    let meta = json!({"name": name, "namespace": SPACE, "uid": uid, "resourceVersion": version.to_string()});
    serde_json::from_value(json!({"metadata": meta})).unwrap()
}

fn cache(client: &Client) -> Cache<ConfigMap> {
    Cache::new(client, Api::all(client.clone()), Api::namespaced, &Arc::new(Sender::new(0)))
}

async fn empty() -> (apiserver::ApiServer, Cache<ConfigMap>) {
    let server = apiserver::ApiServer::start(apiserver::Options::default()).await.unwrap();
    let cache = cache(&server.client(SPACE));
    cache.see(&Event::Init);
    cache.see(&Event::InitDone);
    (server, cache)
}

fn known(cache: &Cache<ConfigMap>) -> Option<u64> {
    cache.get(SPACE, "a").map(|object| version(&*object))
}

#[tokio::test]
async fn an_older_event_does_not_take_a_write_back() {
    let (_server, cache) = empty().await;
    cache.absorb(map("a", "u", 7));
    assert_eq!(known(&cache), Some(7));
    cache.see(&Event::Apply(map("a", "u", 5)));
    assert_eq!(known(&cache), Some(7));
    // Of an earlier object of that name.
    cache.see(&Event::Delete(map("a", "earlier", 6)));
    assert_eq!(known(&cache), Some(7));
    cache.see(&Event::Apply(map("a", "u", 8)));
    assert_eq!(known(&cache), Some(8));
}

#[tokio::test]
async fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
    let (_server, cache) = empty().await;
    cache.see(&Event::Apply(map("a", "u", 7)));
    cache.see(&Event::Delete(map("a", "u", 8)));
    cache.absorb(map("a", "u", 7));
    assert_eq!(known(&cache), None);
}

#[tokio::test]
async fn what_we_removed_stays_away_though_its_past_is_still_told() {
    let (_server, cache) = empty().await;
    cache.see(&Event::Apply(map("a", "u", 7)));
    cache.forget(&map("a", "u", 7));
    assert_eq!(known(&cache), None);
    cache.see(&Event::Apply(map("a", "u", 8)));
    assert_eq!(known(&cache), None);
    cache.see(&Event::Delete(map("a", "u", 9)));
    cache.see(&Event::Apply(map("a", "next", 10)));
    assert_eq!(known(&cache), Some(10));
}

#[tokio::test]
async fn writes_are_seen_at_once_and_only_what_was_read_is_changed() {
    let (_server, cache) = empty().await;
    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": SPACE}})).unwrap();
    let made = cache.create(&object).await.unwrap();
    assert_eq!(known(&cache), Some(version(&*made)));
    let changed = cache.patch(&made, json!({"data": {"k": "v"}})).await.unwrap();
    assert_eq!(known(&cache), Some(version(&*changed)));
    let refused = cache.patch(&made, json!({"data": {"k": "w"}})).await.unwrap_err();
    assert!(refused.is_out_of_date(), "{refused}");
    assert_eq!(refused.to_string(), "could not update ConfigMap default/a; trying again");
    let mut other = (*changed).clone();
    other.metadata.uid = Some("another".into());
    assert_eq!(cache.delete(&other, None).await.unwrap_err().code(), Some(409));
    cache.delete(&changed, None).await.unwrap();
    assert_eq!(known(&cache), None);
    cache.delete(&changed, None).await.unwrap();
}
