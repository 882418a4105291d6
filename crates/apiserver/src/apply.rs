//! Server-side apply: who owns which field, and what happens when two want the same.
//!
//! Owns the two ways in which a write changes ownership, [`apply`] and [`record_update`], and with them
//! `metadata.managedFields`. Pure: values and a schema in, a value out; nothing here reads the store or the clock, or
//! prunes, defaults or validates an object. The real server's behaviour is the contract, down to the bytes of
//! `fieldsV1` and the texts of conflicts; `fixtures` holds what it answered.
//!
//! Invariant: a write that changes no field leaves the entries of `managedFields` as they were, times included, so that
//! a caller can tell it from one that does by comparing objects.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::object;
use crate::schema::Schema;
use crate::status::{ApiError, ApiResult};

mod check;
mod fields_v1;
mod merge;
mod owners;
mod set;
mod shape;
mod walk;

#[cfg(test)]
mod tests;

use owners::Owner;
use set::{FieldSet, same};
use shape::Shape;
use walk::Changes;

/// Who writes, and how.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// The apiVersion of the request.
    pub api_version: &'a str,
    /// `status`, `scale`, or empty for the main endpoint.
    pub subresource: &'a str,
    /// `metadata.managedFields[].time` of what this write changes.
    pub now: &'a str,
    /// Dotted paths that this endpoint does not write whatever the request says, and so gives to nobody: see [`resets`].
    pub resets: &'a [&'a str],
    /// The object is a custom resource's. Built-in kinds are structs on the real server, which shows: a new one is
    /// compared with an empty struct, and only theirs can be told from none when a client sends no entries.
    pub custom: bool,
}

/// The [`Writer::resets`] of an endpoint: with a status subresource the main endpoint leaves `status` alone, and
/// `/status` all the rest.
pub fn resets(has_status: bool, subresource: &str) -> &'static [&'static str] {
    match (has_status, subresource) {
        (true, "") => &["status"],
        (true, "status") => &["metadata", "spec"],
        _ => &[],
    }
}

impl Writer<'_> {
    fn owner(&self, manager: &str, applied: bool, fields: FieldSet) -> Owner {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Owner {
            manager: manager.to_owned(),
            applied,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields,
        }
    }

    fn ignored(&self) -> FieldSet {
        let mut set = FieldSet::default();
        for path in self.resets {
            set.union(FieldSet::of_path(path));
        }
        set
    }
}

/// Fields that the server itself keeps: nobody owns them.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut set = FieldSet::default();
    for path in [
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ] {
        set.union(FieldSet::of_path(path));
    }
    set
});

/// Who owned the object's fields before there was any record of it.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Applies `config` onto `live` (none: creates) and returns the new object with its `managedFields`.
/// Conflicts with other managers are an error unless `force`.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> ApiResult<Value> {
    let shape = Shape::object(schema);
    check::config(shape, config, writer.api_version)?;
    let mut owners = match live {
        Some(live) => owners::decode(&live["metadata"]["managedFields"])
            .map_err(|e| check::failure(format!("failed to decode managed fields: {e}")))?,
        None => Vec::new(),
    };
    if let Some(live) = live.filter(|_| owners.is_empty()) {
        let mut changes = walk::compare(shape, before(schema, writer).as_ref(), Some(live));
        changes.ignore(&writer.ignored());
        take(shape, &changes, writer, BEFORE_FIRST_APPLY, &mut owners);
    }
    let applied = match lay(shape, live, config, writer, &owners, force) {
        // kubectl's client-side apply kept its own record of what it owns.
        Err(conflicts) if writer.manager == "kubectl" => {
            let allowed = live.map(|live| last_applied_fields(shape, live, writer)).unwrap_or_default();
            let left: Vec<Conflict> = conflicts.into_iter().filter_map(|c| c.without(&allowed)).collect();
            if left.is_empty() { lay(shape, live, config, writer, &owners, true) } else { Err(left) }
        }
        result => result,
    };
    let (mut object, mut owners) = applied.map_err(conflict_error)?;
    merge::drop_nulls(shape, &mut object, !writer.custom);
    if writer.manager == "kubectl" {
        refresh_last_applied(&mut object, config);
    }
    put(&mut object, owners::encode(&mut owners));
    Ok(object)
}

