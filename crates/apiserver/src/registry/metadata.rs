//! `metadata`: what the server writes there, what it keeps, and the rules for names, labels and the rest.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::kinds::{Kind, strategy};
use crate::object;
use crate::status::{ApiError, ApiResult, FieldError, FieldErrorKind, show};

const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Puts a new object into the namespace of the URL; a body that names another is refused.
pub(super) fn place(kind: &Kind, object: &mut Value, namespace: &str) -> ApiResult<()> {
    let named = object::namespace(object);
    if kind.namespaced {
        if !named.is_empty() && named != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object::set_meta(object, "namespace", namespace.into());
    } else if !named.is_empty() {
        if kind.custom.is_some() {
            return Err(ApiError::bad_request(
                "namespace may not be specified on a cluster-scoped object",
            ));
        }
        object::remove_meta(object, "namespace");
    }
    Ok(())
}

/// What cannot even be considered: no name at all, or a resourceVersion on something new.
pub(super) fn check_new(kind: &Kind, object: &Value) -> ApiResult<()> {
    if !object::meta_str(object, "resourceVersion").is_empty() {
        return Err(ApiError::new(
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if object::name(object).is_empty() && object::meta_str(object, "generateName").is_empty() {
        let error = FieldError::required("metadata.name", "name or generateName is required");
        return Err(kind.invalid("", vec![error]));
    }
    Ok(())
}

/// Writes what only the server may write.
pub(super) fn stamp_new(kind: &Kind, object: &mut Value, now: &str) {
    let meta = object::metadata_mut(object);
    for server_owned in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
    ] {
        meta.remove(server_owned);
    }
    meta.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    meta.insert("creationTimestamp".into(), now.into());
    if kind.traits.generation {
        meta.insert("generation".into(), 1.into());
    }
}

/// Puts back, on an update, what only the server may write.
pub(super) fn restore(new: &mut Value, old: &Value) {
    let server_owned = [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "selfLink",
        "namespace",
        "name",
    ];
    let kept: Vec<(&str, Option<Value>)> = server_owned
        .iter()
        .map(|field| (*field, old["metadata"].get(*field).cloned()))
        .collect();
    let meta = object::metadata_mut(new);
    for (field, value) in kept {
        match value {
            Some(value) => meta.insert(field.into(), value),
            None => meta.remove(field),
        };
    }
}

static LABEL_NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$").ok());
static SUBDOMAIN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$").ok());

fn is_match(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Rules on the metadata of a new object, or of a changed one.
pub(super) fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.is_none() {
        errors.extend(name_errors(kind, new));
    }
    errors.extend(map_errors(new, "labels"));
    errors.extend(map_errors(new, "annotations"));
    errors.extend(owner_errors(new));
    errors.extend(finalizer_errors(new, old));
    errors
}

fn name_errors(kind: &Kind, new: &Value) -> Vec<FieldError> {
    let name = object::name(new);
    let problems = strategy::name_rule(kind).check(name, false);
    problems
        .into_iter()
        .map(|problem| FieldError::invalid("metadata.name", &json!(name), problem))
        .collect()
}

fn map_errors(new: &Value, field: &str) -> Vec<FieldError> {
    let path = format!("metadata.{field}");
    let mut errors = Vec::new();
    let mut total = 0;
    for (key, value) in new["metadata"][field].as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        total += key.len() + text.len();
        errors.extend(
            key_problems(key)
                .into_iter()
                .map(|p| FieldError::invalid(&path, &json!(key), p)),
        );
        if field == "labels" {
            errors.extend(value_problem(text).map(|p| FieldError::invalid(&path, &json!(text), p)));
        }
    }
    if field == "annotations" && total > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError::of(
            FieldErrorKind::TooLong,
            path,
            String::new(),
            detail,
        ));
    }
    errors
}

/// What is wrong with a label's or annotation's key.
fn key_problems(key: &str) -> Vec<String> {
    const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if !is_match(&SUBDOMAIN, prefix) {
                problems.push(PREFIX.to_owned());
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_match(&LABEL_NAME, name) {
        problems.push(NAME.to_owned());
    }
    problems
}

fn value_problem(text: &str) -> Option<String> {
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    if text.len() > 63 {
        Some("must be no more than 63 bytes".to_owned())
    } else if text.is_empty() || is_match(&LABEL_NAME, text) {
        None
    } else {
        Some(VALUE.to_owned())
    }
}

fn owner_errors(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let owners = new["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    let mut controllers = 0;
    for (index, owner) in owners.enumerate() {
        let path = |field: &str| format!("metadata.ownerReferences[{index}].{field}");
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let kind = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                let detail = if field == "apiVersion" {
                    kind.to_owned()
                } else {
                    format!("{field} {kind}")
                };
                errors.push(FieldError::invalid(path(field), &json!(""), detail));
            }
        }
        controllers += usize::from(owner["controller"].as_bool().unwrap_or_default());
    }
    if controllers > 1 {
        let detail = "Only one reference can have Controller set to true. Found \"true\" in references for several owners";
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &new["metadata"]["ownerReferences"],
            detail,
        ));
    }
    errors
}

fn finalizer_errors(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let finalizers = object::finalizers(new);
    let mut errors: Vec<FieldError> = finalizers
        .iter()
        .flat_map(|name| {
            key_problems(name)
                .into_iter()
                .map(move |p| FieldError::invalid("metadata.finalizers", &json!(name), p))
        })
        .collect();
    if let Some(old) = old.filter(|old| object::is_being_deleted(old)) {
        let before = object::finalizers(old);
        let added: Vec<&&str> = finalizers.iter().filter(|name| !before.contains(name)).collect();
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|name| show(&json!(name))).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    errors
}
