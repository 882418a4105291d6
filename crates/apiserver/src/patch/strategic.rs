//! Strategic merge patch: a merge patch that also knows which lists of a built-in kind are sets or maps.
//!
//! Follows upstream's algorithm step by step, directives first: `$patch`, `$retainKeys`, `$setElementOrder/<list>`,
//! `$deleteFromPrimitiveList/<list>`. The order of a merged list is the patch's for what the patch names; what only
//! the object has keeps its place before the elements that it stood before. Values that a patch brings lose their
//! nulls, as they would on being decoded into a Kubernetes type.

mod list;

use serde_json::Value;

use self::list::merge_list;
use super::{does_not_apply, json_type};
use crate::object::JsonMap;
use crate::schema::{PatchStrategy, Schema};
use crate::status::{ApiError, ApiResult};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of a built-in kind.
pub fn strategic(schema: &Schema, target: &Value, patch: &Value) -> ApiResult<Value> {
    let patch = match patch {
        Value::Null => JsonMap::new(),
        Value::Object(patch) => patch.clone(),
        other => {
            let what = json_type(other);
            let message =
                format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
            return Err(ApiError::bad_request(message));
        }
    };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    merge_map(&mut merged, patch, Some(schema))?;
    Ok(Value::Object(merged))
}

fn merge_map(original: &mut JsonMap, mut patch: JsonMap, schema: Option<&Schema>) -> Result<(), Error> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                *original = patch;
                original.values_mut().for_each(discard_nulls);
                original.retain(|_, value| !value.is_null());
            }
            Some("delete") => original.clear(),
            _ => return Err(Error::directive(directive, &patch)),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    list::set_element_orders(original, &mut patch, schema)?;
    patch.into_iter().try_for_each(|(key, value)| merge_field(original, &key, value, schema))
}

fn merge_field(
    original: &mut JsonMap,
    key: &str,
    value: Value,
    schema: Option<&Schema>,
) -> Result<(), Error> {
    let deleting = key.starts_with(DELETE_FROM);
    let key = if deleting {
        list_name(key, DELETE_FROM).ok_or(Error::BadRequest("invalid patch format of primitive list"))?
    } else {
        key
    };
    if value.is_null() {
        original.remove(key);
        return Ok(());
    }
    let field = schema.and_then(|schema| schema.field(key));
    match (original.get_mut(key), value) {
        (Some(Value::Object(old)), Value::Object(new)) if strategy(field).replace => {
            *old = new;
            old.retain(|_, value| !value.is_null());
            old.values_mut().for_each(discard_nulls);
        }
        (Some(Value::Object(old)), Value::Object(new)) => merge_map(old, new, field)?,
        (Some(Value::Array(old)), Value::Array(new)) => {
            let strategy = strategy(field);
            if strategy.merge || deleting {
                let element = field.and_then(Schema::element);
                *old =
                    merge_list(std::mem::take(old), new, element, strategy.merge_key.as_deref(), deleting)?;
            } else {
                *old = new;
                old.iter_mut().for_each(discard_nulls);
            }
        }
        (_, _) if deleting => {}
        (_, value) => match without_directives(value) {
            Some(value) => drop(original.insert(key.to_owned(), value)),
            None => drop(original.remove(key)),
        },
    }
    Ok(())
}

fn strategy(field: Option<&Schema>) -> &PatchStrategy {
    static NONE: PatchStrategy =
        PatchStrategy { merge_key: None, merge: false, retain_keys: false, replace: false };
    field.map_or(&NONE, |schema| &schema.patch)
}

/// `$retainKeys`: of the object's fields only these stay. A patch that sets any other contradicts itself.
fn retain_keys(original: &mut JsonMap, patch: &mut JsonMap) -> Result<(), Error> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = Error::BadRequest("invalid patch format of retainKeys");
    let Value::Array(kept) = directive else {
        return Err(malformed);
    };
    let is_kept = |key: &str| kept.iter().any(|name| name == key);
    let mut set = patch
        .iter()
        .filter(|(key, value)| !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(ORDER));
    if set.any(|(key, _)| !is_kept(key)) {
        return Err(malformed);
    }
    original.retain(|key, _| is_kept(key));
    Ok(())
}

/// The list that a directive such as `$setElementOrder/ports` is about.
fn list_name<'a>(key: &'a str, directive: &str) -> Option<&'a str> {
    key.strip_prefix(directive)?.strip_prefix('/')
}

/// A value that the object did not have: directives in it have nothing to act on. `None`: it is itself one.
fn without_directives(mut value: Value) -> Option<Value> {
    discard_nulls(&mut value);
    remove_directives(value)
}

fn remove_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, value)| Some((key, remove_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(list.into_iter().filter_map(remove_directives).collect()),
        scalar => Some(scalar),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Why a patch cannot be merged. Upstream answers most of these with a bare 500, and so do we.
#[derive(Debug)]
enum Error {
    BadRequest(&'static str),
    ListOfLists,
    Other(String),
}

impl Error {
    fn directive(directive: &Value, map: &JsonMap) -> Self {
        Self::Other(format!("unknown patch type: {} in map: {}", go_text(directive), go_map(map)))
    }

    fn no_merge_key(element: &JsonMap, key: &str) -> Self {
        Self::Other(format!("map: {} does not contain declared merge key: {key}", go_map(element)))
    }

    fn wrong_type(expected: &str, found: &Value) -> Self {
        Self::Other(format!("expected a {expected}, but received a {}", go_type(found)))
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::BadRequest(message) => Self::bad_request(message),
            Error::ListOfLists => does_not_apply(),
            Error::Other(message) => Self::new(500, "", message),
        }
    }
}

const GO_LIST: &str = "[]interface {}";
const GO_MAP: &str = "map[string]interface {}";

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => GO_LIST,
        Value::Object(_) => GO_MAP,
    }
}

/// A value as Go's `%v` prints it, for messages that are the same as upstream's.
pub(super) fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => go_list(list),
        Value::Object(map) => go_map(map),
        scalar => scalar.to_string(),
    }
}

fn go_list(list: &[Value]) -> String {
    format!("[{}]", list.iter().map(go_text).collect::<Vec<_>>().join(" "))
}

fn go_map(map: &JsonMap) -> String {
    let mut entries: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
    entries.sort();
    format!("map[{}]", entries.join(" "))
}

#[cfg(test)]
mod tests;
