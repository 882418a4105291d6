//! Owner references: dependents go after their owners, before them (foreground), or stay (orphan).
//!
//! The index says who names which owner; whether an owner is there is always asked of the newest view, so that a
//! dependent is never removed because the index was late.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::RETRY;
use crate::kinds::{Kind, KindTable};
use crate::object;
use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Registry, key};
use crate::status::ApiResult;
use crate::store::{Change, Key, Place, Stored, View};

type Address = (Place, Key);

#[derive(Default)]
struct Index {
    /// The revision up to which the index is true.
    revision: u64,
    owners: HashMap<Address, Vec<String>>,
    dependents: HashMap<String, HashSet<Address>>,
    /// Objects that a finalizer of ours holds until their dependents are dealt with.
    held: HashSet<Address>,
}

pub(super) async fn run(registry: Arc<Registry>) {
    let mut changes = registry.store.changes();
    let mut index = Index::default();
    loop {
        let view = registry.store.view();
        let touched = index.catch_up(&registry, &view);
        if let Err(error) = collect(&registry, &index, &touched).await {
            tracing::warn!(%error, "an object could not be collected; trying again");
            index = Index::default();
            tokio::time::sleep(RETRY).await;
            continue;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Index {
    /// Brings the index up to a view. Returns objects with owners that appeared, changed, or lost an owner.
    fn catch_up(&mut self, registry: &Registry, view: &View) -> HashSet<Address> {
        let mut touched = HashSet::new();
        let since = self.revision;
        let places: Vec<Place> = view.places().cloned().collect();
        for place in places {
            let feed = registry.store.feed(&place);
            match feed.after(since, view.revision, usize::MAX) {
                Ok(events) if since > 0 => {
                    for event in events {
                        let address = (place.clone(), event.object.key.clone());
                        let current = view.get(&place, &event.object.key);
                        self.see(&address, current, &mut touched);
                        if event.change == Change::Deleted {
                            let uid = object::uid(&event.object.value()).to_owned();
                            touched.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
                        }
                    }
                }
                // At the start, and when the history is shorter than our absence, all of it is looked at.
                _ => {
                    for stored in view.scan(&place, "", "") {
                        self.see(&(place.clone(), stored.key.clone()), Some(stored), &mut touched);
                    }
                }
            }
        }
        self.revision = view.revision;
        touched
    }

    fn see(&mut self, address: &Address, current: Option<&Arc<Stored>>, touched: &mut HashSet<Address>) {
        for uid in self.owners.remove(address).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(address);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
        self.held.remove(address);
        let Some(stored) = current else { return };
        if stored.mentions(FOREGROUND) || stored.mentions("\"orphan\"") {
            self.held.insert(address.clone());
        }
        if !stored.mentions("\"ownerReferences\"") {
            return;
        }
        let uids: Vec<String> =
            owner_references(&stored.value()).into_iter().map(|owner| owner.uid).collect();
        for uid in &uids {
            self.dependents.entry(uid.clone()).or_default().insert(address.clone());
        }
        self.owners.insert(address.clone(), uids);
        touched.insert(address.clone());
    }
}

struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    blocks: bool,
}

fn owner_references(value: &Value) -> Vec<Owner> {
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let references = value["metadata"]["ownerReferences"].as_array();
    references
        .into_iter()
        .flatten()
        .map(|owner| Owner {
            api_version: text(owner, "apiVersion"),
            kind: text(owner, "kind"),
            name: text(owner, "name"),
            uid: text(owner, "uid"),
            blocks: owner["blockOwnerDeletion"].as_bool().unwrap_or_default(),
        })
        .collect()
}

async fn collect(registry: &Arc<Registry>, index: &Index, touched: &HashSet<Address>) -> ApiResult<()> {
    let table = registry.kinds.load();
    for address in touched {
        settle_dependent(registry, &table, address).await?;
    }
    for address in &index.held {
        settle_owner(registry, &table, index, address).await?;
    }
    Ok(())
}

/// The row under which objects of a place are written.
fn storage_kind<'a>(table: &'a KindTable, place: &Place) -> Option<&'a Arc<Kind>> {
    table.all().find(|kind| kind.storage == *place && kind.api_version() == kind.storage_api_version)
}

/// An object as it is now, and the row under which it is written.
fn current<'t>(
    registry: &Registry,
    table: &'t KindTable,
    (place, item): &Address,
) -> Option<(&'t Arc<Kind>, Value)> {
    let stored = registry.store.view().get(place, item)?.value();
    Some((storage_kind(table, place)?, stored))
}

enum Standing {
    There {
        waiting: bool,
    },
    Gone,
    /// Of a kind that is not served: nobody can tell.
    Unknown,
}

