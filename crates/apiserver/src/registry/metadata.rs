//! `metadata`: what the server writes there, what it keeps, and the rules for names, labels and the rest.

use serde_json::{Value, json};

use crate::kinds::{Kind, strategy};
use crate::object;
use crate::selector::{label_key_errors, label_value_errors};
use crate::status::{ApiError, ApiResult, FieldError, FieldErrorKind};

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
            return Err(ApiError::bad_request("namespace may not be specified on a cluster-scoped object"));
        }
        object::remove_meta(object, "namespace");
    }
    Ok(())
}

/// What cannot even be considered: no name at all, or a resourceVersion on something new.
pub(super) fn check_new(kind: &Kind, object: &Value) -> ApiResult<()> {
    if !object::meta_str(object, "resourceVersion").is_empty() {
        return Err(ApiError::new(500, "", "resourceVersion should not be set on objects to be created"));
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
    for server_owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
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
    let kept: Vec<(&str, Option<Value>)> =
        server_owned.iter().map(|field| (*field, old["metadata"].get(*field).cloned())).collect();
    let meta = object::metadata_mut(new);
    for (field, value) in kept {
        match value {
            Some(value) => meta.insert(field.into(), value),
            None => meta.remove(field),
        };
    }
}

/// Rules on the metadata of a new object, or of a changed one.
pub(super) fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let common = [map_errors(new, "labels"), map_errors(new, "annotations"), owner_errors(new)].concat();
    let finalizers = finalizer_errors(kind, new);
    match old {
        None => [name_errors(kind, new), common, finalizers].concat(),
        // The real server looks at the metadata of a changed object as such, as changed, and once more with the kind:
        // a client that counts causes sees all of them.
        Some(old) => {
            let changed = [new_finalizer_errors(new, old), common.clone()].concat();
            [common, finalizers, changed.clone(), changed].concat()
        }
    }
}

fn name_errors(kind: &Kind, new: &Value) -> Vec<FieldError> {
    let rule = strategy::name_rule(kind);
    let mut errors = Vec::new();
    for (field, is_prefix) in [("generateName", true), ("name", false)] {
        let name = object::meta_str(new, field);
        if is_prefix && name.is_empty() {
            continue;
        }
        let problems = rule.check(name, is_prefix).into_iter();
        errors.extend(
            problems.map(|problem| FieldError::invalid(format!("metadata.{field}"), &json!(name), problem)),
        );
    }
    errors
}

fn map_errors(new: &Value, field: &str) -> Vec<FieldError> {
    let path = format!("metadata.{field}");
    let mut errors = Vec::new();
    let mut total = 0;
    for (key, value) in new["metadata"][field].as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        total += key.len() + text.len();
        let about = |problem: String, of: &str| FieldError::invalid(&path, &json!(of), problem);
        errors.extend(label_key_errors(key).into_iter().map(|problem| about(problem, key)));
        if field == "labels" {
            errors.extend(label_value_errors(text).into_iter().map(|problem| about(problem, text)));
        }
    }
    if field == "annotations" && total > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError::of(FieldErrorKind::TooLong, path, String::new(), detail));
    }
    errors
}

fn owner_errors(new: &Value) -> Vec<FieldError> {
    const PATH: &str = "metadata.ownerReferences";
    let owners = new["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let mut errors = Vec::new();
    for owner in owners {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let detail =
                    if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                errors.push(FieldError::invalid(format!("{PATH}.{field}"), &json!(""), detail));
            }
        }
    }
    let text = |owner: &Value, field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    let controllers: Vec<String> = owners
        .iter()
        .filter(|owner| owner["controller"] == true)
        .map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")))
        .collect();
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::invalid(PATH, &new["metadata"]["ownerReferences"], detail));
    }
    errors
}

const FINALIZERS: &str = "metadata.finalizers";

fn finalizer_errors(kind: &Kind, new: &Value) -> Vec<FieldError> {
    let finalizers = object::finalizers(new);
    let mut errors = Vec::new();
    for (index, name) in finalizers.iter().enumerate() {
        let problems = label_key_errors(name).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(FINALIZERS, &json!(name), problem)));
        let is_standard = matches!(*name, "kubernetes" | "orphan" | "foregroundDeletion");
        if kind.group.is_empty() && !is_standard && !name.contains('/') {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("{FINALIZERS}[{index}]"), &json!(name), detail));
        }
    }
    errors
}

/// An object that is being deleted has the finalizers that it has.
fn new_finalizer_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let before = object::finalizers(old);
    let added: Vec<String> = object::finalizers(new)
        .iter()
        .filter(|name| object::is_being_deleted(old) && !before.contains(name))
        .map(|name| format!("{name:?}"))
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    vec![FieldError::forbidden(FINALIZERS, detail)]
}

/// Empty lists and maps in `metadata` are as good as none, and are not kept.
pub(super) fn tidy(object: &mut Value) {
    let meta = object::metadata_mut(object);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = match meta.get(field) {
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            meta.remove(field);
        }
    }
}
