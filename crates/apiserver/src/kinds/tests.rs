//! Tests of the tables: every line is read, and means something.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::definitions::{self, raw_definitions};
use super::{KindTable, builtin};
use crate::schema::{ListType, Node, Schema, Type};

fn definition_of(kind: &super::Kind) -> &'static str {
    match kind.schema {
        Node::Named(name) => name,
        Node::Inline(_) => panic!("a built-in has a named definition"),
    }
}

#[test]
fn every_row_has_a_definition_and_columns() {
    let raw = raw_definitions();
    for kind in builtin::kinds() {
        let name = definition_of(&kind);
        let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        assert_eq!(raw[name]["x-kubernetes-group-version-kind"], gvk, "{name}");
        assert!(kind.schema.get().field("metadata").is_some(), "{name}");
        if kind.verbs().contains(&"list") {
            assert!(!kind.columns.is_empty(), "{name}");
            let list = name.replace(&format!(".{}", kind.kind), &format!(".{}", kind.list_kind));
            assert!(raw.contains_key(&list), "{list}");
        }
    }
}

#[test]
fn every_line_of_the_tables_is_about_a_field_that_exists() {
    let raw = raw_definitions();
    for (file, text) in [
        ("facts.txt", include_str!("facts.txt")),
        ("defaults.txt", include_str!("defaults.txt")),
    ] {
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let definition = raw.get(words[0]).unwrap_or_else(|| panic!("{file}: {line}"));
            let known = words[1] == "." || definition["properties"].get(words[1]).is_some();
            assert!(known, "{file}: no such field: {line}");
            if let Some((_, default)) = words[2].split_once("default=") {
                serde_json::from_str::<Value>(default).unwrap_or_else(|e| panic!("{file}: {line}: {e}"));
            }
        }
    }
    let plurals: BTreeSet<String> = builtin::kinds().into_iter().map(|kind| kind.plural).collect();
    for line in include_str!("columns.txt").lines().skip(1) {
        let words: Vec<&str> = line.split('|').collect();
        assert!(
            words.len() == 5 && plurals.contains(words[0]),
            "columns.txt: {line}"
        );
        assert!(words[3].parse::<i32>().is_ok(), "columns.txt: {line}");
    }
}

#[test]
fn facts_reach_the_schemas() {
    let pod_spec = definitions::get("io.k8s.api.core.v1.PodSpec");
    let containers = pod_spec.field("containers").unwrap();
    assert_eq!(containers.kind, Type::Array);
    assert_eq!(containers.list, ListType::Map(vec!["name".into()]));
    assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
    assert!(containers.patch.merge && !containers.patch.retain_keys);
    let container = containers.element().unwrap();
    assert_eq!(container.constraints.required, ["name"]);
    let ports = container.field("ports").unwrap();
    assert_eq!(
        ports.list,
        ListType::Map(vec!["containerPort".into(), "protocol".into()])
    );
    let protocol = ports.element().unwrap().field("protocol").unwrap();
    assert_eq!(protocol.default, Some(json!("TCP")));
    assert_eq!(protocol.constraints.options.len(), 3);
    assert!(pod_spec.field("volumes").unwrap().patch.retain_keys);
    assert!(pod_spec.field("nodeSelector").unwrap().atomic_map);
    let strategy = definitions::get("io.k8s.api.apps.v1.DeploymentSpec")
        .field("strategy")
        .unwrap();
    assert!(strategy.patch.retain_keys && strategy.field("rollingUpdate").is_some());
    assert_eq!(strategy.default, Some(json!({})));
    assert!(
        definitions::get("io.k8s.api.apps.v1.DeploymentStrategy")
            .default
            .is_none()
    );
    assert!(definitions::get("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").atomic_map);
}

#[test]
fn schemas_of_schemas_are_recursive() {
    let group = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    let props = definitions::get(&format!("{group}.JSONSchemaProps"));
    let deep = |field: &str, schema: &'static Schema| schema.field(field).unwrap();
    assert!(
        deep("additionalProperties", props)
            .field("x-kubernetes-validations")
            .is_some()
    );
    assert!(deep("items", props).field("properties").is_some());
    assert!(
        deep("items", props)
            .element()
            .unwrap()
            .field("properties")
            .is_some()
    );
    assert!(deep("default", props).preserve_unknown);
}

