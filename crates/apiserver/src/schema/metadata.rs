//! What every object has besides its own fields: `apiVersion`, `kind`, and `metadata`, which is an `ObjectMeta`.
//!
//! Serves the object itself (pruning) and the resources embedded in it (pruning and validation). Knows no kind.

use serde_json::Value;

use super::path::Path;
use super::{Schema, naming};
use crate::status::FieldError;

/// The fields that every whole object has.
pub fn is_type_or_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

const OBJECT_META: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const OWNER_REFERENCE: &[&str] = &["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];
const MANAGED_FIELDS_ENTRY: &[&str] =
    &["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];

/// Drops what `ObjectMeta` does not have, and notes its path.
pub fn prune(metadata: &mut Value, path: &Path, unknown: &mut Vec<String>) {
    retain_known(metadata, OBJECT_META, path, unknown);
    for (list, known) in [("managedFields", MANAGED_FIELDS_ENTRY), ("ownerReferences", OWNER_REFERENCE)] {
        let entries = metadata.get_mut(list).and_then(Value::as_array_mut);
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let list = Path::Child(path, list);
            retain_known(entry, known, &Path::Index(&list, index), unknown);
        }
    }
}

fn retain_known(value: &mut Value, known: &[&str], path: &Path, unknown: &mut Vec<String>) {
    if let Value::Object(map) = value {
        map.retain(|name, _| {
            let keep = known.contains(&name.as_str());
            if !keep {
                unknown.push(Path::Child(path, name).to_string());
            }
            keep
        });
    }
}

/// What is wrong with the `apiVersion`, `kind` and `metadata` of embedded resources below `value`.
pub fn validate_embedded(schema: &Schema, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                validate_resource(value, path, errors);
            }
            for (name, child) in map {
                if let Some(node) = schema.properties.get(name) {
                    validate_embedded(node.get(), child, &Path::Child(path, name), errors);
                } else if let Some(node) = &schema.additional {
                    validate_embedded(node.get(), child, &Path::Key(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(element) = schema.element() else { return };
            for (index, item) in items.iter().enumerate() {
                validate_embedded(element, item, &Path::Index(path, index), errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(resource: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let field = Path::Child(path, name).to_string();
        match resource.get(name) {
            None => errors.push(FieldError::required(field, "")),
            Some(Value::String(text)) => {
                if let Some(detail) = type_meta_breach(name, text) {
                    errors.push(FieldError::invalid(field, &Value::from(text.as_str()), detail));
                }
            }
            Some(other) => errors.push(FieldError::invalid(field, other, "must be a string")),
        }
    }
    let Some(metadata) = resource.get("metadata") else {
        return;
    };
    let path = Path::Child(path, "metadata");
    if !metadata.is_object() {
        errors.push(FieldError::invalid(path.to_string(), metadata, "must be an object"));
        return;
    }
    for name in ["generateName", "name"] {
        let text = metadata[name].as_str().unwrap_or_default();
        for detail in path_segment_breaches(text) {
            let field = Path::Child(&path, name).to_string();
            errors.push(FieldError::invalid(field, &metadata[name], detail));
        }
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|name| !name.is_empty()) {
        for detail in naming::dns_label(namespace) {
            let field = Path::Child(&path, "namespace").to_string();
            errors.push(FieldError::invalid(field, &metadata["namespace"], detail));
        }
    }
}

fn type_meta_breach(name: &str, text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("must not be empty".to_owned());
    }
    if name == "apiVersion" {
        let slashes = text.matches('/').count();
        return (slashes > 1).then(|| format!("unexpected GroupVersion string: {text}"));
    }
    let breaches = naming::dns1035_label(&text.to_lowercase());
    (!breaches.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", breaches.join(",")))
}

fn path_segment_breaches(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let illegal = ["/", "%"].into_iter().filter(|part| name.contains(part));
    illegal.map(|part| format!("may not contain '{part}'")).collect()
}
