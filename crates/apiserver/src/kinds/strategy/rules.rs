//! The rules of the smaller kinds: what must go together, and what cannot change.

use serde_json::{Map, Value, json};

use super::{Kind, list, pods, text};
use crate::object::strings;
use crate::status::{FieldError, FieldErrorKind};

pub fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match kind.plural.as_str() {
        "configmaps" => configmap(new, old),
        "secrets" => secret(new, old),
        "deployments" | "daemonsets" | "replicasets" => workload(kind, new, old),
        "persistentvolumeclaims" => claim(new, old),
        "persistentvolumes" => volume(new, old),
        "poddisruptionbudgets" => budget(&new["spec"]),
        "roles" | "clusterroles" => role(kind, new),
        "rolebindings" | "clusterrolebindings" => binding(kind, new, old),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => webhooks(new),
        "leases" => {
            let spec = &new["spec"];
            let duration = &spec["leaseDurationSeconds"];
            let mut errors = at_least(0, "spec.leaseTransitions", &spec["leaseTransitions"]);
            if duration.as_i64().is_some_and(|seconds| seconds <= 0) {
                errors.insert(
                    0,
                    FieldError::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"),
                );
            }
            errors
        }
        "controllerrevisions" => {
            let mut errors = at_least(0, "revision", &new["revision"]);
            errors.extend(fixed(new, old, "data"));
            errors
        }
        "endpointslices" => fixed(new, old, "addressType"),
        "storageclasses" => ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"]
            .into_iter()
            .flat_map(|field| fixed(new, old, field))
            .collect(),
        "priorityclasses" => changed(new, old, "value")
            .map(|_| FieldError::forbidden("value", "may not be changed in an update."))
            .into_iter()
            .collect(),
        "nodes" => node(new, old),
        "certificatesigningrequests" => signing_request(&new["spec"]),
        _ => Vec::new(),
    }
}

const FIXED: &str = "field is immutable";

/// The new value of a field, if it is not the old one.
fn changed<'a>(new: &'a Value, old: Option<&Value>, field: &str) -> Option<&'a Value> {
    old.filter(|old| old[field] != new[field]).map(|_| &new[field])
}

fn fixed(new: &Value, old: Option<&Value>, field: &str) -> Vec<FieldError> {
    let error = changed(new, old, field).map(|value| FieldError::invalid(field, value, FIXED));
    error.into_iter().collect()
}

fn at_least(least: i64, field: &str, value: &Value) -> Vec<FieldError> {
    let wrong = format!("must be greater than or equal to {least}");
    let too_small = value.as_i64().is_some_and(|number| number < least);
    too_small.then(|| FieldError::invalid(field, value, wrong)).into_iter().collect()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> FieldError {
    let supported: Vec<String> = supported.iter().map(|&s| s.to_owned()).collect();
    FieldError::not_supported(field, value, &supported)
}

/// Keys of the maps in a config map or secret, and what `immutable` forbids.
fn data(new: &Value, old: Option<&Value>, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in fields {
        for (key, _) in entries(&new[field]) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if key.is_empty() || !key.chars().all(plain) {
                let wrong = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                    'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(format!("{field}[{key}]"), &json!(key), wrong));
            }
        }
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return errors;
    };
    let kept = |field: &str| new[field] == old[field];
    for field in ["immutable"].iter().chain(fields).filter(|field| !kept(field)) {
        errors.push(FieldError::forbidden(*field, "field is immutable when `immutable` is set"));
    }
    errors
}

fn configmap(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = data(new, old, &["data", "binaryData"]);
    for (key, _) in entries(&new["data"]).filter(|(key, _)| new["binaryData"].get(key).is_some()) {
        let wrong = "duplicate of key present in binaryData";
        errors.push(FieldError::invalid(format!("data[{key}]"), &json!(key), wrong));
    }
    errors
}

fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = fixed(new, old, "type");
    errors.extend(data(new, old, &["data"]));
    let has = |key: &str| new["data"].get(key).is_some();
    let missing = |key: &str| FieldError::required(format!("data[{key}]"), "");
    match text(&new["type"]) {
        "kubernetes.io/tls" => {
            let needed = ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key));
            errors.extend(needed.map(missing));
        }
        "kubernetes.io/dockerconfigjson" if !has(".dockerconfigjson") => {
            errors.push(missing(".dockerconfigjson"));
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => errors.push(missing("ssh-privatekey")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.extend(["username", "password"].map(missing));
        }
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if text(&new["metadata"]["annotations"][account]).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{account}]"), ""));
            }
        }
        _ => {}
    }
    errors
}

/// Whether a label selector (an object) picks these labels (an object).
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = entries(&selector["matchLabels"]).all(|(key, value)| labels[key] == *value);
    let expressions = list(&selector["matchExpressions"]).iter().all(|expression| {
        let label = &labels[text(&expression["key"])];
        let listed = list(&expression["values"]).contains(label);
        match text(&expression["operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => !label.is_null(),
            "DoesNotExist" => label.is_null(),
            _ => false,
        }
    });
    pairs && expressions
}

fn workload(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (spec, template) = (&new["spec"], &new["spec"]["template"]);
    let selector = &spec["selector"];
    let mut errors = at_least(0, "spec.replicas", &spec["replicas"]);
    errors.extend(at_least(0, "spec.minReadySeconds", &spec["minReadySeconds"]));
    let empty =
        entries(&selector["matchLabels"]).next().is_none() && list(&selector["matchExpressions"]).is_empty();
    if !selector.is_null() && empty {
        let wrong = format!("empty selector is invalid for {}", kind.singular);
        errors.push(FieldError::invalid("spec.selector", selector, wrong));
    }
    let labels = &template["metadata"]["labels"];
    if selector.is_null() || !selects(selector, labels) {
        let wrong = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, wrong));
    }
    errors.extend(pods::validate(&template["spec"], "spec.template.spec"));
    let restart = &template["spec"]["restartPolicy"];
    if matches!(text(restart), "Never" | "OnFailure") {
        errors.push(unsupported("spec.template.spec.restartPolicy", restart, &["Always"]));
    }
    errors.extend(rollout(spec));
    if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        errors.push(FieldError::invalid("spec.selector", selector, FIXED));
    }
    errors
}

fn rollout(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (strategy, numbers) = (&spec["strategy"], &spec["strategy"]["rollingUpdate"]);
    if strategy["type"] == "Recreate" && !numbers.is_null() {
        let why = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", why));
    }
    let none = |value: &Value| *value == 0 || *value == "0%";
    if none(&numbers["maxUnavailable"]) && none(&numbers["maxSurge"]) {
        let field = "spec.strategy.rollingUpdate.maxUnavailable";
        let wrong = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(field, &numbers["maxUnavailable"], wrong));
    }
    let deadline = &spec["progressDeadlineSeconds"];
    let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if deadline.as_i64().is_some_and(|deadline| deadline <= ready) {
        let wrong = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, wrong));
    }
    errors
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(spec: &Value, why: &str) -> Vec<FieldError> {
    let modes = list(&spec["accessModes"]);
    if modes.is_empty() {
        return vec![FieldError::required("spec.accessModes", why)];
    }
    let unknown = modes.iter().filter(|mode| !ACCESS_MODES.contains(&text(mode)));
    unknown.map(|mode| unsupported("spec.accessModes", mode, &ACCESS_MODES)).collect()
}

