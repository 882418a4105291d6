//! Which part of `OpenAPI` a definition may use, and what its Kubernetes extensions must say.
//!
//! Looks at raw schemas, because what is forbidden never reaches a [`Schema`]. The messages are the real server's.

use serde_json::{Value, json};

use super::structural::{child, entries, flag, is_given, list, text};
use super::{Rule, Schema, cel};
use crate::object::strings;
use crate::status::{FieldError, FieldErrorKind};

/// Every breach; CEL rules are looked at only when `schema`, the parsed form, is given and sound.
pub fn breaches(raw: &Value, path: &str, schema: Option<&Schema>) -> Vec<FieldError> {
    let mut found = check(raw, path, &Setting::default(), true, schema);
    found.schema.append(&mut found.rules);
    found.schema
}

/// Errors of the rules come last, and rules are not looked at where the schema around them is wrong.
#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

impl Found {
    fn merge(&mut self, other: Self) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

/// What the surroundings forbid.
#[derive(Clone, Default)]
struct Setting {
    /// Why defaults are forbidden.
    no_defaults: Option<String>,
    inside_metadata: bool,
    /// The list around whose items do not correlate, so that nothing below has an old value.
    uncorrelated: Option<String>,
}

fn check(raw: &Value, path: &str, setting: &Setting, is_root: bool, schema: Option<&Schema>) -> Found {
    let mut found = Found::default();
    check_keywords(raw, path, setting, &mut found.schema);
    if flag(raw, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.schema.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    check_children(raw, path, setting, is_root, schema, &mut found);
    if raw["x-kubernetes-preserve-unknown-fields"] == json!(false) {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        found.schema.push(FieldError::invalid(field, &json!(false), "must be true or undefined"));
    }
    check_map_type(raw, path, &mut found.schema);
    check_list_type(raw, path, &mut found.schema);
    check_list_map(raw, path, &mut found.schema);
    let rules = list(raw, "x-kubernetes-validations");
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        check_rule(raw, rule, &path, &mut found.schema);
    }
    if let Some(schema) = schema.filter(|_| found.schema.is_empty()) {
        for ((index, raw), rule) in rules.iter().enumerate().zip(&schema.rules) {
            let path = format!("{path}.x-kubernetes-validations[{index}]");
            let holder = (schema, is_root || schema.embedded_resource);
            check_expression(holder, (raw, rule), &path, setting, &mut found.rules);
        }
    }
    found
}

fn check_keywords(raw: &Value, path: &str, setting: &Setting, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = text(raw, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let types = TYPES.map(str::to_owned);
        errors.push(FieldError::not_supported(format!("{path}.type"), &json!(kind), &types));
    }
    if let Some(reason) = setting.no_defaults.as_ref().filter(|_| is_given(raw, "default")) {
        errors.push(FieldError::forbidden(format!("{path}.default"), format!("must not be set {reason}")));
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let given = match raw.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty() || key == "$ref",
            Some(Value::Object(map)) => !map.is_empty() || matches!(key, "additionalItems" | "dependencies"),
            Some(_) => true,
        };
        if given {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), detail));
    }
    if raw["items"].as_array().is_some_and(|items| !items.is_empty()) {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
    if setting.inside_metadata && flag(raw, "x-kubernetes-embedded-resource") {
        let field = format!("{path}.x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(field, "must not be used inside of resource meta"));
    }
}

fn check_children(
    raw: &Value,
    path: &str,
    setting: &Setting,
    is_root: bool,
    schema: Option<&Schema>,
    found: &mut Found,
) {
    if is_given(raw, "additionalProperties") {
        let path = format!("{path}.additionalProperties");
        if entries(raw, "properties").next().is_some() && raw["additionalProperties"] != json!(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(path.as_str(), detail));
        }
        if let Some(additional) = child(raw, "additionalProperties") {
            let mut inside = setting.clone();
            if setting.inside_metadata {
                let reason = "inside additionalProperties applying to object metadata";
                inside.no_defaults = Some(reason.to_owned());
            }
            let schema = schema.and_then(|schema| schema.additional.as_deref()).map(super::Node::get);
            found.merge(check(additional, &path, &inside, false, schema));
        }
    }
    for (name, property) in entries(raw, "properties") {
        let mut inside = setting.clone();
        let is_resource = is_root || flag(raw, "x-kubernetes-embedded-resource");
        if is_resource && super::metadata::is_type_or_meta(name) {
            inside.inside_metadata = true;
            if is_root {
                inside.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let schema = schema.and_then(|schema| schema.properties.get(name)).map(super::Node::get);
        found.merge(check(property, &format!("{path}.properties[{name}]"), &inside, false, schema));
    }
    if let Some(not) = child(raw, "not") {
        found.merge(check(not, &format!("{path}.not"), setting, false, None));
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (index, part) in list(raw, key).iter().enumerate() {
            found.merge(check(part, &format!("{path}.{key}[{index}]"), setting, false, None));
        }
    }
    if let Some(items) = child(raw, "items") {
        let mut inside = setting.clone();
        if text(raw, "x-kubernetes-list-type") != "map" && inside.uncorrelated.is_none() {
            inside.uncorrelated = Some(path.to_owned());
        }
        let schema = schema.and_then(Schema::element);
        found.merge(check(items, &format!("{path}.items"), &inside, false, schema));
    }
}

fn check_map_type(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map_type) = raw["x-kubernetes-map-type"].as_str() else {
        return;
    };
    need_type(raw, "object", "x-kubernetes-map-type", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        let field = format!("{path}.x-kubernetes-map-type");
        let supported = ["atomic", "granular"].map(str::to_owned);
        errors.push(FieldError::not_supported(field, &json!(map_type), &supported));
    }
}

/// Reports a type that does not go with the extension; says whether it does.
fn need_type(raw: &Value, wanted: &str, extension: &str, path: &str, errors: &mut Vec<FieldError>) -> bool {
    let found = text(raw, "type");
    if found == wanted {
        return true;
    }
    let detail = format!("must be {wanted} if {extension} is specified");
    let field = format!("{path}.type");
    errors.push(if found.is_empty() {
        FieldError::required(field, detail)
    } else {
        FieldError::invalid(field, &json!(found), detail)
    });
    false
}

fn check_list_type(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = raw["x-kubernetes-list-type"].as_str();
    if let Some(list_type) = list_type {
        let fits = need_type(raw, "array", "x-kubernetes-list-type", path, errors);
        if let Some(items) = child(raw, "items").filter(|_| fits && list_type == "set") {
            let (extension, wrong) = match text(items, "type") {
                "array" => (
                    "x-kubernetes-list-type",
                    items["x-kubernetes-list-type"].as_str().is_some_and(|inner| inner != "atomic"),
                ),
                "object" => ("x-kubernetes-map-type", items["x-kubernetes-map-type"] != json!("atomic")),
                _ => ("", false),
            };
            if wrong {
                let field = format!("{path}.items.{extension}");
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                errors.push(FieldError::invalid(field, &items["x-kubernetes-list-type"], detail));
            }
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            let field = format!("{path}.x-kubernetes-list-type");
            let supported = ["atomic", "set", "map"].map(str::to_owned);
            errors.push(FieldError::not_supported(field, &json!(list_type), &supported));
        }
    }
    if !list(raw, "x-kubernetes-list-map-keys").is_empty() && list_type != Some("map") {
        let field = format!("{path}.x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(field, detail),
            Some(other) => FieldError::invalid(field, &json!(other), detail),
        });
    }
}

