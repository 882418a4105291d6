//! What single built-in kinds do before they are stored: the few rules that no schema can say.
//!
//! Everything here is a function of the object (and of the stored one, on update): no clock, no store, no user.
//! Custom resources pass through untouched. Objects arrive with their schema's defaults filled in; a field of the
//! wrong type is left for the schema's validation to report. What the real server's admission plugins add is here
//! as far as pods need it; protection finalizers and not-ready taints are not, because nothing would take them off.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::Kind;
use crate::object::{self, JsonMap};
use crate::schema::defaults;
use crate::status::{ApiResult, FieldError};

mod events;
mod names;
mod pods;
mod quantities;
mod rules;
mod services;

pub use names::{NameRule, name_rule};
pub use quantities::is_quantity;

/// Prepares a new object (after defaulting): initial status, derived fields.
pub fn prepare_create(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        return;
    }
    begin_status(kind, object);
    derive(kind, object);
    match kind.plural.as_str() {
        "namespaces" => {
            let spec = object::child_mut(object::as_map_mut(object), "spec");
            default(spec, "finalizers", json!(["kubernetes"]));
            put(object, "status", json!({"phase": "Active"}));
        }
        "pods" => pods::begin(object),
        "persistentvolumeclaims" | "persistentvolumes" => put(object, "status", json!({"phase": "Pending"})),
        "daemonsets" => set_template_generation(object, 1),
        _ => {}
    }
}

/// Prepares an update of the main endpoint: fields that a client cannot change are put back.
pub fn prepare_update(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.custom.is_some() {
        return;
    }
    match kind.plural.as_str() {
        "services" => services::keep_allocated(new, old),
        "pods" => pods::keep_decided(new, old),
        // Finalizers go by way of /finalize, decisions by way of /approval.
        "namespaces" | "certificatesigningrequests" => put(new, "spec", old["spec"].clone()),
        _ => {}
    }
    derive(kind, new);
    if kind.plural == "daemonsets" {
        let was = template_generation(old);
        let changed = new["spec"]["template"] != old["spec"]["template"];
        set_template_generation(new, was + i64::from(changed));
    }
}

/// A status is there from the beginning, with zeros for the numbers that the types always write.
fn begin_status(kind: &Kind, object: &mut Value) {
    if kind.status && object.get("status").is_none() {
        let mut status = json!({});
        if let Some(known) = kind.schema.get().field("status") {
            defaults::apply(known, &mut status);
        }
        put(object, "status", status);
    }
}

