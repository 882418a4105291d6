//! Cells as the real server wrote them for the same objects and columns.
use serde_json::{Value, json};

use super::*;
use crate::discovery::tests::bird;

fn column(kind: &str, path: &str) -> Column {
    Column {
        name: path.into(),
        kind: kind.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        path: path.into(),
    }
}

fn now() -> Timestamp {
    "2026-11-15T21:15:22Z".parse().unwrap()
}

/// The one cell, besides the name, of an object.
fn shown(kind: &str, path: &str, object: &Value) -> Value {
    let mut bird = bird("v1", json!({}));
    bird.columns = vec![column(kind, path)];
    let objects = std::slice::from_ref(object);
    let table = render_at(now(), &bird, objects, &json!({}), IncludeObject::None, false);
    table["rows"][0]["cells"][1].clone()
}

#[test]
fn cells_are_those_of_the_real_server() {
    let object = json!({
        "metadata": {"name": "p"}, "n": null, "s": "text", "e": "", "i": 7, "f": 1.25, "b": true,
        "fut": "2099-01-01T00:00:00Z", "past": "2026-01-02T03:04:05Z",
        "l": [{"name": "a", "v": 1}, {"name": "b", "v": 2, "k": {"x": "why"}, "b": true}],
        "m": {"a.b": "dot", "x-y": "dash"}, "tags": ["a", "b"],
    });
    let cases = [
        ("string", ".n", json!(null)),
        ("integer", ".n", json!(null)),
        ("date", ".n", json!(null)),
        ("integer", ".s", json!(null)),
        ("integer", ".f", json!(1)),
        ("date", ".e", json!("<unknown>")),
        ("date", ".s", json!("<invalid>")),
        ("date", ".i", json!(null)),
        ("date", ".fut", json!("<invalid>")),
        ("date", ".past", json!("317d")),
        ("boolean", ".s", json!(null)),
        ("boolean", ".b", json!(true)),
        ("number", ".i", json!(7)),
        ("string", ".f", json!("1.25")),
        ("string", ".b", json!("true")),
        ("string", ".tags", json!("[\"a\",\"b\"]")),
        ("string", ".tags[*]", json!("a")),
        ("string", ".l[*].name", json!("a")),
        ("string", ".l[-1].name", json!("b")),
        ("string", ".l[1:].name", json!("b")),
        ("string", ".l[9].name", json!(null)),
        ("string", ".l[?(@.name!=\"a\")].name", json!("b")),
        ("string", ".l[?(@.name=='b')].v", json!("2")),
        ("string", ".l[?(@.k.x==\"why\")].name", json!("b")),
        ("string", ".l[?(@.v>1)].name", json!("b")),
        ("string", ".l[?(@.k)].name", json!("b")),
        ("string", ".l[?(@.b==true)].name", json!("b")),
        // The real server takes the dot inside the quotes for a separator.
        ("string", ".m['a.b']", json!(null)),
        ("string", r".m['a\.b']", json!("dot")),
        ("string", r".m.a\.b", json!("dot")),
        ("string", ".m.x-y", json!("dash")),
        ("string", ".m['x-y']", json!("dash")),
        ("string", ".l[?(@.name==\"]\")].name", json!(null)),
        ("string", ".l[", json!(null)),
        ("string", "..name", json!(null)),
    ];
    for (kind, path, expected) in cases {
        assert_eq!(shown(kind, path, &object), expected, "{kind} {path}");
    }
}

#[test]
fn a_kind_without_columns_shows_its_age() {
    let list =
        [json!({"metadata": {"name": "robin", "creationTimestamp": "2026-11-15T21:15:21Z"}, "spec": {}})];
    let meta = json!({"resourceVersion": "205"});
    let bird = bird("v1", json!({}));
    let table = render_at(now(), &bird, &list, &meta, IncludeObject::Metadata, true);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["metadata"], meta);
    let columns: Vec<_> = ["name", "type", "format", "priority"]
        .map(|key| [&table["columnDefinitions"][0][key], &table["columnDefinitions"][1][key]])
        .to_vec();
    assert_eq!(json!(columns), json!([["Name", "Age"], ["string", "date"], ["name", ""], [0, 0]]));
    let row = json!({"cells": ["robin", "1s"], "object": partial_metadata(&list[0])});
    assert_eq!(table["rows"], json!([row]));
    assert_eq!(row["object"].get("spec"), None);
}

#[test]
fn later_events_of_a_watch_have_no_columns() {
    let bird = bird("v1", json!({}));
    let bookmark = [json!({"metadata": {"resourceVersion": "205"}})];
    let table = render(&bird, &bookmark, &json!({}), IncludeObject::Object, false);
    assert_eq!(table.get("columnDefinitions"), Some(&Value::Null));
    assert_eq!(table["rows"], json!([{"cells": ["", null], "object": bookmark[0]}]));
}

#[test]
fn include_object_is_one_of_three() {
    assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
    assert_eq!(IncludeObject::parse("None"), Ok(IncludeObject::None));
    assert_eq!(IncludeObject::parse("all").unwrap_err().code, 400);
}

#[test]
fn a_built_in_lists_its_name_itself() {
    let kinds = crate::kinds::KindTable::builtin();
    let kind = kinds.get("", "v1", "namespaces").unwrap();
    let list = [json!({"metadata": {"name": "default", "creationTimestamp": "2026-11-15T21:15:20Z"},
        "status": {"phase": "Active"}})];
    let table = render_at(now(), kind, &list, &json!({}), IncludeObject::None, true);
    assert_eq!(table["rows"][0]["cells"], json!(["default", "Active", "2s"]));
    assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(3));
}
