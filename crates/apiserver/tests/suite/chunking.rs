//! Lists in pages are pages of one list.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::Space;

#[tokio::test]
async fn pages_show_one_moment() {
    let space = Space::new().await;
    let secrets: Api<Secret> = Api::namespaced(space.client.clone(), &space.name);
    let create = async |name: &str| {
        let secret = json!({"metadata": {"name": name}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    };
    for number in 0..10 {
        create(&format!("s{number}")).await;
    }
    let mut params = ListParams::default().limit(3);
    let mut seen = Vec::new();
    let mut versions = Vec::new();
    loop {
        let page = secrets.list(&params).await.unwrap();
        seen.extend(page.items.into_iter().filter_map(|secret| secret.metadata.name));
        versions.extend(page.metadata.resource_version);
        let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
            break;
        };
        assert_eq!(page.metadata.remaining_item_count, Some(10 - i64::try_from(seen.len()).unwrap()));
        params = params.continue_token(&token);
        // Neither of these is part of the list that was begun.
        create(&format!("s9-{}", seen.len())).await;
        secrets.delete("s8", &kube::api::DeleteParams::default()).await.ok();
    }
    assert_eq!(seen, (0..10).map(|number| format!("s{number}")).collect::<Vec<_>>());
    versions.dedup();
    assert_eq!(versions.len(), 1, "all pages have the version of the first");
}
