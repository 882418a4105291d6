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
    let definitions: Vec<Value> =
        registry.store.view().scan(crd::PLACE, "", "").map(|stored| stored.value()).collect();
    for definition in definitions.iter().filter(|definition| crd::is_established(definition)) {
        serve(registry, definition);
    }
}

pub(super) async fn run(registry: Arc<Registry>) {
    let mut news = registry.store.feed(&crd::PLACE.into()).subscribe();
    loop {
        let settled = reconcile(&registry).await;
        // Objects of a definition that goes may be held by finalizers: look again before long.
        let next = if settled { None } else { Some(RETRY) };
        let changed = match next {
            Some(delay) => tokio::time::timeout(delay, news.changed()).await.unwrap_or(Ok(())),
            None => news.changed().await,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Looks at every definition; one that cannot be settled does not keep the others. Returns whether all are.
async fn reconcile(registry: &Arc<Registry>) -> bool {
    let Some(kind) =
        registry.kinds.load().get("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
    else {
        return true;
    };
    let definitions: Vec<Value> =
        registry.store.view().scan(crd::PLACE, "", "").map(|stored| stored.value()).collect();
    drop_removed(registry, &definitions);
    let mut settled = true;
    for definition in &definitions {
        let result = if object::is_being_deleted(definition) {
            finalize(registry, &kind, definition).await
        } else {
            establish(registry, &kind, definition, &definitions).await.map(|()| true)
        };
        settled &= result.unwrap_or_else(|error| {
            tracing::warn!(definition = object::name(definition), %error, "a definition could not be settled; trying again");
            false
        });
    }
    settled
}

async fn establish(registry: &Registry, kind: &Kind, definition: &Value, all: &[Value]) -> ApiResult<()> {
    let mut settled = definition.clone();
    let now = object::now();
    if crd::accept(&mut settled, all, &now) {
        // Served first, promised second: whoever waits for the promise may use it at once.
        serve(registry, &settled);
        crd::establish(&mut settled, &now);
    }
    if settled["status"] == definition["status"] {
        return Ok(());
    }
    let edit = |current: &mut Value| {
        object::as_map_mut(current).insert("status".into(), settled["status"].clone());
        true
    };
    registry.edit(kind, "", object::name(definition), &edit).await
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
    let served: Vec<String> =
        table.all().filter_map(|kind| kind.custom.as_ref().map(|custom| custom.definition.clone())).collect();
    let mut changed = false;
    for name in served {
        if !definitions.iter().any(|definition| object::name(definition) == name) {
            table.remove_definition(&name);
            changed = true;
        }
    }
    if changed {
        registry.kinds.replace(table);
    }
}

/// Says that a definition goes, and from then on lets nobody create its objects: deleting them comes to an end.
async fn announce_end(registry: &Registry, kind: &Kind, definition: &Value) -> ApiResult<()> {
    let mut ending = definition.clone();
    crd::terminate(&mut ending, &object::now());
    if ending["status"] == definition["status"] {
        return Ok(());
    }
    if crd::is_established(&ending) {
        serve(registry, &ending);
    }
    let edit = |current: &mut Value| {
        object::as_map_mut(current).insert("status".into(), ending["status"].clone());
        true
    };
    registry.edit(kind, "", object::name(definition), &edit).await
}

/// Deletes every object of a definition that goes, then lets go of the definition. Returns whether that is done.
async fn finalize(registry: &Arc<Registry>, kind: &Kind, definition: &Value) -> ApiResult<bool> {
    if !object::finalizers(definition).contains(&crd::CLEANUP_FINALIZER) {
        return Ok(true);
    }
    announce_end(registry, kind, definition).await?;
    let place = crd::place(definition);
    let rows = crd::kinds(definition).unwrap_or_default();
    if let Some(row) = rows.first() {
        let keys: Vec<String> =
            registry.store.view().scan(&place, "", "").map(|stored| stored.key.to_string()).collect();
        for key in keys {
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            match registry.mark_or_remove_quietly(row, namespace, name, &DeleteOptions::default()).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
    }
    if registry.store.view().count(&place) > 0 {
        return Ok(false);
    }
    let edit = |current: &mut Value| object::drop_finalizer(current, crd::CLEANUP_FINALIZER);
    registry.edit(kind, "", object::name(definition), &edit).await?;
    Ok(true)
}
