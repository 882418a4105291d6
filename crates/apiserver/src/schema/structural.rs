//! From a definition's `openAPIV3Schema` to a [`Schema`], refusing what is not structural.
//!
//! The rules are those of the real server, in its order: the structure itself (`wellformed`), the defaults against
//! the schema that they sit in, then the use of `OpenAPI` and the CEL rules (`dialect`). A schema that passes is complete:
//! everything that later reads it can rely on it, and nothing later reads the raw one but what publishes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::path::Path;
use super::pattern::Pattern;
use super::{
    Bound, Constraints, ListType, Node, Rule, Schema, Type, cel, dialect, metadata, prune, validate,
    wellformed,
};
use crate::object::strings;
use crate::status::FieldError;

/// Parses the schema found at `path` of a definition; every breach of the structural rules is reported.
pub fn parse(raw: &Value, path: &str) -> Result<Schema, Vec<FieldError>> {
    let mut errors = Vec::new();
    if flag(raw, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = wellformed::unsupported(raw);
    let schema = build(raw);
    let mut sound = unsupported.is_none();
    if sound {
        let mut found = wellformed::breaches(raw, path);
        if found.is_empty() {
            check_defaults(&schema, &Path::Base(path), true, &mut found);
        }
        sound = found.is_empty();
        errors.append(&mut found);
    }
    errors.extend(dialect::breaches(raw, path, sound.then_some(&schema)));
    if let Some(detail) = unsupported.filter(|_| errors.is_empty()) {
        errors.push(FieldError::invalid(path, &json!(""), detail));
    }
    if errors.is_empty() { Ok(schema) } else { Err(errors) }
}

// --- reading the raw schema; what has the wrong type counts as absent, the definition's own schema refuses it ---

pub(super) fn text<'a>(raw: &'a Value, key: &str) -> &'a str {
    raw[key].as_str().unwrap_or_default()
}

pub(super) fn flag(raw: &Value, key: &str) -> bool {
    raw[key].as_bool().unwrap_or_default()
}

pub(super) fn list<'a>(raw: &'a Value, key: &str) -> &'a [Value] {
    raw[key].as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn entries<'a>(raw: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    raw[key].as_object().into_iter().flatten()
}

/// The schema under `key`, where a list or a boolean may stand instead.
pub(super) fn child<'a>(raw: &'a Value, key: &str) -> Option<&'a Value> {
    raw.get(key).filter(|child| child.is_object())
}

/// Whether `key` is there and says something.
pub(super) fn is_given(raw: &Value, key: &str) -> bool {
    raw.get(key).is_some_and(|value| !value.is_null())
}

// --- building ---

