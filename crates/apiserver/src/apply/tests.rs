//! Ownership against the real server: `fixtures/scenarios.json` holds what kube-apiserver answered to sequences of
//! writes (`fixtures/record.py` asks it), and every answer must come out of the pure code.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::*;
use crate::schema::{Constraints, ListType, Node, Schema, Type};

mod laws;

/// The schemas that the fixtures' kinds have on the real server.
pub(super) struct Schemas(Map<String, Value>);

impl Schemas {
    pub(super) fn load() -> Self {
        let text = include_str!("fixtures/schemas.json");
        Self(serde_json::from_str(text).unwrap())
    }

    pub(super) fn kind(&self, kind: &str) -> Schema {
        let full = match kind {
            "Thing" => "Thing".to_owned(),
            "Deployment" => "io.k8s.api.apps.v1.Deployment".to_owned(),
            other => format!("io.k8s.api.core.v1.{other}"),
        };
        self.read(&self.0[&full])
    }

    fn read(&self, raw: &Value) -> Schema {
        if let Some(name) = raw["$ref"].as_str() {
            let mut schema = self.named(name);
            schema.default = raw.get("default").cloned();
            schema.atomic_map |= raw["x-kubernetes-map-type"] == "atomic";
            return schema;
        }
        let kind = match (raw["type"].as_str(), raw["format"].as_str()) {
            (_, Some("int-or-string")) => Type::IntOrString,
            _ if raw["x-kubernetes-int-or-string"] == true => Type::IntOrString,
            (Some("object"), _) => Type::Object,
            (Some("array"), _) => Type::Array,
            (Some("string"), _) => Type::String,
            (Some("integer"), _) => Type::Integer,
            (Some("number"), _) => Type::Number,
            (Some("boolean"), _) => Type::Boolean,
            _ => Type::Any,
        };
        let node = |raw: &Value| Box::new(Node::from(self.read(raw)));
        Schema {
            kind,
            properties: raw["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, raw)| (name.clone(), self.read(raw).into()))
                .collect::<BTreeMap<String, Node>>(),
            additional: raw.get("additionalProperties").map(node),
            items: raw.get("items").map(node),
            preserve_unknown: raw["x-kubernetes-preserve-unknown-fields"] == true,
            embedded_resource: raw["x-kubernetes-embedded-resource"] == true,
            default: raw.get("default").cloned(),
            list: list_type(raw),
            atomic_map: raw["x-kubernetes-map-type"] == "atomic",
            constraints: Constraints {
                required: object::strings(&raw["required"]).into_iter().map(str::to_owned).collect(),
                ..Constraints::default()
            },
            ..Schema::default()
        }
    }

    fn named(&self, name: &str) -> Schema {
        if name.ends_with(".Quantity") || name.ends_with(".IntOrString") {
            let kind = Type::IntOrString;
            return Schema { kind, ..Schema::default() };
        }
        self.read(&self.0[name])
    }
}

fn list_type(raw: &Value) -> ListType {
    let merged = raw["x-kubernetes-patch-strategy"].as_str().is_some_and(|s| s.contains("merge"));
    match raw["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = object::strings(&raw["x-kubernetes-list-map-keys"]);
            ListType::Map(keys.into_iter().map(str::to_owned).collect())
        }
        None if merged => match raw["x-kubernetes-patch-merge-key"].as_str() {
            Some(key) => ListType::Map(vec![key.to_owned()]),
            None => ListType::Set,
        },
        _ => ListType::Atomic,
    }
}

#[test]
fn answers_as_the_real_server_does() {
    let schemas = Schemas::load();
    let scenarios: Vec<Value> = serde_json::from_str(include_str!("fixtures/scenarios.json")).unwrap();
    let mut failures = Vec::new();
    for scenario in &scenarios {
        let kind = scenario["kind"].as_str().unwrap();
        let schema = schemas.kind(kind);
        let mut live: Option<&Value> = None;
        for (i, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            if let Err(why) = check_step(kind, &schema, live, step) {
                failures.push(format!("{} [{i}]: {why}", scenario["name"]));
            }
            live = step.get("want").or(live);
        }
    }
    assert!(scenarios.len() > 70, "fixtures are missing");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n\n"));
}

fn check_step(kind: &str, schema: &Schema, live: Option<&Value>, step: &Value) -> Result<(), String> {
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    let want = &step["want"];
    let now = latest(want);
    let custom = kind == "Thing";
    let writer = Writer {
        manager: text("manager"),
        api_version: text("apiVersion"),
        subresource: text("subresource"),
        now: &now,
        resets: resets(kind != "ConfigMap", text("subresource")),
        custom,
    };
    let live = live.map(|live| at_version(live, writer.api_version));
    let got = if text("op") == "apply" {
        apply(schema, live.as_ref(), &step["config"], &writer, step["force"] == true)
    } else {
        let mut new = match step.get("new") {
            Some(new) => new.clone(),
            None => final_object(want, &step["sent"]),
        };
        record_update(schema, live.as_ref(), &mut new, &writer);
        Ok(new)
    };
    let got = match (got, step.get("error")) {
        (Ok(got), None) => got,
        // Ours to merge, for validation to refuse.
        (Ok(_), Some(error)) if error["code"] == 422 => return Ok(()),
        (Err(got), Some(error)) => {
            let status = got.to_value();
            let same = ["code", "message", "reason"].iter().all(|key| status.get(key) == error.get(key));
            let same = same && causes(&status) == causes(error);
            return if same { Ok(()) } else { Err(format!("got error {status}\nwant error {error}")) };
        }
        (got, error) => return Err(format!("got {got:?}\nwant error {error:?}")),
    };
    let (got_fields, want_fields) = (&got["metadata"]["managedFields"], &want["metadata"]["managedFields"]);
    if got_fields != want_fields {
        return Err(format!("got  {got_fields}\nwant {want_fields}"));
    }
    // Of built-in kinds the server's defaults are not ours to add, and status endpoints keep but the status.
    let comparable = custom || kind == "ConfigMap";
    if text("op") == "apply" && comparable && writer.subresource.is_empty() && bare(&got) != bare(want) {
        return Err(format!("got object  {}\nwant object {}", bare(&got), bare(want)));
    }
    Ok(())
}

/// The real server hands out an object at the version asked for.
fn at_version(live: &Value, api_version: &str) -> Value {
    let mut live = live.clone();
    live["apiVersion"] = json!(api_version);
    live
}

/// The object that a write made, as it was before its owners were recorded.
fn final_object(want: &Value, sent: &Value) -> Value {
    let mut new = want.clone();
    object::remove_meta(&mut new, "managedFields");
    if !sent.is_null() {
        object::set_meta(&mut new, "managedFields", sent.clone());
    }
    new
}

/// The time that the server gave to this write, or one that it did not give to any.
fn latest(want: &Value) -> String {
    let times = want["metadata"]["managedFields"].as_array().into_iter().flatten();
    let latest = times.filter_map(|entry| entry["time"].as_str()).max();
    latest.unwrap_or("2099-01-01T00:00:00Z").to_owned()
}

/// An object without what the server adds to it, defaults of list keys and status among them.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        object::remove_meta(&mut object, key);
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    default_protocols(&mut object);
    object
}

fn default_protocols(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.contains_key("port") {
                map.entry("protocol").or_insert(json!("TCP"));
            }
            map.values_mut().for_each(default_protocols);
        }
        Value::Array(list) => list.iter_mut().for_each(default_protocols),
        _ => {}
    }
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let mut causes: Vec<String> = causes.map(Value::to_string).collect();
    causes.sort();
    causes
}
