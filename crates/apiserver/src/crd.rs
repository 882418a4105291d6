//! Definitions of custom resources, apart from storing and serving them: what a definition may say, what the server adds to
//! it, which names it gets, and the rows of the kind table that it makes.
//!
//! Everything here is a function of definitions as JSON: no store, no clock, no table.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Column, Custom, Kind, Scale, Traits};
use crate::object::{self, strings};
use crate::schema::{Node, structural};
use crate::status::{FieldError, qualified};

mod names;
#[cfg(test)]
mod tests;
mod validate;

pub use names::{accept, establish, terminate};
pub use validate::validate;

/// Where definitions are kept.
pub const PLACE: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Holds a definition until the last of its objects is gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"].as_array().map_or(&[], Vec::as_slice)
}

fn storage_version(definition: &Value) -> Option<&str> {
    let stored = versions(definition).iter().find(|version| version["storage"] == json!(true));
    stored.map(|version| text(version, "name"))
}

/// Fills in what a client may leave out.
pub fn default(definition: &mut Value) {
    let kind = text(&definition["spec"]["names"], "kind").to_owned();
    let names = object::child_mut(object::child_mut(object::as_map_mut(definition), "spec"), "names");
    let mut fill = |key: &str, value: String| {
        let given = names.get(key).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() && !kind.is_empty() {
            names.insert(key.to_owned(), json!(value));
        }
    };
    fill("singular", kind.to_lowercase());
    fill("listKind", format!("{kind}List"));
    if definition["spec"]["conversion"].is_null() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// The status of a new definition, or that of an old one after its spec changed: the versions that objects may be
/// stored in grow, nothing else is for clients to change.
pub fn prepare_status(definition: &mut Value, old: Option<&Value>) {
    let mut status = old.map_or_else(|| json!({}), |old| old["status"].clone());
    let mut stored: Vec<String> = strings(&status["storedVersions"]).into_iter().map(str::to_owned).collect();
    if let Some(name) = storage_version(definition).filter(|name| !stored.iter().any(|known| known == name)) {
        stored.push(name.to_owned());
    }
    object::as_map_mut(&mut status).insert("storedVersions".to_owned(), json!(stored));
    definition["status"] = status;
}

/// Where the objects of a definition are kept.
pub fn place(definition: &Value) -> String {
    let spec = &definition["spec"];
    qualified(text(&spec["names"], "plural"), text(spec, "group"))
}

/// Whether the definition's objects are served.
pub fn is_established(definition: &Value) -> bool {
    names::is_true(definition, "Established")
}

/// A row for each served version. The definition must be defaulted; its names are those it was given.
pub fn kinds(definition: &Value) -> Result<Vec<Kind>, Vec<FieldError>> {
    let served = versions(definition).iter().enumerate();
    let served = served.filter(|(_, version)| version["served"] == json!(true));
    let rows: Result<Vec<Kind>, _> =
        served.map(|(index, version)| kind(definition, version, index)).collect();
    let mut rows = rows?;
    let stored = versions(definition).iter().find(|version| version["storage"] == json!(true));
    if let Some(stored) = stored.filter(|_| rows.len() > 1) {
        let schema = Node::from(structural::parse(&stored["schema"]["openAPIV3Schema"], "storage")?);
        for row in rows.iter_mut().filter(|row| row.version != text(stored, "name")) {
            if let Some(custom) = &mut row.custom {
                custom.storage_schema = Some(schema.clone());
            }
        }
    }
    Ok(rows)
}

fn kind(definition: &Value, version: &Value, index: usize) -> Result<Kind, Vec<FieldError>> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let owned = |key: &str| text(names, key).to_owned();
    let list = |key: &str| strings(&names[key]).into_iter().map(str::to_owned).collect();
    let raw = &version["schema"]["openAPIV3Schema"];
    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
    let group = text(spec, "group").to_owned();
    let scale = &version["subresources"]["scale"];
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    Ok(Kind {
        version: text(version, "name").to_owned(),
        kind: owned("kind"),
        list_kind: owned("listKind"),
        plural: owned("plural"),
        singular: owned("singular"),
        short_names: list("shortNames"),
        categories: list("categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        storage: Arc::from(place(definition)),
        storage_api_version: format!("{group}/{}", storage_version(definition).unwrap_or_default()),
        schema: Node::from(structural::parse(raw, &path)?),
        columns: columns.map(column).collect(),
        selectable_fields: selectable
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        status: version["subresources"]["status"].is_object(),
        scale: scale.is_object().then(|| Scale {
            spec_replicas: text(scale, "specReplicasPath").to_owned(),
            status_replicas: text(scale, "statusReplicasPath").to_owned(),
            selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(str::to_owned),
        }),
        subresources: Vec::new(),
        traits: Traits {
            generation: true,
            keeps_status_on_create: !version["subresources"]["status"].is_object(),
            ..Traits::default()
        },
        custom: Some(Custom {
            definition: object::name(definition).to_owned(),
            definition_uid: object::uid(definition).to_owned(),
            // Objects of the first generation were defaulted by this very schema when they were written.
            default_on_read: object::generation(definition) > 1,
            raw_schema: Arc::new(raw.clone()),
            deprecation_warning: deprecation(definition, version),
            terminating: names::is_true(definition, "Terminating"),
            storage_schema: None,
        }),
        group,
    })
}

fn column(raw: &Value) -> Column {
    let owned = |key: &str| text(raw, key).to_owned();
    Column {
        name: owned("name"),
        kind: owned("type"),
        format: owned("format"),
        description: owned("description"),
        priority: raw["priority"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
        path: owned("jsonPath"),
    }
}

/// What a client of a deprecated version is told.
fn deprecation(definition: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != json!(true) {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let spec = &definition["spec"];
    let (group, kind) = (text(spec, "group"), text(&spec["names"], "kind"));
    let name = text(version, "name");
    let newer = versions(definition).iter().filter(|other| {
        other["served"] == json!(true)
            && other["deprecated"] != json!(true)
            && crate::kinds::version_rank(text(other, "name")) > crate::kinds::version_rank(name)
    });
    let best = newer.max_by_key(|other| crate::kinds::version_rank(text(other, "name")));
    let instead = best.map(|best| format!("; use {group}/{} {kind}", text(best, "name"))).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}
