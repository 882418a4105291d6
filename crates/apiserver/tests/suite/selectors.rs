//! Label and field selectors in lists by kube-rs.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::Space;

#[tokio::test]
async fn labels_and_fields_pick() {
    let space = Space::new().await;
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), &space.name);
    for (name, tier, kind) in [("a", "front", "a.test/x"), ("b", "back", "a.test/x"), ("c", "back", "Opaque")]
    {
        let secret = json!({"metadata": {"name": name, "labels": {"tier": tier}}, "type": kind});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let names = async |params: ListParams| -> String {
        let list = secrets.list(&params).await.unwrap();
        list.items.into_iter().filter_map(|secret| secret.metadata.name).collect()
    };
    assert_eq!(names(ListParams::default()).await, "abc");
    assert_eq!(names(ListParams::default().labels("tier in (back, side)")).await, "bc");
    assert_eq!(names(ListParams::default().labels("tier notin (back)")).await, "a");
    assert_eq!(names(ListParams::default().labels("!tier")).await, "");
    assert_eq!(names(ListParams::default().fields("type=a.test/x")).await, "ab");
    assert_eq!(names(ListParams::default().fields("type=a.test/x").labels("tier=back")).await, "b");
    assert_eq!(names(ListParams::default().fields("metadata.name!=b")).await, "ac");
    assert!(secrets.list(&ListParams::default().fields("data.k=v")).await.is_err());
}
