//! A custom resource's schema as the server publishes it.
//!
//! Owns what is added to the schema of a definition: the parts that every object has, at the top and wherever an
//! object is embedded, and the two types of an int-or-string. Nothing that the definition says is lost.

use serde_json::{Value, json};

use super::{GVK, META, definition_name, group_version_kind, reference};
use crate::kinds::Kind;
use crate::object::{as_map_mut, child_mut, strings};

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The schema of a definition's version, complete.
pub fn publish(raw: &Value) -> Value {
    let mut schema = if raw.as_object().is_some_and(|map| !map.is_empty()) {
        raw.clone()
    } else {
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    };
    complete(&mut schema);
    add_object_fields(&mut schema, API_VERSION, KIND);
    schema
}

/// The schema of the kind's list.
pub fn list(kind: &Kind) -> Value {
    let items = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        kind.plural
    );
    json!({
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text(API_VERSION),
            "kind": text(KIND),
            "metadata": described(LIST_METADATA, &format!("{META}.ListMeta")),
            "items": {"description": items, "type": "array", "items": reference(&definition_name(kind))},
        },
        GVK: [group_version_kind(&kind.group, &kind.version, &kind.list_kind)],
    })
}

/// Fills in what Kubernetes extensions imply, here and below.
fn complete(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(complete);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(key) {
            complete(below);
        }
    }
    let is = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or_default();
    let (embedded, int_or_string) = (is("x-kubernetes-embedded-resource"), is("x-kubernetes-int-or-string"));
    if int_or_string && !map.contains_key("anyOf") && !map.contains_key("allOf") {
        map.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    if embedded {
        add_object_fields(schema, EMBEDDED_API_VERSION, EMBEDDED_KIND);
        let mut required: Vec<&str> = strings(&schema["required"]);
        for key in ["kind", "apiVersion"] {
            if !required.contains(&key) {
                required.push(key);
            }
        }
        schema["required"] = json!(required);
    }
}

fn add_object_fields(schema: &mut Value, api_version: &str, kind: &str) {
    let properties = child_mut(as_map_mut(schema), "properties");
    properties.insert("apiVersion".into(), text(api_version));
    properties.insert("kind".into(), text(kind));
    properties.insert("metadata".into(), described(METADATA, &format!("{META}.ObjectMeta")));
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": "string"})
}

/// A reference with a description of its own, which a bare `$ref` cannot have.
fn described(description: &str, name: &str) -> Value {
    json!({"description": description, "allOf": [reference(name)]})
}
