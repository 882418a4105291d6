//! Fills in defaults.
//!
//! Must never change a value that was given, except a null where null is not allowed. Defaulting twice changes
//! nothing the second time. Works in place and allocates only for what it fills in.

use serde_json::Value;

use super::Schema;

/// Applies defaults everywhere below `value`; nulls of fields that are not nullable are dropped first.
pub fn apply(schema: &Schema, value: &mut Value) {
    if schema.without_defaults && !has_null(value) {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|name, child| {
                !child.is_null()
                    || schema.field(name).is_none_or(|known| known.nullable || known.default.is_some())
            });
            for (name, property) in &schema.properties {
                let property = property.get();
                let Some(default) = &property.default else {
                    continue;
                };
                if map.get(name).is_none_or(|given| is_missing(property, given)) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, child) in map {
                if let Some(known) = schema.field(name) {
                    fill(known, child);
                }
            }
        }
        Value::Array(items) => {
            let Some(element) = schema.element() else { return };
            for item in items {
                fill(element, item);
            }
        }
        _ => {}
    }
}

/// Drops maps and lists that are empty and need not be there: to a built-in type, that is the same as leaving them out.
pub fn drop_empty(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, child) in map.iter_mut() {
                if let Some(known) = schema.field(name) {
                    drop_empty(known, child);
                }
            }
            map.retain(|name, child| {
                schema.constraints.required.contains(name)
                    || schema.properties.get(name).is_none_or(|known| !is_empty(known.get(), child))
            });
        }
        Value::Array(items) => {
            let Some(element) = schema.element() else { return };
            for item in items {
                drop_empty(element, item);
            }
        }
        _ => {}
    }
}

/// Structs are not maps: an empty one says something.
fn is_empty(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty() && schema.properties.is_empty() && schema.additional.is_some(),
        Value::Array(items) => items.is_empty() && schema.items.is_some(),
        _ => false,
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    if is_missing(schema, value)
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    apply(schema, value);
}

fn is_missing(schema: &Schema, value: &Value) -> bool {
    value.is_null() && !schema.nullable
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}