/// The keys of a list-map must be scalars that every item has; items of sets and list-maps are never null.
fn check_list_map(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = text(raw, "x-kubernetes-list-type");
    let keys = strings(&raw["x-kubernetes-list-map-keys"]);
    let items = child(raw, "items");
    let is_map = list_type == "map";
    if is_map {
        let field = format!("{path}.x-kubernetes-list-map-keys");
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(field.as_str(), detail));
        }
        match items {
            None => errors.push(FieldError::required(
                format!("{path}.items"),
                "must have a schema if x-kubernetes-list-type is map",
            )),
            Some(items) if text(items, "type") != "object" => errors.push(FieldError::invalid(
                format!("{path}.items.type"),
                &json!(text(items, "type")),
                "must be object if parent array's x-kubernetes-list-type is map",
            )),
            Some(items) => {
                for (index, key) in keys.iter().enumerate() {
                    match child(&items["properties"], key) {
                        None => {
                            let detail = "entries must all be names of item properties";
                            errors.push(FieldError::invalid(field.as_str(), &json!(keys), detail));
                        }
                        Some(property) if matches!(text(property, "type"), "array" | "object") => {
                            let detail =
                                "must be a scalar type if parent array's x-kubernetes-list-type is map";
                            let field = format!("{path}.items.properties[{key}].type");
                            errors.push(FieldError::invalid(field, &json!("object"), detail));
                        }
                        Some(_) => {}
                    }
                    if keys[..index].contains(key) {
                        let detail = "must not contain duplicate entries";
                        errors.push(FieldError::invalid(field.as_str(), &json!(keys), detail));
                    }
                }
            }
        }
    }
    let Some(items) = items.filter(|_| is_map || list_type == "set") else {
        return;
    };
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    for key in keys.iter().filter(|_| is_map) {
        let Some(property) = child(&items["properties"], key) else {
            continue;
        };
        let field = format!("{path}.items.properties[{key}]");
        if !strings(&items["required"]).contains(key) && !is_given(property, "default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(format!("{field}.default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{field}.nullable"), detail));
        }
    }
}

