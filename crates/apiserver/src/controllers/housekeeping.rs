//! What every server starts with, and what it throws away.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::namespaces::insert;
use crate::object;
use crate::registry::{DeleteOptions, Registry};
use crate::status::ApiResult;

const EVENT_LIFE: Duration = Duration::from_hours(1);
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// The namespaces that Kubernetes always has, and the API's own service.
pub(crate) async fn bootstrap(registry: &Registry) -> ApiResult<()> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "labels": { "kubernetes.io/metadata.name": name } },
            "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
        });
        insert(registry, "namespaces", "", name, namespace).await?;
    }
    let everything = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "rules": [
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
            { "nonResourceURLs": ["*"], "verbs": ["*"] },
        ],
    });
    insert(registry, "clusterroles.rbac.authorization.k8s.io", "", "cluster-admin", everything).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "labels": { "component": "apiserver", "provider": "kubernetes" } },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443 }],
        },
        "status": { "loadBalancer": {} },
    });
    insert(registry, "services", "default", "kubernetes", service).await
}

/// Forgets events after an hour, so that the store does not grow with time alone.
pub(super) async fn run(registry: Arc<Registry>) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        let Some(kind) = registry.kinds.load().get("", "v1", "events").cloned() else {
            continue;
        };
        let old: Vec<(String, String)> = registry
            .store
            .view()
            .scan(&kind.storage, "", "")
            .map(|stored| stored.value())
            .filter(is_old)
            .map(|event| (object::namespace(&event).to_owned(), object::name(&event).to_owned()))
            .collect();
        for (namespace, name) in old {
            let gone =
                registry.mark_or_remove_quietly(&kind, &namespace, &name, &DeleteOptions::default()).await;
            if let Err(error) = gone.or_else(|error| if error.code == 404 { Ok(()) } else { Err(error) }) {
                tracing::warn!(%error, namespace, name, "an old event could not be removed");
            }
        }
    }
}

fn is_old(event: &Value) -> bool {
    let stamps = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let newest = stamps.iter().filter_map(|stamp| stamp.as_str()?.parse::<jiff::Timestamp>().ok()).max();
    newest.is_some_and(|when| jiff::Timestamp::now().duration_since(when).unsigned_abs() > EVENT_LIFE)
}
