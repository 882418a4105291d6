//! The life of a namespace.

use serde_json::json;
use testkit::eventually;

use crate::Space;

#[tokio::test]
async fn a_namespace_is_born_with_an_account_and_a_root_certificate() {
    let space = Space::new().await;
    for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let path = space.core(path);
        eventually(&path, async || space.http.get(&path).await.status.is_success().then_some(())).await;
    }
    let certificate = space.http.get(&space.core("configmaps/kube-root-ca.crt")).await.ok();
    assert!(certificate["data"]["ca.crt"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
}

#[tokio::test]
async fn a_namespace_takes_everything_with_it() {
    let space = Space::new().await;
    let things = space.things().await;
    let mut body = things.body("slow", json!({}));
    body["metadata"]["finalizers"] = json!(["a.test/f"]);
    space.http.post(&things.path, &body).await.ok();
    space.config_map("quick", &json!({})).await;

    let path = format!("/api/v1/namespaces/{}", space.name);
    let dying = space.http.delete(&path).await.ok();
    assert_eq!(dying["status"]["phase"], "Terminating");
    eventually("the quick one to go", async || {
        (space.http.get(&space.core("configmaps/quick")).await.status == 404).then_some(())
    })
    .await;
    let late = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    let refusal = space.http.post(&space.core("configmaps"), &late).await.refused(403, "Forbidden");
    assert_eq!(refusal["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(space.http.get(&path).await.ok()["status"]["phase"], "Terminating");

    space.http.patch("merge", &things.at("slow"), &json!({"metadata": {"finalizers": null}})).await.ok();
    eventually("the end of the namespace", async || {
        (space.http.get(&path).await.status == 404).then_some(())
    })
    .await;
}