fn build(raw: &Value) -> Schema {
    let kind = match text(raw, "type") {
        _ if flag(raw, "x-kubernetes-int-or-string") => Type::IntOrString,
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    };
    let additional = match &raw["additionalProperties"] {
        // Any value, but nothing below it is described: what is nested is pruned.
        Value::Bool(_) => Some(build(&Value::Null)),
        schema @ Value::Object(_) => Some(build(schema)),
        _ => None,
    };
    let list_type = match text(raw, "x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => {
            let keys = strings(&raw["x-kubernetes-list-map-keys"]);
            ListType::Map(keys.into_iter().map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    };
    let properties = entries(raw, "properties").map(|(name, raw)| (name.clone(), Node::from(build(raw))));
    let mut schema = Schema {
        kind,
        properties: properties.collect::<BTreeMap<_, _>>(),
        additional: additional.map(|schema| Box::new(schema.into())),
        items: child(raw, "items").map(|items| Box::new(build(items).into())),
        nullable: flag(raw, "nullable"),
        preserve_unknown: flag(raw, "x-kubernetes-preserve-unknown-fields"),
        embedded_resource: flag(raw, "x-kubernetes-embedded-resource"),
        default: raw.get("default").filter(|default| !default.is_null()).cloned(),
        list: list_type,
        atomic_map: text(raw, "x-kubernetes-map-type") == "atomic",
        constraints: constraints(raw),
        rules: list(raw, "x-kubernetes-validations").iter().map(rule).collect(),
        ..Schema::default()
    };
    let below = |quiet: fn(&Schema) -> bool| {
        let fields = schema.properties.values().chain(schema.additional.as_deref());
        fields.chain(schema.items.as_deref()).all(|node| quiet(node.get()))
    };
    let without_defaults = schema.default.is_none() && below(|schema| schema.without_defaults);
    let without_rules = schema.rules.is_empty() && below(|schema| schema.without_rules);
    schema.without_defaults = without_defaults;
    schema.without_rules = without_rules;
    schema
}

fn constraints(raw: &Value) -> Constraints {
    let size = |key: &str| raw[key].as_u64();
    let bound = |key: &str, exclusive: &str| {
        raw[key].as_f64().map(|value| Bound { value, exclusive: flag(raw, exclusive) })
    };
    let all = |key: &str| list(raw, key).iter().map(build).collect();
    Constraints {
        required: strings(&raw["required"]).into_iter().map(str::to_owned).collect(),
        options: list(raw, "enum").to_vec(),
        pattern: Some(text(raw, "pattern"))
            .filter(|pattern| !pattern.is_empty())
            .and_then(|pattern| Pattern::new(pattern).ok()),
        format: raw["format"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: raw["multipleOf"].as_f64(),
        min_length: size("minLength"),
        max_length: size("maxLength"),
        min_items: size("minItems"),
        max_items: size("maxItems"),
        unique_items: flag(raw, "uniqueItems"),
        min_properties: size("minProperties"),
        max_properties: size("maxProperties"),
        closed: raw["additionalProperties"] == json!(false),
        all_of: all("allOf"),
        any_of: all("anyOf"),
        one_of: all("oneOf"),
        not: child(raw, "not").map(|not| Box::new(build(not))),
    }
}

fn rule(raw: &Value) -> Rule {
    let optional = |key: &str| raw[key].as_str().map(str::to_owned);
    let source = text(raw, "rule").to_owned();
    // An expression that does not compile is reported by `dialect`; until then it is left out.
    let compiled = cel::compile(&source, raw["messageExpression"].as_str());
    Rule {
        rule: source,
        message: optional("message"),
        message_expression: optional("messageExpression"),
        field_path: optional("fieldPath").filter(|path| !path.is_empty()),
        reason: optional("reason"),
        optional_old_self: flag(raw, "optionalOldSelf"),
        compiled: compiled.ok().map(Arc::new),
    }
}

/// Defaults must be what the server would accept and keep if a client had sent them.
fn check_defaults(schema: &Schema, path: &Path, is_resource: bool, errors: &mut Vec<FieldError>) {
    if schema.without_defaults {
        return;
    }
    if let Some(default) = &schema.default {
        check_default(schema, default, &Path::Child(path, "default"), is_resource, errors);
    }
    if let Some(items) = schema.element() {
        check_defaults(items, &Path::Child(path, "items"), items.embedded_resource, errors);
    }
    for (name, property) in &schema.properties {
        let property = property.get();
        let properties = Path::Child(path, "properties");
        let path = Path::Key(&properties, name);
        check_defaults(property, &path, property.embedded_resource, errors);
    }
}

fn check_default(
    schema: &Schema,
    default: &Value,
    path: &Path,
    is_resource: bool,
    errors: &mut Vec<FieldError>,
) {
    let field = path.to_string();
    let mut pruned = default.clone();
    prune::prune_value(schema, &mut pruned);
    if pruned != *default {
        errors.push(FieldError::invalid(field.as_str(), default, "must not have unknown fields"));
    }
    let mut found = Vec::new();
    metadata::validate_embedded(schema, default, path, &mut found);
    if found.is_empty() {
        found = validate::validate_value(schema, default, None, &field);
    }
    // Once as a value that stays, once as a new one: a rule on the transition must accept both.
    for old in [Some(default), None] {
        if found.is_empty() {
            found = cel::validate_value(schema, default, old, path, is_resource);
        }
    }
    errors.append(&mut found);
}