fn standing(registry: &Registry, table: &KindTable, namespace: &str, owner: &Owner) -> Standing {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let Some(kind) = table.resources(group, version).find(|kind| kind.kind == owner.kind) else {
        return Standing::Unknown;
    };
    let namespace = if kind.namespaced { namespace } else { "" };
    let view = registry.store.view();
    match view.get(&kind.storage, &key(namespace, &owner.name)).map(|stored| stored.value()) {
        Some(found) if object::uid(&found) == owner.uid => Standing::There {
            waiting: object::is_being_deleted(&found) && object::finalizers(&found).contains(&FOREGROUND),
        },
        _ => Standing::Gone,
    }
}

/// Deletes a dependent whose owners are all gone; forgets single owners that are.
async fn settle_dependent(registry: &Arc<Registry>, table: &KindTable, address: &Address) -> ApiResult<()> {
    let Some((kind, value)) = current(registry, table, address) else {
        return Ok(());
    };
    let (namespace, name) = (object::namespace(&value), object::name(&value));
    let owners = owner_references(&value);
    let (mut gone, mut remaining, mut waiting) = (Vec::new(), 0, 0);
    for owner in &owners {
        match standing(registry, table, namespace, owner) {
            Standing::Gone => gone.push(owner.uid.clone()),
            Standing::There { waiting: true } => waiting += 1,
            Standing::There { waiting: false } | Standing::Unknown => remaining += 1,
        }
    }
    if owners.is_empty() || (gone.is_empty() && waiting == 0) {
        return Ok(());
    }
    if remaining > 0 {
        let edit = |current: &mut Value| drop_owners(current, &gone);
        return registry.edit(kind, namespace, name, &edit).await;
    }
    if object::is_being_deleted(&value) {
        return Ok(());
    }
    let options = DeleteOptions {
        uid: Some(object::uid(&value).to_owned()),
        propagation: if waiting > 0 { "Foreground" } else { "Background" }.to_owned(),
        ..DeleteOptions::default()
    };
    // A dependent that is orphaning its own keeps doing so.
    let options = if object::finalizers(&value).contains(&ORPHAN) {
        DeleteOptions { propagation: String::new(), ..options }
    } else {
        options
    };
    match registry.mark_or_remove_quietly(kind, namespace, name, &options).await {
        // Gone already, or replaced by another of its name.
        Err(error) if matches!(error.code, 404 | 409) => Ok(()),
        other => other,
    }
}

/// An owner that waits for its dependents, or lets them go, is released when that is done.
async fn settle_owner(
    registry: &Arc<Registry>,
    table: &KindTable,
    index: &Index,
    address: &Address,
) -> ApiResult<()> {
    let Some((kind, value)) = current(registry, table, address) else {
        return Ok(());
    };
    if !object::is_being_deleted(&value) {
        return Ok(());
    }
    let uid = object::uid(&value).to_owned();
    let (namespace, name) = (object::namespace(&value), object::name(&value));
    let dependents: Vec<Address> = index.dependents.get(&uid).into_iter().flatten().cloned().collect();
    let finalizers = object::finalizers(&value);
    if finalizers.contains(&ORPHAN) {
        for address in &dependents {
            forget_owner(registry, table, address, &uid).await?;
        }
        return release(registry, kind, namespace, name, ORPHAN).await;
    }
    if finalizers.contains(&FOREGROUND) {
        let view = registry.store.view();
        let mut blocked = false;
        for address in &dependents {
            settle_dependent(registry, table, address).await?;
            let Some(dependent) = view.get(&address.0, &address.1) else {
                continue;
            };
            let still_there = registry.store.view().get(&address.0, &address.1).is_some();
            blocked |= still_there
                && owner_references(&dependent.value()).iter().any(|owner| owner.uid == uid && owner.blocks);
        }
        if !blocked {
            return release(registry, kind, namespace, name, FOREGROUND).await;
        }
    }
    Ok(())
}

async fn forget_owner(
    registry: &Registry,
    table: &KindTable,
    (place, item): &Address,
    uid: &str,
) -> ApiResult<()> {
    let Some(kind) = storage_kind(table, place) else {
        return Ok(());
    };
    let (namespace, name) = item.split_once('/').unwrap_or(("", item));
    registry.edit(kind, namespace, name, &|current| drop_owners(current, &[uid.to_owned()])).await
}

fn drop_owners(current: &mut Value, uids: &[String]) -> bool {
    let Some(references) = current["metadata"]["ownerReferences"].as_array() else {
        return false;
    };
    let left: Vec<Value> = references
        .iter()
        .filter(|owner| !uids.iter().any(|uid| owner["uid"] == uid.as_str()))
        .cloned()
        .collect();
    if left.is_empty() {
        object::remove_meta(current, "ownerReferences");
    } else {
        object::set_meta(current, "ownerReferences", json!(left));
    }
    true
}

async fn release(
    registry: &Registry,
    kind: &Kind,
    namespace: &str,
    name: &str,
    finalizer: &str,
) -> ApiResult<()> {
    let edit = |current: &mut Value| object::drop_finalizer(current, finalizer);
    registry.edit(kind, namespace, name, &edit).await
}