/// What the server decides on every write, whoever made it: nobody owns these fields.
fn derive(kind: &Kind, object: &mut Value) {
    match kind.plural.as_str() {
        // A generated name was not known before.
        "namespaces" => label_with_name(object),
        "pods" => pods::tolerate_short_outages(object),
        "services" => services::derive_addresses(object),
        "persistentvolumeclaims" => {
            if let Some(spec) = map_at(object, &["spec"]) {
                for (one, other) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
                    let source = get(spec, one).clone();
                    // A reference may point to another namespace, which the older field cannot.
                    if !source.is_null() && source["namespace"].is_null() {
                        default(spec, other, source);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Defaults that depend on other fields, and other spellings of the same: part of reading an object, so that whoever
/// wrote it owns them.
pub fn complete(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        return;
    }
    quantities::normalize(&kind.schema, object);
    match kind.plural.as_str() {
        "pods" => pods::complete(object, &["spec"], true),
        "deployments" | "daemonsets" | "replicasets" => {
            pods::complete(object, &["spec", "template", "spec"], false);
            complete_strategy(object);
        }
        "services" => services::complete(object),
        "namespaces" => label_with_name(object),
        "secrets" => absorb_plain_text(object),
        // A reference to a secret is its name, and nothing else.
        "serviceaccounts" => {
            for secret in each_at(object, "secrets") {
                secret.retain(|field, _| field == "name");
            }
        }
        "nodes" => {
            if let Some(status) = map_at(object, &["status"]) {
                let capacity = get(status, "capacity").clone();
                if !capacity.is_null() {
                    default(status, "allocatable", capacity);
                }
            }
            if let Some(spec) = map_at(object, &["spec"]) {
                let range = get(spec, "podCIDR").clone();
                if !range.is_null() {
                    default(spec, "podCIDRs", json!([range]));
                }
            }
        }
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            for webhook in each_at(object, "webhooks") {
                default(webhook, "namespaceSelector", json!({}));
                default(webhook, "objectSelector", json!({}));
            }
        }
        "rolebindings" | "clusterrolebindings" => {
            for subject in each_at(object, "subjects") {
                if matches!(text(get(subject, "kind")), "User" | "Group") {
                    default(subject, "apiGroup", "rbac.authorization.k8s.io");
                }
            }
        }
        _ => {}
    }
}

fn label_with_name(namespace: &mut Value) {
    let name = object::name(namespace).to_owned();
    if !name.is_empty() {
        let labels = object::child_mut(object::metadata_mut(namespace), "labels");
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// The numbers of a rolling update, which the other strategies do not have.
fn complete_strategy(workload: &mut Value) {
    for (field, numbers) in [
        ("strategy", json!({"maxUnavailable": "25%", "maxSurge": "25%"})),
        ("updateStrategy", json!({"maxUnavailable": 1, "maxSurge": 0})),
    ] {
        if let Some(strategy) = map_at(workload, &["spec", field])
            && get(strategy, "type") == "RollingUpdate"
        {
            default(strategy, "rollingUpdate", numbers);
        }
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(set: &Value) -> i64 {
    let annotation = &set["metadata"]["annotations"][TEMPLATE_GENERATION];
    text(annotation).parse().unwrap_or(1)
}

fn set_template_generation(set: &mut Value, generation: i64) {
    let annotations = object::child_mut(object::metadata_mut(set), "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), json!(generation.to_string()));
}

/// `stringData` is a way to write `data`, and is never read back.
fn absorb_plain_text(secret: &mut Value) {
    let Some(secret) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(plain)) = secret.remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    let data = object::child_mut(secret, "data");
    for (key, value) in plain {
        data.insert(key, BASE64_STANDARD.encode(text(&value)).into());
    }
}

/// Rules of single kinds on create (`old` absent) and update.
pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if kind.custom.is_some() {
        return Vec::new();
    }
    match kind.plural.as_str() {
        "pods" => {
            let mut errors = pods::validate(&new["spec"], "spec");
            errors.extend(old.into_iter().flat_map(|old| pods::validate_update(new, old)));
            errors
        }
        "services" => services::validate(new, old),
        "events" => events::validate(kind, new),
        _ => rules::validate(kind, new, old),
    }
}

/// The stored object as this version of the kind shows it (events have two faces).
pub fn present(kind: &Kind, object: &mut Value) {
    if &*kind.storage == "events" && kind.custom.is_none() {
        events::present(kind, object);
    }
}

/// The reverse of [`present`]: what the client sent, as it is stored.
#[allow(clippy::unnecessary_wraps, reason = "conversions may fail; those there are today cannot")]
pub fn absorb(kind: &Kind, object: &mut Value) -> ApiResult<()> {
    if &*kind.storage == "events" && kind.custom.is_none() {
        events::absorb(kind, object);
    }
    Ok(())
}

/// The value that a field selector compares, for fields that are not simply at their path. `None`: they are.
pub fn selectable_value(kind: &Kind, object: &Value, field: &str) -> Option<String> {
    if kind.custom.is_some() {
        return None;
    }
    let shown = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(match (kind.plural.as_str(), field) {
        // Flags that are left out are false.
        ("nodes", "spec.unschedulable") => (object["spec"]["unschedulable"] == true).to_string(),
        ("pods", "spec.hostNetwork") => (object["spec"]["hostNetwork"] == true).to_string(),
        // Accepted, but never filled in by the real server.
        ("pods", "status.podIPs") => String::new(),
        ("events", "source") => {
            let component = text(&events::field(object, "source")["component"]);
            let reporter = text(events::field(object, "reportingComponent"));
            if component.is_empty() { reporter } else { component }.to_owned()
        }
        ("events", _) => match field.split_once('.') {
            Some((outer, inner)) => shown(&events::field(object, outer)[inner]),
            None => shown(events::field(object, field)),
        },
        _ => return None,
    })
}

// Reading and writing JSON of which nothing is certain: a missing or misshapen part is passed over.

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn get<'a>(map: &'a JsonMap, key: &str) -> &'a Value {
    map.get(key).unwrap_or(&Value::Null)
}

fn put(object: &mut Value, key: &str, value: Value) {
    object::as_map_mut(object).insert(key.into(), value);
}

fn map_at<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut JsonMap> {
    let mut value = object;
    for key in path {
        value = value.get_mut(key)?;
    }
    value.as_object_mut()
}

/// The objects of a list.
fn each<'a>(map: &'a mut JsonMap, key: &str) -> impl Iterator<Item = &'a mut JsonMap> {
    let elements = map.get_mut(key).and_then(Value::as_array_mut);
    elements.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn each_at<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut JsonMap> {
    object.as_object_mut().into_iter().flat_map(move |map| each(map, key))
}

fn default(map: &mut JsonMap, key: &str, value: impl Into<Value>) {
    if get(map, key).is_null() {
        map.insert(key.into(), value.into());
    }
}

/// Complains of a port number that is none; a missing or named port is not this function's business.
fn port_in_range(field: String, port: &Value) -> Option<FieldError> {
    let number = port.as_i64()?;
    let wrong = "must be between 1 and 65535, inclusive";
    (!(1..=65535).contains(&number)).then(|| FieldError::invalid(field, port, wrong))
}