fn check_rule(schema: &Value, rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let has_newlines = |text: &str| text.contains(['\n', '\r']);
    let source = text(rule, "rule").trim();
    let raw_message = text(rule, "message");
    let message = raw_message.trim();
    let field = |name: &str| format!("{path}.{name}");
    if source.is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
    } else if !raw_message.is_empty() && message.is_empty() {
        errors.push(FieldError::invalid(
            field("message"),
            &rule["message"],
            "must be non-empty if specified",
        ));
    } else if has_newlines(message) {
        errors.push(FieldError::invalid(field("message"), &rule["message"], "must not contain line breaks"));
    } else if has_newlines(source) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), detail));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(field("messageExpression"), detail));
    }
    let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule["reason"].as_str().filter(|reason| !reasons.contains(reason)) {
        let supported = reasons.map(str::to_owned);
        errors.push(FieldError::not_supported(field("reason"), &json!(reason), &supported));
    }
    let below = text(rule, "fieldPath");
    for (wrong, detail) in [
        (!below.is_empty() && below.trim().is_empty(), "must be non-empty if specified"),
        (has_newlines(below), "must not contain line breaks"),
        (!below.is_empty() && find_field(schema, below, true).is_err(), "must be a valid path"),
    ] {
        if wrong {
            errors.push(FieldError::invalid(field("fieldPath"), &json!(below), detail));
        }
    }
}

fn check_expression(
    (schema, is_resource): (&Schema, bool),
    (raw, rule): (&Value, &Rule),
    path: &str,
    setting: &Setting,
    errors: &mut Vec<FieldError>,
) {
    let shown = || {
        let raw = |key: &str| raw.get(key).cloned().unwrap_or(Value::Null);
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
            json!(rule.rule),
            json!(rule.message.as_deref().unwrap_or_default()),
            json!(rule.message_expression.as_deref().unwrap_or_default()),
            raw("reason"),
            json!(rule.field_path.as_deref().unwrap_or_default()),
            raw("optionalOldSelf"),
        )
    };
    let compiled = rule.compiled.as_deref();
    let flaw = match compiled {
        Some(compiled) => compiled.flaw(schema, is_resource, rule.optional_old_self),
        None => cel::compile(&rule.rule, rule.message_expression.as_deref()).err(),
    };
    if let Some(flaw) = flaw {
        let (name, detail) = match flaw {
            cel::Flaw::Rule(detail) => ("rule", detail),
            cel::Flaw::Message(detail) => ("messageExpression", detail),
        };
        errors.push(FieldError::of(FieldErrorKind::Invalid, format!("{path}.{name}"), shown(), detail));
    }
    let Some(uses_old_self) = compiled.map(|compiled| compiled.uses_old_self) else {
        return;
    };
    match &setting.uncorrelated {
        Some(list) if uses_old_self => {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            errors.push(FieldError::invalid(format!("{path}.rule"), &json!(rule.rule), detail));
        }
        _ if !uses_old_self && is_given(raw, "optionalOldSelf") => {
            let detail = "may not be set if oldSelf is not used in rule";
            let field = format!("{path}.optionalOldSelf");
            errors.push(FieldError::invalid(field, &raw["optionalOldSelf"], detail));
        }
        _ => {}
    }
}

/// The schema that a path such as `.spec.x` or `['a.b']` leads to, or why it leads nowhere.
pub fn find_field<'a>(schema: &'a Value, path: &str, brackets: bool) -> Result<&'a Value, String> {
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            (name, rest) = (after[..end].to_owned(), &after[end..]);
            if name.is_empty() && rest.is_empty() {
                return Err("unexpected end of JSON path".to_owned());
            }
        } else if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".to_owned());
            }
            let quoted = after.strip_prefix('\'').and_then(|text| text.split_once("']"));
            let Some((inner, after)) = quoted else {
                let end = after.find(']').unwrap_or(after.len());
                return Err(format!("expected single quoted string but got {}", &after[..end]));
            };
            (name, rest) = (inner.replace("\\'", "'").replace("\\\\", "\\"), after);
        } else {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            return Err(format!("expected [ or . but got: {}", &rest[..end.max(1)]));
        }
        let found = match schema.get("properties") {
            Some(properties) => child(properties, &name),
            None => child(schema, "additionalProperties"),
        };
        schema = found.ok_or("does not refer to a valid field")?;
    }
    Ok(schema)
}
