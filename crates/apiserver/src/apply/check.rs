//! Refusing a configuration that cannot be applied.
//!
//! Owns the check of an applied configuration against its schema, as far as apply needs it: declared fields, the types
//! of values, and list elements that can be told apart. It is no validation: constraints are not looked at, and an
//! object that passes may still be refused later.

use std::collections::BTreeSet;

use serde_json::Value;

use super::shape::{Form, Shape};
use crate::object;
use crate::schema::Type;
use crate::status::{ApiError, ApiResult};

/// Checks what a client wants to apply.
pub fn config(shape: Shape<'_>, config: &Value, api_version: &str) -> ApiResult<()> {
    let sent = config["apiVersion"].as_str().unwrap_or_default();
    let kind = config["kind"].as_str().unwrap_or_default();
    let (group, version) = sent.split_once('/').unwrap_or(("", sent));
    let kind = format!("{group}/{version}, Kind={kind}");
    if sent != api_version {
        return Err(ApiError::bad_request(format!("invalid object type: {kind}")));
    }
    if !config["metadata"]["managedFields"].is_null() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut errors = Vec::new();
    check(shape, config, "", &mut errors);
    let list = match errors.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    };
    let (namespace, name) = (object::namespace(config), object::name(config));
    Err(failure(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {list}")))
}

/// An error of which the real server says nothing but its text.
pub fn failure(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

fn check(shape: Shape<'_>, value: &Value, path: &str, errors: &mut Vec<String>) {
    if let Some(why) = mismatch(shape.kind(), value) {
        return errors.push(at(path, &why));
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                if !shape.declares(name) {
                    return errors.push(at(&path, "field not declared in schema"));
                }
                check(shape.field(name).0, value, &path, errors);
            }
        }
        Value::Array(elements) => {
            let mut seen = BTreeSet::new();
            for (i, element) in elements.iter().enumerate() {
                let mut place = format!("[{i}]");
                if let Form::List(keys) = shape.form(value) {
                    match shape.step(keys, element) {
                        Ok(step) => {
                            place = step.to_string();
                            if !seen.insert(step) {
                                errors.push(at(path, &format!("duplicate entries for key {place}")));
                            }
                        }
                        Err(why) => return errors.push(at(path, &format!("element {i}: {why}"))),
                    }
                }
                check(shape.element(), element, &format!("{path}{place}"), errors);
            }
        }
        _ => {}
    }
}

fn at(path: &str, message: &str) -> String {
    if path.is_empty() { message.to_owned() } else { format!("{path}: {message}") }
}

/// Why `value` is not of this type. The texts show Go's own view of a value; clients print them.
fn mismatch(kind: Type, value: &Value) -> Option<String> {
    let fits = match kind {
        // Whether it is one or the other is for validation to say.
        Type::Any | Type::IntOrString => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::Boolean => value.is_boolean(),
        Type::Integer | Type::Number => value.is_number(),
        Type::String => value.is_string(),
    };
    if fits || value.is_null() {
        return None;
    }
    let shown = plain(value);
    Some(match kind {
        Type::Object => format!("expected map, got &{{{shown}}}"),
        Type::Array => format!("expected list, got &{{{shown}}}"),
        Type::Boolean => format!("expected boolean, got &{{{shown}}}"),
        Type::String => format!("expected string, got &value.valueUnstructured{{Value:{value}}}"),
        _ => format!("expected numeric (int or float), got {}", type_name(value)),
    })
}

/// A value as Go's `%v` prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(plain).collect();
            format!("[{}]", elements.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k}:{}", plain(v))).collect();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// A value's type as Go names it.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