/// What an object is compared with that nobody has written yet.
fn before(schema: &Schema, writer: &Writer<'_>) -> Option<Value> {
    (!writer.custom).then(|| shape::empty_object(schema))
}

/// Fields that an owner would lose.
struct Conflict {
    owner: Owner,
    fields: FieldSet,
}

impl Conflict {
    fn without(mut self, allowed: &FieldSet) -> Option<Self> {
        self.fields.subtract(allowed);
        (!self.fields.is_empty()).then_some(self)
    }
}

fn conflict_error(mut conflicts: Vec<Conflict>) -> ApiError {
    conflicts.sort_by(|a, b| a.owner.order(&b.owner));
    let texts: Vec<(String, String)> = conflicts
        .iter()
        .flat_map(|c| c.fields.paths().into_iter().map(|path| (c.owner.describe(), path)))
        .collect();
    ApiError::apply_conflict(&texts)
}

/// Lays `config` over `live`, and says who owns what afterwards.
fn lay(
    shape: Shape<'_>,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    owners: &[Owner],
    force: bool,
) -> Result<(Value, Vec<Owner>), Vec<Conflict>> {
    let ignored = writer.ignored();
    let mut fields = walk::field_set(shape, config);
    fields.subtract_trees(&ignored);
    let mut own = writer.owner(writer.manager, true, fields);
    let mut others = owners.to_vec();
    for owner in &mut others {
        merge::fit_to_schema(shape, &mut owner.fields);
    }
    let last = others.extract_if(.., |owner| owner.is_same(&own)).next();

    let mut object = live.map_or_else(|| config.clone(), |live| merge::merge(shape, live, config));
    if let Some(last) = last.as_ref().filter(|last| !last.fields.is_subset(&own.fields)) {
        let mut owned = own.fields.clone();
        for other in &others {
            owned.union(other.fields.clone());
        }
        object = merge::prune(shape, object, &last.fields, &owned);
    }

    let mut changes = walk::compare(shape, live, Some(&object));
    changes.ignore(&ignored);
    let lost = release(&gained(&changes), &changes.removed, &mut others);
    if !force && !lost.is_empty() {
        let conflict = |(place, fields): (usize, FieldSet)| Conflict { owner: others[place].clone(), fields };
        return Err(lost.into_iter().map(conflict).collect());
    }
    match live.filter(|live| same(live, &object)) {
        Some(live) => {
            object = live.clone();
            own.time = last.and_then(|last| last.time);
        }
        None => own.time = Some(writer.now.to_owned()),
    }
    own.fields.subtract(&NEVER_OWNED);
    others.push(own);
    others.retain(|owner| !owner.fields.is_empty());
    Ok((object, others))
}

/// What a write set to a new value.
fn gained(changes: &Changes) -> FieldSet {
    let mut gained = changes.added.clone();
    gained.union(changes.modified.clone());
    gained
}

/// Takes `gained` and `removed` from all owners. Returned is what an owner, by its place, lost to another's value; what
/// is no more is nobody's loss.
fn release(gained: &FieldSet, removed: &FieldSet, owners: &mut [Owner]) -> Vec<(usize, FieldSet)> {
    let mut lost = Vec::new();
    for (place, owner) in owners.iter_mut().enumerate() {
        let fields = owner.fields.intersection(gained);
        if !fields.is_empty() {
            owner.fields.subtract(&fields);
            lost.push((place, fields));
        }
        owner.fields.subtract(removed);
    }
    lost
}

/// Gives what changed to `manager`, as an update does.
fn take(shape: Shape<'_>, changes: &Changes, writer: &Writer<'_>, manager: &str, owners: &mut Vec<Owner>) {
    for owner in owners.iter_mut() {
        merge::fit_to_schema(shape, &mut owner.fields);
    }
    let mut gained = gained(changes);
    release(&gained, &changes.removed, owners);
    gained.subtract(&NEVER_OWNED);
    if !gained.is_empty() {
        let mut own = writer.owner(manager, false, gained);
        own.time = Some(writer.now.to_owned());
        let last = owners.extract_if(.., |owner| owner.is_same(&own)).next();
        own.fields.union(last.map(|last| last.fields).unwrap_or_default());
        owners.push(own);
    }
    owners.retain(|owner| !owner.fields.is_empty());
    owners::cap_updaters(owners);
}