fn claim(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &new["spec"];
    let mut errors = access_modes(spec, "at least 1 access mode is required");
    if spec["resources"]["requests"]["storage"].is_null() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    let Some(old) = old else { return errors };
    // The binder names the volume; a bound claim may grow; a class may be given to a claim that has none.
    let was = &old["spec"];
    let mut free = Vec::new();
    if text(&was["volumeName"]).is_empty() {
        free.extend(["volumeName", "storageClassName"]);
    }
    if old["status"]["phase"] == "Bound" {
        free.extend(["resources", "volumeAttributesClassName"]);
    }
    let rest = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            map.retain(|key, _| !free.contains(&key.as_str()));
        }
        spec
    };
    let reclassed = !was["storageClassName"].is_null() && was["storageClassName"] != spec["storageClassName"];
    if rest(spec) != rest(was) || reclassed {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    errors
}

/// Fields of a volume's spec that are not the volume itself.
const ABOUT_THE_VOLUME: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// What kind of volume it is, and where.
fn source(spec: &Value) -> Vec<(&String, &Value)> {
    let kinds = entries(spec).filter(|(key, _)| !ABOUT_THE_VOLUME.contains(&key.as_str()));
    kinds.collect()
}

fn volume(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &new["spec"];
    let mut errors = access_modes(spec, "");
    if entries(&spec["capacity"]).next().is_none() {
        errors.push(FieldError::required("spec.capacity", ""));
        errors.push(unsupported("spec.capacity", &spec["capacity"], &["storage"]));
    }
    let sources = source(spec);
    if sources.is_empty() {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    for (kind, _) in sources.iter().skip(1) {
        let why = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("spec.{kind}"), why));
    }
    let Some(was) = old.map(|old| &old["spec"]) else {
        return errors;
    };
    if sources != source(was) {
        let why = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    if spec["volumeMode"] != was["volumeMode"] {
        errors.push(FieldError::invalid("volumeMode", &spec["volumeMode"], FIXED));
    }
    errors
}

fn budget(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let wrong = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec, wrong));
    }
    for side in ["minAvailable", "maxUnavailable"] {
        let (field, value) = (format!("spec.{side}"), &spec[side]);
        errors.extend(at_least(0, &field, value));
        let Some(percent) = value.as_str() else { continue };
        let digits = percent.strip_suffix('%').filter(|d| !d.is_empty());
        let wrong = match digits.and_then(|digits| digits.parse::<u32>().ok()) {
            None => {
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                 regex used for validation is '[0-9]+%')"
            }
            Some(101..) => "must not be greater than 100%",
            Some(_) => continue,
        };
        errors.push(FieldError::invalid(field, value, wrong));
    }
    errors
}

fn role(kind: &Kind, role: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in list(&role["rules"]).iter().enumerate() {
        let at = |field: &str| format!("rules[{index}].{field}");
        let none = |field: &str| list(&rule[field]).is_empty();
        if none("verbs") {
            errors.push(FieldError::required(at("verbs"), "verbs must contain at least one value"));
        }
        if !none("nonResourceURLs") {
            if kind.namespaced {
                let wrong = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], wrong));
            } else if !none("apiGroups") || !none("resources") || !none("resourceNames") {
                let wrong = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], wrong));
            }
            continue;
        }
        if none("apiGroups") {
            let why = "resource rules must supply at least one api group";
            errors.push(FieldError::required(at("apiGroups"), why));
        }
        if none("resources") {
            let why = "resource rules must supply at least one resource";
            errors.push(FieldError::required(at("resources"), why));
        }
    }
    errors
}

