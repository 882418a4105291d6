//! The structure that a schema must have so that every value's place in it is known: types everywhere, and nothing but
//! value checks inside `allOf`, `anyOf`, `oneOf` and `not`.
//!
//! Speaks of raw schemas only. The messages are the real server's.

use serde_json::{Value, json};

use super::pattern::Pattern;
use super::structural::{child, entries, flag, is_given, list, text};
use crate::status::FieldError;

/// The first thing in the schema that has no structural counterpart at all.
pub fn unsupported(raw: &Value) -> Option<String> {
    for key in
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"]
    {
        if says_something(raw, key) {
            let name = if key == "$schema" { "schema" } else { key };
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if raw["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    if raw["x-kubernetes-preserve-unknown-fields"] == json!(false) {
        let detail = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(detail.to_owned());
    }
    let groups = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|key| list(raw, key));
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|key| child(raw, key));
    let properties = entries(raw, "properties").map(|(_, raw)| raw);
    groups.chain(single).chain(properties).find_map(unsupported)
}

fn says_something(raw: &Value, key: &str) -> bool {
    match raw.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty() || key == "additionalItems",
        Some(_) => true,
    }
}

/// Everything that keeps the schema from being structural, sorted by message.
pub fn breaches(raw: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(raw, Level::Root, path, &mut errors);
    check_complete(raw, raw, path, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn check(raw: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(raw, "type");
    let embedded = flag(raw, "x-kubernetes-embedded-resource");
    let preserves = flag(raw, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = flag(raw, "x-kubernetes-int-or-string");

    if kind == "array" && !raw["items"].is_object() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = child(raw, "items") {
        check(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in entries(raw, "properties") {
        check(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if is_given(raw, "additionalProperties") {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(path.as_str(), "must not be used at the root"));
        }
        if embedded {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            errors.push(FieldError::forbidden(path.as_str(), detail));
        }
        if let Some(additional) = child(raw, "additionalProperties") {
            check(additional, Level::Field, &path, errors);
        }
    }
    for (set, name) in
        [(preserves, "x-kubernetes-preserve-unknown-fields"), (embedded, "x-kubernetes-embedded-resource")]
    {
        if int_or_string && set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{name}"), &json!(true), detail));
        }
    }
    let alternatives = |raw: &Value| raw["anyOf"] == json!([{"type": "integer"}, {"type": "string"}]);
    let in_first = list(raw, "allOf").first().is_some_and(alternatives);
    check_values(raw, alternatives(raw), in_first, path, errors);
    check_kind(raw, kind, level, path, errors);
    if embedded && !preserves && entries(raw, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

/// The type, and those of the fields that every resource has.
fn check_kind(raw: &Value, kind: &str, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let embedded = flag(raw, "x-kubernetes-embedded-resource");
    let loose = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
    let field = format!("{path}.type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(field.as_str(), detail)
        } else {
            FieldError::invalid(field.as_str(), &json!(kind), detail)
        });
    } else if kind.is_empty() && !loose.iter().any(|key| flag(raw, key)) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field.as_str(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, &json!(kind), "must be object at the root"));
    }
    let is_resource = level == Level::Root || embedded;
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(property) = child(&raw["properties"], name).filter(|_| is_resource) else {
            continue;
        };
        let found = text(property, "type");
        if found != wanted {
            let field = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(field, &json!(found), format!("must be {wanted}")));
        }
    }
    if level == Level::Root && raw["properties"].get("metadata").is_some_and(|metadata| !is_bare(metadata)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Whether a schema of `metadata` says nothing but what names may be.
fn is_bare(metadata: &Value) -> bool {
    let names_only =
        entries(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let mut keys = metadata.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    names_only
        && keys.all(|key| matches!(key, "type" | "properties" | "default") || !says_something(metadata, key))
}

fn check_values(raw: &Value, skip_any: bool, skip_first: bool, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any {
            continue;
        }
        for (index, nested) in list(raw, key).iter().enumerate() {
            let skip_any = key == "allOf" && index == 0 && skip_first;
            check_nested(nested, skip_any, &format!("{path}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = child(raw, "not") {
        check_nested(not, false, &format!("{path}.not"), errors);
    }
    let pattern = text(raw, "pattern");
    if let Err(error) = Pattern::new(pattern) {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {reason}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &json!(pattern), detail));
    }
}

/// Inside a logical operator, values may be restricted, but nothing may be said of the structure.
fn check_nested(raw: &Value, skip_any: bool, path: &str, errors: &mut Vec<FieldError>) {
    check_values(raw, skip_any, false, path, errors);
    if let Some(items) = child(raw, "items") {
        check_nested(items, false, &format!("{path}.items"), errors);
    }
    for (name, property) in entries(raw, "properties") {
        check_nested(property, false, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = &raw["additionalProperties"];
    if additional.is_object() || additional == &json!(true) {
        let field = format!("{path}.additionalProperties");
        errors.push(FieldError::forbidden(field, "must be undefined to be structural"));
    }
    for (key, state) in [
        ("type", "empty"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        let given = if state == "undefined" { is_given(raw, key) } else { says_something(raw, key) };
        if given {
            let detail = format!("must be {state} to be structural");
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if raw["properties"].get("metadata").is_some() {
        let field = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Whatever a logical operator speaks of must also be described outside of it: what `raw` at `path` restricts is
/// described by `structure` at `place`.
fn check_complete(raw: &Value, structure: &Value, place: &str, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, part) in list(raw, key).iter().enumerate() {
            require(part, Some(structure), place, &format!("{path}.{key}[{index}]"), errors);
        }
    }
    if let Some(not) = child(raw, "not") {
        require(not, Some(structure), place, &format!("{path}.not"), errors);
    }
}

fn require(raw: &Value, structure: Option<&Value>, place: &str, path: &str, errors: &mut Vec<FieldError>) {
    let Some(structure) = structure else {
        errors.push(FieldError::required(place, format!("because it is defined in {path}")));
        return;
    };
    check_complete(raw, structure, place, path, errors);
    if let Some(items) = child(raw, "items") {
        let described = child(structure, "items");
        require(items, described, &format!("{place}.items"), &format!("{path}.items"), errors);
    }
    for (name, property) in entries(raw, "properties") {
        let below = format!("properties[{name}]");
        let described = child(&structure["properties"], name);
        require(property, described, &format!("{place}.{below}"), &format!("{path}.{below}"), errors);
    }
}