/// Records in `new` that `writer` changed it from `live` by create, update or another patch.
/// The managedFields that the client sent are honoured as the real server does (an empty list resets them).
pub fn record_update(schema: &Schema, live: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let sent = object::metadata_mut(new).remove("managedFields").unwrap_or_default();
    let known = live.map_or(&Value::Null, |live| &live["metadata"]["managedFields"]);
    let shape = Shape::object(schema);
    let mut changes = match live {
        Some(_) => walk::compare(shape, live, Some(new)),
        None => walk::compare(shape, before(schema, writer).as_ref(), Some(new)),
    };
    changes.ignore(&writer.ignored());
    // Most writes that change nothing are told by this alone, without reading the entries.
    let unasked = sent.is_null() || sent == *known || !writer.subresource.is_empty();
    if unasked && !known.is_null() && changes.touch_nothing_but(&NEVER_OWNED) {
        return put(new, known.clone());
    }
    let mut owners = starting_owners(known, &sent, writer);
    // An object without owners, once it exists, stays so until it is first applied.
    if owners.is_empty() && live.is_some_and(|live| !object::uid(live).is_empty()) {
        return;
    }
    take(shape, &changes, writer, writer.manager, &mut owners);
    put(new, owners::encode(&mut owners));
    if let Some(live) = live {
        keep_times(live, new);
    }
}

/// The entries that an update starts from: the client's, or live's when it sent none that can be read.
fn starting_owners(known: &Value, sent: &Value, writer: &Writer<'_>) -> Vec<Owner> {
    if writer.subresource.is_empty() {
        if owners::is_reset(sent, writer.custom) {
            return Vec::new();
        }
        if let Ok(owners) = owners::decode(sent)
            && !owners.is_empty()
        {
            return owners;
        }
    }
    owners::decode(known).unwrap_or_default()
}

/// Gives `new` the managedFields of `live` when the two objects differ in the entries' times at most, so that such a
/// write is none. [`record_update`] ends with it; a caller that changes the object further calls it again before it
/// compares.
pub fn keep_times(live: &Value, new: &mut Value) {
    let known = &live["metadata"]["managedFields"];
    let current = &new["metadata"]["managedFields"];
    if known == current || !owners::same_but_times(known, current) {
        return;
    }
    let current = object::metadata_mut(new).insert("managedFields".to_owned(), known.clone());
    if live != new {
        put(new, current.unwrap_or_default());
    }
}

fn put(object: &mut Value, entries: Value) {
    if entries.as_array().is_none_or(Vec::is_empty) {
        object::remove_meta(object, "managedFields");
    } else {
        object::set_meta(object, "managedFields", entries);
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The size of all annotations together, names and values.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// What client-side apply says it owns, as far as live still has the values that it applied.
fn last_applied_fields(shape: Shape<'_>, live: &Value, writer: &Writer<'_>) -> FieldSet {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap_or_default();
    let Ok(applied) = serde_json::from_str::<Value>(text) else {
        return FieldSet::default();
    };
    if applied["apiVersion"] != writer.api_version {
        return FieldSet::default();
    }
    let mut fields = walk::field_set(shape, &applied);
    let changes = walk::compare(shape, Some(&applied), Some(live));
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        fields.subtract(changed);
    }
    fields
}

/// Keeps client-side apply's record, where there is one, in step with what kubectl applies by the server.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    let Some(annotations) = annotations_mut(object) else {
        return;
    };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(LAST_APPLIED);
    }
    let text = fields_v1::escape_html(config.to_string()) + "\n";
    annotations.insert(LAST_APPLIED.to_owned(), json!(text));
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

fn annotations_mut(object: &mut Value) -> Option<&mut object::JsonMap> {
    object.pointer_mut("/metadata/annotations")?.as_object_mut()
}

/// Runs everything on arbitrary input, for fuzzing: it must return.
pub fn fuzz(schema: &Schema, live: &Value, config: &Value, force: bool) {
    let writer = Writer {
        manager: "kubectl",
        api_version: "example.dev/v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        resets: resets(true, ""),
        custom: force,
    };
    let _ = apply(schema, Some(live), config, &writer, force);
    let mut new = config.clone();
    record_update(schema, Some(live), &mut new, &writer);
    record_update(schema, None, &mut new, &writer);
    let _ = apply(schema, Some(&new), live, &writer, force);
}
