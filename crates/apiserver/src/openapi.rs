//! `OpenAPI` v3 documents: what kubectl needs to apply, edit, explain and validate.
//!
//! Owns one document per group and version: the operations ([`paths`]) and every schema that they reach. Schemas
//! of built-ins are those of `kinds::definitions`; a custom resource's comes from its definition ([`custom`]). Must never leave a
//! reference without its schema. The hash in the index is that of the document's bytes, so that a client's copy
//! is good exactly as long as the document stays the same.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use crate::discovery::{ForeignKind, subresources};
use crate::kinds::{Kind, KindTable, definitions::raw_definitions};
use crate::object::JsonMap;

mod custom;
mod paths;

const REF_PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const GVK: &str = "x-kubernetes-group-version-kind";

/// The schemas of the built-in types by name. They never change, and take a while to make.
static DEFINITIONS: LazyLock<JsonMap> = LazyLock::new(raw_definitions);

/// Hashes of documents by what the documents are made of: to make them all for each index takes too long.
static HASHES: Mutex<BTreeMap<Digest, String>> = Mutex::new(BTreeMap::new());
/// More documents than are ever served at once.
const MAX_HASHES: usize = 1024;

type Digest = [u8; 64];

/// `/openapi/v3`: every document with its hash.
pub fn index(kinds: &KindTable) -> Value {
    let groups = kinds.groups().flat_map(|(group, versions)| {
        versions.into_iter().map(move |version| (group, version, group_version_path(group, version)))
    });
    let paths: JsonMap = groups
        .filter_map(|(group, version, path)| {
            let hash = hash(kinds, group, version, &path)?;
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")});
            Some((path, url))
        })
        .collect();
    json!({"paths": paths})
}

fn hash(kinds: &KindTable, group: &str, version: &str, path: &str) -> Option<String> {
    let ingredients = ingredients(kinds, group, version);
    let hashes = || HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = hashes().get(&ingredients) {
        return Some(hash.clone());
    }
    let content = Sha512::digest(document(kinds, path)?.to_string());
    let hash = content.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    });
    let mut hashes = hashes();
    if hashes.len() >= MAX_HASHES {
        hashes.clear();
    }
    hashes.insert(ingredients, hash.clone());
    Some(hash)
}

/// All that decides what a document says, within one run of the program.
fn ingredients(kinds: &KindTable, group: &str, version: &str) -> Digest {
    let mut digest = Sha512::new();
    for kind in kinds.resources(group, version) {
        let names = [&kind.group, &kind.version, &kind.kind, &kind.list_kind, &kind.plural];
        let endpoints = (kind.namespaced, kind.verbs(), subresources(kind));
        digest.update(format!("{names:?}{endpoints:?}"));
        if let Some(custom) = &kind.custom {
            digest.update(custom.raw_schema.to_string());
        }
    }
    digest.finalize().into()
}

/// One document, by its path below `/openapi/v3/` (`api/v1`, `apis/GROUP/VERSION`).
pub fn document(kinds: &KindTable, path: &str) -> Option<Value> {
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
        schemas.insert(definition_name(kind), own_schema(kind));
        if kind.verbs().contains(&"list") {
            let name = list_name(kind);
            let list = DEFINITIONS.get(&name).cloned().unwrap_or_else(|| custom::list(kind));
            schemas.insert(name, list);
        }
        operations.extend(paths::of(kind));
    }
    let info = title?;
    let operations = Value::Object(operations);
    add_reachable(&operations, &mut schemas);
    Some(json!({
        "openapi": "3.0.0", "info": info, "paths": operations, "components": {"schemas": schemas},
    }))
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The kind's schema, which says that it is the kind's: clients look it up by that.
fn own_schema(kind: &Kind) -> Value {
    let mut schema = match &kind.custom {
        Some(custom) => custom::publish(&custom.raw_schema),
        None => DEFINITIONS.get(&definition_name(kind)).cloned().unwrap_or_else(|| json!({"type": "object"})),
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
fn add_reachable(operations: &Value, schemas: &mut JsonMap) {
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
        let schema = DEFINITIONS.get(&name).cloned().unwrap_or_else(|| json!({"type": "object"}));
        references(&schema, &mut wanted);
        schemas.insert(name, schema);
    }
}

/// Collects the names of all schemas that the value refers to.
fn references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) =
                map.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(REF_PREFIX))
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
