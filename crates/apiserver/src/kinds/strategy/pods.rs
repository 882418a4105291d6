//! Pods, and the templates of those who make pods.
//!
//! [`complete`] fills in what depends on other fields, for every write: an update that leaves a field out means
//! what a new pod would get. A pod's spec can hardly change once it is made; [`validate_update`] says so.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{default, each, get, list, map_at, names, port_in_range, quantities, text};
use crate::object::JsonMap;
use crate::status::{FieldError, FieldErrorKind};

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
const IMMUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Completes the pod spec at `path`; a pod itself gets a little more than a template.
pub fn complete(object: &mut Value, path: &[&str], is_pod: bool) {
    let Some(spec) = map_at(object, path) else { return };
    let host_network = get(spec, "hostNetwork") == true;
    for container in CONTAINERS {
        for container in each(spec, container) {
            let policy = pull_policy(text(get(container, "image")));
            default(container, "imagePullPolicy", policy);
            if is_pod && host_network {
                for port in each(container, "ports") {
                    let inside = get(port, "containerPort").clone();
                    default(port, "hostPort", inside);
                }
            }
            if is_pod {
                request_what_is_limited(container);
            }
        }
    }
    for volume in each(spec, "volumes") {
        if volume.keys().all(|key| key == "name") {
            volume.insert("emptyDir".into(), json!({}));
        }
        if let Some(Value::Object(image)) = volume.get_mut("image") {
            let policy = pull_policy(text(get(image, "reference")));
            default(image, "pullPolicy", policy);
        }
    }
    // One field under two names.
    for (one, other) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        let account = text(get(spec, one)).to_owned();
        if !account.is_empty() {
            default(spec, other, account);
        }
    }
    default(spec, "securityContext", json!({}));
    if is_pod {
        default(spec, "enableServiceLinks", true);
    }
}

/// An image that may change under its name is asked for again each time.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        _ if last.contains('@') => "IfNotPresent",
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

fn request_what_is_limited(container: &mut JsonMap) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = crate::object::child_mut(resources, "requests");
    for (resource, limit) in limits {
        requests.entry(resource).or_insert(limit);
    }
}

/// A node's short outage does not evict its pods at once.
pub fn tolerate_short_outages(pod: &mut Value) {
    let Some(spec) = map_at(pod, &["spec"]) else { return };
    default(spec, "tolerations", json!([]));
    let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") else {
        return;
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |t: &Value| {
            (t["key"] == key || text(&t["key"]).is_empty())
                && (t["effect"] == "NoExecute" || text(&t["effect"]).is_empty())
        };
        if !tolerations.iter().any(covers) {
            let seconds = 300;
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
            }));
        }
    }
}

/// The state of a new pod.
pub fn begin(pod: &mut Value) {
    let class = quality_of_service(&pod["spec"]);
    if let Some(spec) = map_at(pod, &["spec"]) {
        let priority = match text(get(spec, "priorityClassName")) {
            "system-node-critical" => 2_000_001_000,
            "system-cluster-critical" => 2_000_000_000,
            _ => 0,
        };
        default(spec, "priority", priority);
        default(spec, "preemptionPolicy", "PreemptLowerPriority");
    }
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("status".into(), json!({"phase": "Pending", "qosClass": class}));
    }
}

/// What was decided when the pod was made stays, when an update does not mention it.
pub fn keep_decided(new: &mut Value, old: &Value) {
    let Some(spec) = map_at(new, &["spec"]) else {
        return;
    };
    for field in ["priority", "preemptionPolicy"] {
        if !old["spec"][field].is_null() {
            default(spec, field, old["spec"][field].clone());
        }
    }
}

fn quality_of_service(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for container in CONTAINERS[..2].iter().flat_map(|kind| list(&spec[*kind])) {
        for resource in ["cpu", "memory"] {
            let amount = |side: &str| {
                let amount = text(&container["resources"][side][resource]);
                quantities::nanos(amount).filter(|amount| *amount > 0)
            };
            let (request, limit) = (amount("requests"), amount("limits"));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What a schema cannot say of the pod spec at `path`.
pub fn validate(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec["containers"].as_array().is_some_and(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut volumes = HashSet::new();
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let at = format!("{path}.volumes[{index}]");
        if !volumes.insert(text(&volume["name"])) {
            errors.push(FieldError::duplicate(format!("{at}.name"), &volume["name"]));
        }
        let kinds = volume.as_object().into_iter().flatten();
        for (kind, _) in kinds.filter(|(key, value)| *key != "name" && !value.is_null()).skip(1) {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{at}.{kind}"), why));
        }
    }
    let mut known = HashSet::new();
    for kind in CONTAINERS {
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let at = format!("{path}.{kind}[{index}]");
            errors.extend(validate_container(container, &at, &volumes));
            if !known.insert(text(&container["name"])) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &container["name"]));
            }
        }
    }
    errors
}

