//! Namespaces: a new one gets what every namespace has; one that is deleted empties itself, then goes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::RETRY;
use crate::kinds::Kind;
use crate::object;
use crate::registry::{DeleteOptions, Registry, key};
use crate::status::{ApiError, ApiResult};
use crate::store::{Desired, Expect, Write, WriteError};

pub(super) async fn run(registry: Arc<Registry>) {
    let mut changes = registry.store.changes();
    loop {
        match reconcile(&registry).await {
            Ok(true) => {}
            // Something still holds a namespace's content: look again when anything changed.
            Ok(false) => tokio::time::sleep(RETRY).await,
            Err(error) => {
                tracing::warn!(%error, "a namespace could not be settled; trying again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Returns whether every namespace is as it should be.
async fn reconcile(registry: &Arc<Registry>) -> ApiResult<bool> {
    let view = registry.store.view();
    let mut settled = true;
    for stored in view.scan("namespaces", "", "") {
        let name = stored.key.as_ref();
        let needs = |place: &str, content: &str| view.get(place, &key(name, content)).is_none();
        let wanting = needs("serviceaccounts", "default") || needs("configmaps", "kube-root-ca.crt");
        // Most namespaces are complete and stay: only those that are not are worth parsing.
        let is_marked = stored.mentions("\"deletionTimestamp\"");
        if !wanting && !is_marked {
            continue;
        }
        let namespace = stored.value();
        if object::is_being_deleted(&namespace) {
            settled &= empty(registry, name).await?;
        } else if wanting {
            furnish(registry, name).await?;
        }
    }
    Ok(settled)
}

/// What every namespace has: a default service account, and the certificate of this server.
async fn furnish(registry: &Registry, namespace: &str) -> ApiResult<()> {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount" });
    insert(registry, "serviceaccounts", namespace, "default", account).await?;
    let authority = registry.certificate_authority();
    let bundle = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "ca.crt": authority } });
    insert(registry, "configmaps", namespace, "kube-root-ca.crt", bundle).await
}

pub(super) async fn insert(
    registry: &Registry,
    place: &str,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> ApiResult<()> {
    let meta = object::metadata_mut(&mut object);
    meta.insert("name".into(), name.into());
    if !namespace.is_empty() {
        meta.insert("namespace".into(), namespace.into());
    }
    meta.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".into(), object::now().into());
    let write = Write {
        place: place.into(),
        key: key(namespace, name),
        expect: Expect::Absent,
        change: Desired::Put(object),
    };
    match registry.store.commit(write).await {
        Ok(_) | Err(WriteError::Changed { .. }) => Ok(()),
        Err(error @ WriteError::Failed(_)) => Err(ApiError::internal(error)),
    }
}

/// Deletes what is in a namespace. Returns whether it is gone.
async fn empty(registry: &Arc<Registry>, namespace: &str) -> ApiResult<bool> {
    let table = registry.kinds.load();
    let prefix = format!("{namespace}/");
    let mut left = 0;
    let mut places = std::collections::HashSet::new();
    let namespaced = table.all().filter(|kind| kind.namespaced && is_storage_version(kind));
    for kind in namespaced.filter(|kind| places.insert(kind.storage.clone())) {
        let names: Vec<String> = registry
            .store
            .view()
            .scan(&kind.storage, &prefix, "")
            .map(|stored| stored.key[prefix.len()..].to_owned())
            .collect();
        for name in names {
            match registry.mark_or_remove_quietly(kind, namespace, &name, &DeleteOptions::default()).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        left += registry.store.view().scan(&kind.storage, &prefix, "").count();
    }
    if left > 0 {
        return Ok(false);
    }
    let Some(kind) = table.get("", "v1", "namespaces") else {
        return Ok(false);
    };
    let edit = |current: &mut Value| {
        let left: Vec<String> = object::strings(&current["spec"]["finalizers"])
            .into_iter()
            .filter(|name| *name != "kubernetes")
            .map(str::to_owned)
            .collect();
        object::set_path(current, "spec.finalizers", json!(left));
        true
    };
    registry.edit(kind, "", namespace, &edit).await?;
    Ok(true)
}

fn is_storage_version(kind: &Kind) -> bool {
    kind.api_version() == kind.storage_api_version
}