#[test]
fn raw_definitions_read_as_the_real_servers() {
    let raw = raw_definitions();
    let containers = &raw["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let container = "#/components/schemas/io.k8s.api.core.v1.Container";
    assert_eq!(containers["items"]["$ref"], container);
    let metadata = &raw["io.k8s.api.core.v1.Pod"]["properties"]["metadata"];
    assert!(metadata["description"].is_string());
    assert!(metadata["allOf"][0]["$ref"].is_string());
    for (name, definition) in &raw {
        for reference in definition.to_string().split("#/components/schemas/").skip(1) {
            let target = reference.split('"').next().unwrap_or_default();
            assert!(raw.contains_key(target), "{name} refers to {target}");
        }
    }
}

#[test]
fn both_event_apis_share_their_place() {
    let table = KindTable::builtin();
    let (old, new) = (
        table.get("", "v1", "events"),
        table.get("events.k8s.io", "v1", "events"),
    );
    let (old, new) = (old.unwrap(), new.unwrap());
    assert_eq!(old.storage, new.storage);
    assert_eq!(old.storage_api_version, new.storage_api_version);
}

/// `cargo test --release -p apiserver --lib kinds -- --ignored --nocapture cost`
#[test]
#[ignore = "a measurement"]
fn cost_of_the_definitions() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.to_owned()
    };
    println!("before: {}", resident());
    let start = std::time::Instant::now();
    definitions::get("");
    println!("schemas: {:?}, {}", start.elapsed(), resident());
    let start = std::time::Instant::now();
    let raw = raw_definitions();
    println!(
        "raw: {} definitions, {:?}, {}",
        raw.len(),
        start.elapsed(),
        resident()
    );
    drop(raw);
    println!("after: {}", resident());
}

/// What a real server (v1.36.4) made of objects: `created` and `refused` by it, and printed in `scenes`.
fn recorded() -> Value {
    serde_json::from_str(include_str!("testdata/recorded.json")).unwrap()
}

fn kind_of(object: &Value) -> super::Kind {
    let kinds = builtin::kinds();
    let found = kinds
        .into_iter()
        .find(|kind| json!(kind.api_version()) == object["apiVersion"] && json!(kind.kind) == object["kind"]);
    found.unwrap_or_else(|| panic!("no such kind: {object}"))
}

#[test]
fn cells_are_the_real_servers() {
    let recorded = recorded();
    let rows = |list: &str, object: &'static str| {
        let rows = recorded[list].as_array().unwrap().clone();
        rows.into_iter()
            .map(move |row| (row[object].clone(), row["cells"].clone(), row["at"].clone()))
    };
    for (object, cells, at) in rows("created", "stored").chain(rows("scenes", "object")) {
        let kind = kind_of(&object);
        let now: jiff::Timestamp = at.as_str().unwrap().parse().unwrap();
        let ours = super::columns::cells(&kind, &object, now).unwrap();
        let theirs = cells.as_array().unwrap();
        assert_eq!(ours.len(), kind.columns.len(), "{}", kind.kind);
        for ((ours, theirs), column) in ours.iter().zip(theirs).zip(&kind.columns) {
            // The objects were seconds old when they were printed.
            let young = column.name == "Age" && ours.as_str().is_some_and(|age| age.ends_with('s'));
            assert!(
                young || ours == theirs,
                "{} {}: {ours} is {theirs}",
                kind.kind,
                column.name
            );
        }
    }
}

#[test]
fn durations_are_the_real_servers() {
    for pair in recorded()["durations"].as_array().unwrap() {
        let seconds = pair[0].as_i64().unwrap();
        assert_eq!(
            json!(super::columns::human_duration(seconds)),
            pair[1],
            "{seconds}"
        );
    }
    assert_eq!(super::columns::human_duration(-1), "0s");
    assert_eq!(super::columns::human_duration(-2), "<invalid>");
}
