//! Objects as rows: the `Table` that kubectl prints, and `PartialObjectMetadata`.
//!
//! Owns what a cell says, for every kind: a column is a path into the object ([`path`]), and its type says how the
//! value found there is written. Must never fail: a path that cannot be read or leads nowhere is an empty cell.
//! Rows keep the order of the objects.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::{Column, Kind, columns};
use crate::object;
use crate::status::{ApiError, ApiResult};
use path::Path;

mod path;

const NAME_DESCRIPTION: &str = "The object's name";
const AGE_DESCRIPTION: &str = "Time since creation";

/// How much of each object a row carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// From the query parameter `includeObject`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// A `Table` of these objects. `list_meta` is the list's metadata; in a watch only the first event has column definitions.
pub fn render(
    kind: &Kind,
    objects: &[Value],
    list_meta: &Value,
    include: IncludeObject,
    with_columns: bool,
) -> Value {
    render_at(Timestamp::now(), kind, objects, list_meta, include, with_columns)
}

fn render_at(
    now: Timestamp,
    kind: &Kind,
    objects: &[Value],
    list_meta: &Value,
    include: IncludeObject,
    with_columns: bool,
) -> Value {
    let columns = columns_of(kind);
    let paths: Vec<Option<Path>> = columns.iter().map(|column| Path::parse(&column.path)).collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = columns::cells(kind, object, now).unwrap_or_else(|| {
                let found = columns.iter().zip(&paths).map(|(column, path)| {
                    if column.format == "name" {
                        return json!(object::name(object)); // a bookmark's is empty, not absent
                    }
                    let value = path.as_ref().and_then(|path| path.first(object));
                    value.map_or(Value::Null, |value| cell(&column.kind, value, now))
                });
                found.collect()
            });
            json!({"cells": cells, "object": included(object, include)})
        })
        .collect();
    let definitions = with_columns.then(|| columns.iter().map(definition).collect::<Vec<_>>());
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_meta,
        "columnDefinitions": definitions, "rows": rows,
    })
}

/// `PartialObjectMetadata` of an object.
pub fn partial_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// `PartialObjectMetadataList` of these objects.
pub fn partial_metadata_list(objects: &[Value], list_meta: &Value) -> Value {
    let items: Vec<Value> = objects.iter().map(partial_metadata).collect();
    json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta, "items": items,
    })
}

fn included(object: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial_metadata(object),
        IncludeObject::Object => object.clone(),
    }
}

/// The columns of a kind. Built-ins list all of theirs; a definition's come after the name, and are the age when
/// it declares none.
fn columns_of(kind: &Kind) -> Vec<Column> {
    let column = |name: &str, kind: &str, format: &str, description: &str, path: &str| Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: description.into(),
        priority: 0,
        path: path.into(),
    };
    if kind.custom.is_none() && !kind.columns.is_empty() {
        return kind.columns.clone();
    }
    let mut columns = vec![column("Name", "string", "name", NAME_DESCRIPTION, "")];
    if kind.columns.is_empty() {
        let created = ".metadata.creationTimestamp";
        columns.push(column("Age", "date", "", AGE_DESCRIPTION, created));
    }
    columns.extend(kind.columns.iter().cloned());
    columns
}

fn definition(column: &Column) -> Value {
    let description = match column.description.as_str() {
        "" => format!("The value at {}", column.path),
        given => given.to_owned(),
    };
    json!({
        "name": column.name, "type": column.kind, "format": column.format,
        "description": description, "priority": column.priority,
    })
}

/// A value as its column's type shows it; a value of another type is an empty cell, but anything has a text.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => json!(whole),
            #[allow(clippy::cast_possible_truncation, reason = "what the real server does")]
            None => json!(number.as_f64().map(|float| float as i64)),
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
            value.clone()
        }
        ("string", other) => json!(other.to_string()),
        ("date", Value::String(text)) => json!(since(text, now)),
        _ => Value::Null,
    }
}

/// The time since an RFC 3339 time, for people.
fn since(text: &str, now: Timestamp) -> String {
    if text.is_empty() {
        return "<unknown>".into();
    }
    match text.parse::<Timestamp>() {
        Ok(then) => columns::human_duration(now.as_second() - then.as_second()),
        Err(_) => "<invalid>".into(),
    }
}

#[cfg(test)]
mod tests;