fn validate_container(container: &Value, at: &str, volumes: &HashSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(&container["name"]);
    // A missing name is the schema's to report.
    if !container["name"].is_null()
        && let Some(wrong) = names::label(name)
    {
        errors.push(FieldError::invalid(format!("{at}.name"), &container["name"], wrong));
    }
    if text(&container["image"]).is_empty() {
        errors.push(FieldError::required(format!("{at}.image"), ""));
    }
    for (index, port) in list(&container["ports"]).iter().enumerate() {
        let field = format!("{at}.ports[{index}].containerPort");
        errors.extend(port_in_range(field, &port["containerPort"]));
    }
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        if !volumes.contains(text(&mount["name"])) {
            let field = format!("{at}.volumeMounts[{index}].name");
            let value = mount["name"].to_string();
            errors.push(FieldError::of(FieldErrorKind::NotFound, field, value, ""));
        }
    }
    let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
    for (resource, request) in requests.as_object().into_iter().flatten() {
        let amount = quantities::nanos(text(request));
        if amount.is_some_and(|amount| amount < 0) {
            let field = format!("{at}.resources.requests[{resource}]");
            let wrong = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(field, request, wrong));
        }
        let limit = text(&limits[resource]);
        if quantities::nanos(limit).is_some_and(|limit| amount > Some(limit)) {
            let field = format!("{at}.resources.requests");
            let wrong = format!("must be less than or equal to {resource} limit of {limit}");
            errors.push(FieldError::invalid(field, request, wrong));
        }
    }
    errors
}

pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (&new["spec"], &old["spec"]);
    for kind in ["containers", "initContainers"] {
        if list(&new[kind]).len() != list(&old[kind]).len() {
            let why = "pod updates may not add or remove containers";
            return vec![FieldError::forbidden(format!("spec.{kind}"), why)];
        }
    }
    let mut errors = Vec::new();
    let (deadline, was) = (&new["activeDeadlineSeconds"], &old["activeDeadlineSeconds"]);
    let why = match (deadline.as_i64(), was.as_i64()) {
        (Some(now), Some(was)) if now > was => "must be less than or equal to previous value",
        (None, Some(_)) => "must not update from a positive integer to nil value",
        _ => "",
    };
    if !why.is_empty() {
        errors.push(FieldError::invalid("spec.activeDeadlineSeconds", deadline, why));
    }
    let without_time = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().map(|map| map.remove("tolerationSeconds"));
        toleration
    };
    let kept: Vec<Value> = list(&new["tolerations"]).iter().map(without_time).collect();
    if !list(&old["tolerations"]).iter().all(|t| kept.contains(&without_time(t))) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    if errors.is_empty() && masked(new, old) != *old {
        errors.push(FieldError::forbidden("spec", IMMUTABLE));
    }
    errors
}

/// The new spec with the old values of all that may change.
fn masked(new: &Value, old: &Value) -> Value {
    let mut masked = new.clone();
    let Some(spec) = masked.as_object_mut() else {
        return masked;
    };
    for kind in ["containers", "initContainers"] {
        for (container, was) in each(spec, kind).zip(list(&old[kind])) {
            container.insert("image".into(), was["image"].clone());
        }
    }
    let mut free = vec!["activeDeadlineSeconds", "tolerations"];
    if old["terminationGracePeriodSeconds"].as_i64().is_some_and(|s| s < 0)
        && new["terminationGracePeriodSeconds"] == 1
    {
        free.push("terminationGracePeriodSeconds");
    }
    // A pod that is held back may be let go, and be told where to go.
    if !list(&old["schedulingGates"]).is_empty() {
        free.extend(["schedulingGates", "nodeSelector", "affinity"]);
    }
    for field in free {
        match old.get(field) {
            Some(value) => spec.insert(field.into(), value.clone()),
            None => spec.remove(field),
        };
    }
    masked
}