fn binding(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let role = &new["roleRef"];
    let mut errors = Vec::new();
    let roles: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !roles.contains(&text(&role["kind"])) {
        errors.push(unsupported("roleRef.kind", &json!(text(&role["kind"])), roles));
    }
    if text(&role["name"]).is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in list(&new["subjects"]).iter().enumerate() {
        let kinds = ["ServiceAccount", "User", "Group"];
        if subject["kind"].is_string() && !kinds.contains(&text(&subject["kind"])) {
            errors.push(unsupported(format!("subjects[{index}].kind"), &subject["kind"], &kinds));
        }
        // The server asks this of cluster-wide bindings alone.
        let homeless = subject["kind"] == "ServiceAccount" && text(&subject["namespace"]).is_empty();
        if homeless && !kind.namespaced {
            errors.push(FieldError::required(format!("subjects[{index}].namespace"), ""));
        }
    }
    if let Some(role) = changed(new, old, "roleRef") {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}

fn webhooks(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, webhook) in list(&configuration["webhooks"]).iter().enumerate() {
        let at = |field: &str| format!("webhooks[{index}].{field}");
        if webhook["name"].is_string()
            && text(&webhook["name"]).split('.').filter(|s| !s.is_empty()).count() < 3
        {
            let wrong = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(at("name"), &webhook["name"], wrong));
        }
        match text(&webhook["sideEffects"]) {
            "None" | "NoneOnDryRun" => {}
            "" => {
                let why = "must specify one of None, NoneOnDryRun";
                errors.push(FieldError::required(at("sideEffects"), why));
            }
            _ => {
                let supported = ["None", "NoneOnDryRun"];
                errors.push(unsupported(at("sideEffects"), &webhook["sideEffects"], &supported));
            }
        }
        let timeout = &webhook["timeoutSeconds"];
        if timeout.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            let wrong = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(at("timeoutSeconds"), timeout, wrong));
        }
        let client = &webhook["clientConfig"];
        if client["url"].is_string() == client["service"].is_object() {
            let why = "exactly one of url or service is required";
            errors.push(FieldError::required(at("clientConfig"), why));
        } else if let Some((scheme, _)) =
            text(&client["url"]).split_once("://").filter(|(s, _)| *s != "https")
        {
            let wrong = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            errors.push(FieldError::invalid(at("clientConfig.url"), &json!(scheme), wrong));
        }
        let versions = strings(&webhook["admissionReviewVersions"]);
        if versions.is_empty() {
            let why = "must specify one of v1, v1beta1";
            errors.push(FieldError::required(at("admissionReviewVersions"), why));
        } else if !versions.iter().any(|v| matches!(*v, "v1" | "v1beta1")) {
            let wrong = "must include at least one of v1, v1beta1";
            let value = &webhook["admissionReviewVersions"];
            errors.push(FieldError::invalid(at("admissionReviewVersions"), value, wrong));
        }
        for (number, rule) in list(&webhook["rules"]).iter().enumerate() {
            let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
            for (place, operation) in list(&rule["operations"]).iter().enumerate() {
                if !known.contains(&text(operation)) {
                    let field = at(&format!("rules[{number}].operations[{place}]"));
                    errors.push(unsupported(field, operation, &known));
                }
            }
        }
    }
    errors
}

fn node(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let taints = list(&new["spec"]["taints"]);
    for (index, taint) in taints.iter().enumerate() {
        let same = |t: &Value| t["key"] == taint["key"] && t["effect"] == taint["effect"];
        if taints[..index].iter().any(same) {
            let wrong = "taints must be unique by key and effect pair";
            // As Go prints the taint.
            let shown = format!(
                r#"{{"Key":{},"Value":{},"Effect":{},"TimeAdded":null}}"#,
                taint["key"],
                json!(text(&taint["value"])),
                taint["effect"]
            );
            let field = format!("metadata.taints[{index}]");
            errors.push(FieldError::of(FieldErrorKind::Duplicate, field, shown, wrong));
        }
    }
    for (field, shown, name) in
        [("podCIDR", "podCIDRs", "podCIDR"), ("providerID", "providerID", "providerID")]
    {
        let was = old.map_or("", |old| text(&old["spec"][field]));
        if !was.is_empty() && new["spec"][field] != was {
            let why = format!("node updates may not change {name} except from \"\" to valid");
            errors.push(FieldError::forbidden(format!("spec.{shown}"), why));
        }
    }
    errors
}

fn signing_request(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if list(&spec["usages"]).is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let signer = &spec["signerName"];
    if signer.is_string() && !text(signer).contains('/') {
        let wrong = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", signer, wrong));
    }
    errors
}
