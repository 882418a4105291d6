//! Finds the old value that belongs to a new one, and whether the two are the same.
//!
//! Fields correlate by name, items of a list-map by their keys; items of other lists do not correlate, so that such
//! a list changes as a whole.

use serde_json::Value;

use super::{ListType, Schema};

/// The old value of the field `name`.
pub fn field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old?.as_object()?.get(name)
}

/// The old item that has the same keys as `item`.
pub fn item<'a>(schema: &Schema, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list else {
        return None;
    };
    let element = schema.element();
    let key_of = |item: &Value, key: &str| -> Option<Value> {
        let default = || element?.field(key)?.default.clone();
        item.get(key).cloned().or_else(default)
    };
    let wanted: Vec<Option<Value>> = keys.iter().map(|key| key_of(item, key)).collect();
    let same = |candidate: &&Value| {
        candidate.is_object() && keys.iter().zip(&wanted).all(|(key, value)| key_of(candidate, key) == *value)
    };
    item.as_object()?;
    old?.as_array()?.iter().find(same)
}

/// Whether the values are equal; the order of a list-map does not count.
pub fn unchanged(schema: &Schema, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(olds)) if matches!(schema.list, ListType::Map(_)) => {
            let unknown = Schema::default();
            let element = schema.element().unwrap_or(&unknown);
            new.len() == olds.len()
                && new
                    .iter()
                    .all(|entry| item(schema, Some(old), entry).is_some_and(|o| unchanged(element, entry, o)))
        }
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                // A field that the schema does not know counts as changed, as on the real server.
                && new.iter().all(|(name, value)| match (schema.field(name), old.get(name)) {
                    (Some(known), Some(before)) => unchanged(known, value, before),
                    _ => false,
                })
        }
        _ => new == old,
    }
}
