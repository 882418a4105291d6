//! What a list may not hold twice: equal entries in a set, equal keys in a list-map.

use serde_json::Value;

use super::path::Path;
use super::{ListType, Schema};
use crate::status::FieldError;

/// Entries that a set or a list-map holds twice.
pub fn duplicates_in(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    find_duplicates(schema, value, &Path::Root, &mut errors);
    errors
}

fn find_duplicates(schema: &Schema, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, child) in fields {
                if let Some(node) = schema.properties.get(name) {
                    find_duplicates(node.get(), child, &Path::Child(path, name), errors);
                } else if let Some(node) = &schema.additional {
                    find_duplicates(node.get(), child, &Path::Key(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.list {
                _ if schema.repeats => {}
                ListType::Atomic => {}
                ListType::Set => repeated(items, path, errors),
                ListType::Map(keys) => repeated_keys(items, keys, path, errors),
            }
            let Some(element) = schema.element() else { return };
            for (index, item) in items.iter().enumerate() {
                find_duplicates(element, item, &Path::Index(path, index), errors);
            }
        }
        _ => {}
    }
}

fn repeated_keys(items: &[Value], keys: &[String], path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(Path::Index(path, index).to_string(), &items[index], detail));
        return;
    }
    let keys_of = |item: &Value| {
        let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(present.collect())
    };
    let entries: Vec<Value> = items.iter().map(keys_of).collect();
    repeated(&entries, path, errors);
}

/// Reports the second of equal entries, however many there are.
fn repeated(entries: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let times = seen.entry(entry.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(Path::Index(path, index).to_string(), entry));
        }
    }
}
