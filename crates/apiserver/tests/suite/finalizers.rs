//! Deletion that waits.

use serde_json::json;

use crate::Space;

#[tokio::test]
async fn the_last_finalizer_lets_go() {
    let space = Space::new().await;
    let things = space.things().await;
    let mut body = things.body("a", json!({}));
    body["metadata"]["finalizers"] = json!(["a.test/one", "a.test/two"]);
    space.http.post(&things.path, &body).await.ok();

    let dying = space.http.delete(&things.at("a")).await.ok();
    assert!(dying["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(dying["metadata"]["generation"], 2);
    let more = json!({"metadata": {"finalizers": ["a.test/one", "a.test/two", "a.test/three"]}});
    space.http.patch("merge", &things.at("a"), &more).await.refused(422, "Invalid");

    let fewer = json!({"metadata": {"finalizers": ["a.test/two"]}});
    space.http.patch("merge", &things.at("a"), &fewer).await.ok();
    let last =
        space.http.patch("merge", &things.at("a"), &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(last["kind"], "Thing");
    space.http.get(&things.at("a")).await.refused(404, "NotFound");
}
