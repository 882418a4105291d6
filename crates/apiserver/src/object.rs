//! Reading and writing the parts that every object has: `apiVersion`, `kind` and `metadata`.
//!
//! An object is a JSON value; nothing here knows any kind.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub type JsonMap = Map<String, Value>;

/// A string inside `metadata`, empty when absent.
pub fn meta_str<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

/// The object's `metadata` as a map, made if it is not there. A non-object value becomes an object.
pub fn metadata_mut(object: &mut Value) -> &mut JsonMap {
    child_mut(as_map_mut(object), "metadata")
}

/// The value as a map; anything else is replaced by an empty one.
pub fn as_map_mut(value: &mut Value) -> &mut JsonMap {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The map under `key`, made if it is not there.
pub fn child_mut<'a>(map: &'a mut JsonMap, key: &str) -> &'a mut JsonMap {
    as_map_mut(map.entry(key).or_insert_with(|| json!({})))
}

pub fn set_meta(object: &mut Value, key: &str, value: Value) {
    metadata_mut(object).insert(key.to_owned(), value);
}

pub fn remove_meta(object: &mut Value, key: &str) {
    metadata_mut(object).remove(key);
}

/// The resourceVersion that a client sent, if any. Not a number: `Err` with the text.
pub fn resource_version(object: &Value) -> Result<Option<u64>, &str> {
    match meta_str(object, "resourceVersion") {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| text),
    }
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

pub fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    strings(&object["metadata"]["finalizers"])
}

/// Takes a finalizer away. Returns whether it was there.
pub fn drop_finalizer(object: &mut Value, finalizer: &str) -> bool {
    let before = finalizers(object);
    let left: Vec<String> =
        before.iter().filter(|name| **name != finalizer).map(|name| (*name).to_owned()).collect();
    let was_there = left.len() < before.len();
    if left.is_empty() {
        remove_meta(object, "finalizers");
    } else {
        set_meta(object, "finalizers", json!(left));
    }
    was_there
}

/// The strings of a JSON list; other elements are passed over.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object();
    labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Now, as `metadata` writes times: RFC 3339 in UTC, whole seconds.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The value at a dotted path such as `.spec.replicas` (no indices), if present and not null.
pub fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for key in path.split('.').filter(|key| !key.is_empty()) {
        value = value.get(key)?;
    }
    (!value.is_null()).then_some(value)
}

/// Writes the value at a dotted path, making the maps on the way.
pub fn set_path(object: &mut Value, path: &str, new: Value) {
    let mut keys: Vec<&str> = path.split('.').filter(|key| !key.is_empty()).collect();
    let Some(last) = keys.pop() else { return };
    let parent = keys.into_iter().fold(as_map_mut(object), child_mut);
    parent.insert(last.to_owned(), new);
}

/// The object as JSON, its kind first, as Kubernetes writes it: a reader learns what it has before it reads on.
pub fn to_json(object: &Value) -> Result<Vec<u8>, serde_json::Error> {
    use serde::ser::{SerializeMap as _, Serializer as _};
    let Some(map) = object.as_object() else { return serde_json::to_vec(object) };
    let mut bytes = Vec::with_capacity(1024);
    let mut serializer = serde_json::Serializer::new(&mut bytes);
    let mut out = serializer.serialize_map(Some(map.len()))?;
    for key in ["kind", "apiVersion"] {
        if let Some(value) = map.get(key) {
            out.serialize_entry(key, value)?;
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| *key != "kind" && *key != "apiVersion") {
        out.serialize_entry(key, value)?;
    }
    out.end()?;
    Ok(bytes)
}
