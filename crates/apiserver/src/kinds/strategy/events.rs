//! Events have two faces: `v1`, in which they are stored, and `events.k8s.io/v1`.

use serde_json::Value;

use super::{Kind, text};
use crate::object::{JsonMap, namespace};
use crate::status::FieldError;

/// The field in `v1`, and in `events.k8s.io/v1`.
const FACES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(object: &mut Value, api_version: &str, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(map) = object.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
    map.insert("apiVersion".into(), api_version.into());
}

/// The stored event in the words of this kind's version.
pub fn present(kind: &Kind, object: &mut Value) {
    if kind.group.is_empty() {
        return;
    }
    rename(object, "events.k8s.io/v1", FACES.into_iter());
    // `v1` always writes these out, the other leaves them out when they are empty.
    if let Some(map) = object.as_object_mut() {
        let blank = |map: &JsonMap, key: &str| map.get(key).is_some_and(|value| value == "");
        for key in ["reportingController", "reportingInstance"] {
            if blank(map, key) {
                map.remove(key);
            }
        }
    }
}

/// The event as it is stored.
pub fn absorb(kind: &Kind, object: &mut Value) {
    if !kind.group.is_empty() {
        rename(object, "v1", FACES.into_iter().map(|(core, other)| (other, core)));
    }
    // Either version always writes it out.
    if let Some(map) = object.as_object_mut() {
        map.entry("eventTime").or_insert(Value::Null);
    }
}

/// A field by its name in either version, whichever face the object shows.
pub fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let other = FACES.iter().find_map(|(core, other)| match name {
        _ if name == *core => Some(*other),
        _ if name == *other => Some(*core),
        _ => None,
    });
    match &object[name] {
        Value::Null => other.map_or(&Value::Null, |other| &object[other]),
        value => value,
    }
}

pub fn validate(kind: &Kind, event: &Value) -> Vec<FieldError> {
    let about = text(&field(event, "involvedObject")["namespace"]);
    let mut errors = Vec::new();
    if !about.is_empty() && about != namespace(event) {
        let value = about.into();
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            &value,
            "does not match event.namespace",
        ));
    }
    if kind.group.is_empty() {
        return errors;
    }
    if event["eventTime"].is_null() {
        errors.push(FieldError::required("eventTime", ""));
    } else {
        for required in ["reportingController", "reportingInstance", "action", "reason"] {
            if text(field(event, required)).is_empty() {
                errors.push(FieldError::required(required, ""));
            }
        }
    }
    let severity = text(&event["type"]);
    if severity != "Normal" && severity != "Warning" {
        let detail = format!("has invalid value: {severity}");
        errors.push(FieldError::invalid("type", &"".into(), detail));
    }
    errors
}
