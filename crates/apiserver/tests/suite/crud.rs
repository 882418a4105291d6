//! Create, read, update, delete: typed by kube-rs, and what only a raw request shows.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::{Space, version};

#[tokio::test]
async fn kube_rs_creates_reads_replaces_and_deletes() {
    let space = Space::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(space.client.clone(), &space.name);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).unwrap();
    let mut created = maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());

    created.data.as_mut().unwrap().insert("k".into(), "w".into());
    let replaced = maps.replace("a", &PostParams::default(), &created).await.unwrap();
    assert_ne!(replaced.metadata.resource_version, created.metadata.resource_version);
    let stale = maps.replace("a", &PostParams::default(), &created).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));

    assert!(maps.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn versions_grow_over_all_resources() {
    let space = Space::new().await;
    let things = space.things().await;
    let mut last = version(&space.config_map("a", &json!({})).await);
    for name in ["b", "c"] {
        let thing = space.http.post(&things.path, &things.body(name, json!({}))).await.ok();
        let map = space.config_map(name, &json!({})).await;
        assert!(last < version(&thing) && version(&thing) < version(&map));
        last = version(&map);
    }
    let list = space.http.get(&things.path).await.ok();
    assert!(version(&list) >= last, "a list is as new as the store: {list}");
}

#[tokio::test]
async fn a_write_without_a_change_is_not_a_write() {
    let space = Space::new().await;
    let things = space.things().await;
    let created = space.http.post(&things.path, &things.body("a", json!({"x": 1}))).await.ok();
    let again = space.http.put(&things.at("a"), &created).await.ok();
    assert_eq!(created, again);
    let patched = space.http.patch("merge", &things.at("a"), &json!({"spec": {"x": 1}})).await.ok();
    assert_eq!(created, patched);
}

#[tokio::test]
async fn generated_names_differ() {
    let space = Space::new().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}});
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let created = space.http.post(&space.core("configmaps"), &body).await.ok();
        names.insert(created["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 20);
    assert!(names.iter().all(|name| name.starts_with("gen-") && name.len() == 9));
}

#[tokio::test]
async fn deletecollection_takes_a_selector_and_an_empty_body() {
    let space = Space::new().await;
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), &space.name);
    for name in ["a", "b", "c"] {
        let secret = json!({"metadata": {"name": name, "labels": {"go": (name != "b").to_string()}}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let doomed = ListParams::default().labels("go=true");
    secrets.delete_collection(&DeleteParams::default(), &doomed).await.unwrap();
    let left = secrets.list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left.items.iter().filter_map(|secret| secret.metadata.name.as_deref()).collect();
    assert_eq!(left, ["b"]);
}

#[tokio::test]
async fn writers_race_and_none_is_lost() {
    let space = Space::new().await;
    space.config_map("counter", &json!({"n": "0"})).await;
    let path = space.core("configmaps/counter");
    let increment = async || loop {
        let mut map = space.http.get(&path).await.ok();
        let count: u32 = map["data"]["n"].as_str().unwrap().parse().unwrap();
        map["data"]["n"] = (count + 1).to_string().into();
        match space.http.put(&path, &map).await.status.as_u16() {
            200 => return,
            409 => {}
            other => panic!("neither done nor a conflict: {other}"),
        }
    };
    futures::future::join_all((0..8).map(|_| increment())).await;
    assert_eq!(space.http.get(&path).await.ok()["data"]["n"], "8");
}
