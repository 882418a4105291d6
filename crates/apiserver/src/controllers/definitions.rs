//! CustomResourceDefinitions: accepted names, served kinds, and the end of both.

use std::sync::Arc;

use serde_json::Value;

use super::RETRY;
use crate::crd;
use crate::kinds::Kind;
use crate::object;
use crate::registry::{DeleteOptions, Registry};
use crate::status::ApiResult;

/// Serves every definition that was established before a restart. Called before the first request.
pub(crate) fn restore(registry: &Registry) {
    let definitions: Vec<Value> = registry
        .store
        .view()
        .scan(crd::PLACE, "", "")
        .map(|stored| stored.value())
        .collect();
    for definition in definitions
        .iter()
        .filter(|definition| crd::is_established(definition))
    {
        serve(registry, definition);
    }
}

pub(super) async fn run(registry: Arc<Registry>) {
    let mut news = registry.store.feed(&crd::PLACE.into()).subscribe();
    loop {
        if let Err(error) = reconcile(&registry).await {
            tracing::warn!(%error, "a custom resource definition could not be settled; trying again");
            tokio::time::sleep(RETRY).await;
            continue;
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

async fn reconcile(registry: &Arc<Registry>) -> ApiResult<()> {
    let Some(kind) = registry
        .kinds
        .load()
        .get("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .cloned()
    else {
        return Ok(());
    };
    let definitions: Vec<Value> = registry
        .store
        .view()
        .scan(crd::PLACE, "", "")
        .map(|stored| stored.value())
        .collect();
    drop_removed(registry, &definitions);
    for definition in &definitions {
        let name = object::name(definition);
        if object::is_being_deleted(definition) {
            finalize(registry, &kind, definition).await?;
            continue;
        }
        let mut settled = definition.clone();
        let now = object::now();
        if crd::accept(&mut settled, &definitions, &now) {
            // Served first, promised second: whoever waits for the promise may use it at once.
            serve(registry, &settled);
            crd::establish(&mut settled, &now);
        }
        if settled["status"] != definition["status"] {
            let edit = |current: &mut Value| {
                object::as_map_mut(current).insert("status".into(), settled["status"].clone());
                true
            };
            registry.edit(&kind, "", name, &edit).await?;
        }
    }
    Ok(())
}

/// Puts a definition's kinds into the table, in place of what it served before.
fn serve(registry: &Registry, definition: &Value) {
    match crd::kinds(definition) {
        Ok(kinds) => {
            let mut table = (*registry.kinds.load()).clone();
            table.remove_definition(object::name(definition));
            for kind in kinds {
                table.insert(kind);
            }
            registry.kinds.replace(table);
        }
        // Admission checked the same: this is an object of an older server.
        Err(errors) => tracing::error!(
            definition = object::name(definition),
            ?errors,
            "a stored definition cannot be served"
        ),
    }
}

fn drop_removed(registry: &Registry, definitions: &[Value]) {
    let mut table = (*registry.kinds.load()).clone();
    let served: Vec<String> = table
        .all()
        .filter_map(|kind| kind.custom.as_ref().map(|custom| custom.definition.clone()))
        .collect();
    let mut changed = false;
    for name in served {
        if !definitions
            .iter()
            .any(|definition| object::name(definition) == name)
        {
            table.remove_definition(&name);
            changed = true;
        }
    }
    if changed {
        registry.kinds.replace(table);
    }
}

/// Deletes every object of a definition that goes, then lets go of the definition.
async fn finalize(registry: &Arc<Registry>, kind: &Kind, definition: &Value) -> ApiResult<()> {
    if !object::finalizers(definition).contains(&crd::CLEANUP_FINALIZER) {
        return Ok(());
    }
    let place = crd::place(definition);
    let rows = crd::kinds(definition).unwrap_or_default();
    if let Some(row) = rows.first() {
        let keys: Vec<String> = registry
            .store
            .view()
            .scan(&place, "", "")
            .map(|stored| stored.key.to_string())
            .collect();
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            match registry
                .mark_or_remove_quietly(row, namespace, name, &DeleteOptions::default())
                .await
            {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
    }
    if registry.store.view().count(&place) > 0 {
        // Finalizers hold some of them; their last write wakes us through the feed of their own place.
        wait_for_change(registry, &place).await;
        return Box::pin(reconcile(registry)).await;
    }
    let edit = |current: &mut Value| {
        let left: Vec<String> = object::finalizers(current)
            .into_iter()
            .filter(|name| *name != crd::CLEANUP_FINALIZER)
            .map(str::to_owned)
            .collect();
        object::set_meta(current, "finalizers", serde_json::json!(left));
        true
    };
    registry.edit(kind, "", object::name(definition), &edit).await
}

async fn wait_for_change(registry: &Registry, place: &str) {
    let mut news = registry.store.feed(&place.into()).subscribe();
    // The bell may have rung between the count and the subscription: do not wait for ever.
    let _ = tokio::time::timeout(RETRY, news.changed()).await;
}
