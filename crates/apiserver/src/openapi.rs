//! `OpenAPI` v3 documents: what kubectl needs to apply, edit, explain and validate.
//!
//! Owns one document per group and version: the operations ([`paths`]) and every schema that they reach. Schemas
//! of built-ins are handed in; a custom resource's comes from its definition ([`custom`]). Must never leave a
//! reference without its schema. The hash in the index is that of the document's bytes, so that a client's copy
//! is good exactly as long as the document stays the same.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::discovery::ForeignKind;
use crate::kinds::{Kind, KindTable};
use crate::object::JsonMap;

mod custom;
mod paths;

const REF_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const GVK: &str = "x-kubernetes-group-version-kind";

/// `/openapi/v3`: every document with its hash. Makes all documents, so the result is worth keeping until the
/// table changes.
pub fn index(kinds: &KindTable, definitions: &JsonMap) -> Value {
    let groups = kinds.groups().flat_map(|(group, versions)| {
        versions
            .into_iter()
            .map(move |version| group_version_path(group, version))
    });
    let paths: JsonMap = groups
        .filter_map(|path| {
            let hash = hash(&document(kinds, definitions, &path)?);
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")});
            Some((path, url))
        })
        .collect();
    json!({"paths": paths})
}

/// One document, by its path below `/openapi/v3/` (`api/v1`, `apis/GROUP/VERSION`). `definitions` are the schemas
/// of the built-in types by name.
pub fn document(kinds: &KindTable, definitions: &JsonMap, path: &str) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => ("", version),
        ["apis", group, version] => (group, version),
        _ => return None,
    };
    let mut title = None;
    let mut operations = JsonMap::new();
    let mut schemas = JsonMap::new();
    for kind in kinds.resources(group, version) {
        title.get_or_insert(if kind.custom.is_some() {
            json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
        } else {
            json!({"title": "Kubernetes", "version": "1.36"})
        });
        schemas.insert(definition_name(kind), own_schema(kind, definitions));
        if kind.verbs().contains(&"list") {
            let name = list_name(kind);
            let list = definitions
                .get(&name)
                .cloned()
                .unwrap_or_else(|| custom::list(kind));
            schemas.insert(name, list);
        }
        operations.extend(paths::of(kind));
    }
    let info = title?;
    let operations = Value::Object(operations);
    add_reachable(&operations, &mut schemas, definitions);
    Some(json!({
        "openapi": "3.0.0", "info": info, "paths": operations, "components": {"schemas": schemas},
    }))
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn hash(document: &Value) -> String {
    let digest = Sha512::digest(document.to_string());
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The kind's schema, which says that it is the kind's: clients look it up by that.
fn own_schema(kind: &Kind, definitions: &JsonMap) -> Value {
    let mut schema = match &kind.custom {
        Some(custom) => custom::publish(&custom.raw_schema),
        None => definitions
            .get(&definition_name(kind))
            .cloned()
            .unwrap_or_else(|| json!({"type": "object"})),
    };
    if schema.get(GVK).is_none() {
        schema[GVK] = json!([group_version_kind(&kind.group, &kind.version, &kind.kind)]);
    }
    schema
}

fn group_version_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// Adds the schemas that the operations and the schemas refer to, and those that these refer to in turn.
fn add_reachable(operations: &Value, schemas: &mut JsonMap, definitions: &JsonMap) {
    let mut wanted = Vec::new();
    references(operations, &mut wanted);
    for schema in schemas.values() {
        references(schema, &mut wanted);
    }
    while let Some(name) = wanted.pop() {
        if schemas.contains_key(&name) {
            continue;
        }
        // A type that nobody described is still an object: better than a reference into the void.
        let schema = definitions
            .get(&name)
            .cloned()
            .unwrap_or_else(|| json!({"type": "object"}));
        references(&schema, &mut wanted);
        schemas.insert(name, schema);
    }
}

/// Collects the names of all schemas that the value refers to.
fn references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|text| text.strip_prefix(REF_PREFIX))
            {
                names.push(name.to_owned());
            }
            map.values().for_each(|value| references(value, names));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, names)),
        _ => {}
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REF_PREFIX}{name}")})
}

/// `dev.godwit.example.v1.Bird`, or the name of the built-in's Go type.
fn definition_name(kind: &Kind) -> String {
    if kind.custom.is_some() {
        let reversed: Vec<&str> = kind.group.rsplit('.').collect();
        format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind)
    } else {
        builtin_name(&kind.group, &kind.version, &kind.kind)
    }
}

fn list_name(kind: &Kind) -> String {
    let name = definition_name(kind);
    format!("{}{}", name.trim_end_matches(&kind.kind), kind.list_kind)
}

fn foreign_name(foreign: ForeignKind) -> String {
    builtin_name(foreign.group, foreign.version, foreign.kind)
}

/// Go packages are called after the first word of their group.
fn builtin_name(group: &str, version: &str, kind: &str) -> String {
    let package = match group.split('.').next() {
        None | Some("") => "api.core",
        Some("apiextensions") => "apiextensions-apiserver.pkg.apis.apiextensions",
        Some(first) => return format!("io.k8s.api.{first}.{version}.{kind}"),
    };
    format!("io.k8s.{package}.{version}.{kind}")
}

#[cfg(test)]
mod tests;
