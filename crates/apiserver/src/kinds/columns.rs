//! What kubectl prints of the built-in kinds: the columns (`columns.txt`) and their values.
//!
//! Values are computed here and nowhere else, from the object and the time alone. They are the real server's,
//! to the letter: people and scripts read them. The cells of a row are in the order of the kind's columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, Kind};
use crate::object::{at_path, is_being_deleted, labels, name, strings};

mod pods;

/// The columns of a built-in resource.
pub fn of(plural: &str) -> Vec<Column> {
    include_str!("columns.txt")
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('|');
            if parts.next()? != plural {
                return None;
            }
            let name = parts.next()?;
            Some(Column {
                name: name.into(),
                kind: parts.next()?.into(),
                format: if name == "Name" { "name".into() } else { String::new() },
                priority: parts.next()?.parse().ok()?,
                description: parts.next()?.replace("\\n", "\n"),
                path: String::new(),
            })
        })
        .collect()
}

/// The cells of a built-in object's row. `None`: the columns' own paths say where the values are.
pub fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    if kind.custom.is_some() {
        return None;
    }
    let o = object;
    let age = json!(age(&o["metadata"]["creationTimestamp"], now));
    let named = json!(name(o));
    let (spec, status) = (&o["spec"], &o["status"]);
    Some(match kind.plural.as_str() {
        "configmaps" => vec![named, json!(count(&o["data"]) + count(&o["binaryData"])), age],
        "events" => event(o, now),
        "namespaces" => vec![named, json!(text(&status["phase"])), age],
        "nodes" => node(o, age),
        "persistentvolumeclaims" => claim(o, age),
        "persistentvolumes" => volume(o, age),
        "pods" => pods::cells(o, age, now),
        "secrets" => vec![named, json!(text(&o["type"])), json!(count(&o["data"])), age],
        "serviceaccounts" => vec![named, age],
        "services" => service(o, age),
        "leases" => vec![named, json!(text(&spec["holderIdentity"])), age],
        "endpointslices" => endpoint_slice(o, age),
        "poddisruptionbudgets" => {
            let limit = |value: &Value| json!(if value.is_null() { "N/A".to_owned() } else { plain(value) });
            let allowed = number(&status["disruptionsAllowed"]);
            let (least, most) = (limit(&spec["minAvailable"]), limit(&spec["maxUnavailable"]));
            vec![named, least, most, json!(allowed), age]
        }
        "controllerrevisions" => vec![named, json!(controller(o)), json!(number(&o["revision"])), age],
        "daemonsets" => {
            let counted = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let mut row = vec![named];
            row.extend(counted.map(|field| json!(number(&status[field]))));
            row.push(json!(pairs(&spec["template"]["spec"]["nodeSelector"])));
            row.push(age);
            row.extend(template(spec));
            row
        }
        "deployments" => {
            let ready = format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"]));
            let (updated, available) =
                (number(&status["updatedReplicas"]), number(&status["availableReplicas"]));
            let mut row = vec![named, json!(ready), json!(updated), json!(available), age];
            row.extend(template(spec));
            row
        }
        "replicasets" => {
            let (current, ready) = (number(&status["replicas"]), number(&status["readyReplicas"]));
            let mut row = vec![named, json!(number(&spec["replicas"])), json!(current), json!(ready), age];
            row.extend(template(spec));
            row
        }
        "customresourcedefinitions" | "clusterroles" | "roles" => {
            vec![named, json!(text(&o["metadata"]["creationTimestamp"]))]
        }
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            vec![named, json!(list(&o["webhooks"]).len()), age]
        }
        "clusterrolebindings" | "rolebindings" => binding(o, age),
        "certificatesigningrequests" => signing_request(o, age),
        "storageclasses" => {
            let default = at_path(o, "metadata.annotations")
                .is_some_and(|a| a["storageclass.kubernetes.io/is-default-class"] == "true");
            let named = if default { format!("{} (default)", name(o)) } else { name(o).to_owned() };
            let fields = ["provisioner", "reclaimPolicy", "volumeBindingMode"];
            let mut row = vec![json!(named)];
            row.extend(fields.map(|field| json!(text(&o[field]))));
            row.extend([json!(o["allowVolumeExpansion"] == true), age]);
            row
        }
        "priorityclasses" => {
            let default = json!(o["globalDefault"] == true);
            let policy = json!(text(&o["preemptionPolicy"]));
            vec![named, json!(number(&o["value"])), default, age, policy]
        }
        _ => return None,
    })
}

/// A duration as kubectl shortens it: two units at most, and one where the second would not matter.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |whole: i64, unit: &str, rest: i64, small: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{small}"),
    };
    match hours {
        _ if seconds < -1 => "<invalid>".to_owned(),
        _ if seconds < 120 => format!("{}s", seconds.max(0)),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", (hours / 24) % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// The time since an RFC 3339 time; `<unknown>` when there is none.
fn age(since: &Value, now: Timestamp) -> String {
    match since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(since) => human_duration(now.duration_since(since).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn count(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

/// A number or text as text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn or<'a>(value: &'a str, otherwise: &'a str) -> &'a str {
    if value.is_empty() { otherwise } else { value }
}

fn or_none(value: &str) -> &str {
    or(value, "<none>")
}

/// `k=v,…` in key order.
fn pairs(map: &Value) -> String {
    let all: Vec<String> =
        map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", text(value))).collect();
    or_none(&all.join(",")).to_owned()
}

/// A label selector as kubectl writes one: `a=b,c in (d,e),!f`, sorted by key.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", text(value))))
        .collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values = strings(&expression["values"]);
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    or_none(&terms.join(",")).to_owned()
}

/// The wide columns of a workload: container names, images, selector.
fn template(spec: &Value) -> [Value; 3] {
    let containers = list(&spec["template"]["spec"]["containers"]);
    let all = |field: &str| {
        let values: Vec<&str> = containers.iter().map(|c| text(&c[field])).collect();
        json!(values.join(","))
    };
    [all("name"), all("image"), json!(selector(&spec["selector"]))]
}

fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    // Stored as core/v1 and shown in either form: the other form's names are tried second.
    let field = |core: &str, other: &str| if o[core].is_null() { &o[other] } else { &o[core] };
    let object = field("involvedObject", "regarding");
    let source = field("source", "deprecatedSource");
    let mut first = age(field("firstTimestamp", "deprecatedFirstTimestamp"), now);
    if first == "<unknown>" {
        first = age(&o["eventTime"], now);
    }
    let mut last = age(field("lastTimestamp", "deprecatedLastTimestamp"), now);
    if last == "<unknown>" {
        last.clone_from(&first);
    }
    let mut times = number(field("count", "deprecatedCount")).max(1);
    if o["series"].is_object() {
        last = age(&o["series"]["lastObservedTime"], now);
        times = number(&o["series"]["count"]);
    }
    let mut about = text(&object["kind"]).to_lowercase();
    if !text(&object["name"]).is_empty() {
        about = format!("{about}/{}", text(&object["name"]));
    }
    let reporter = field("reportingComponent", "reportingController");
    let component = or(text(&source["component"]), text(reporter));
    let host = or(text(&source["host"]), text(&o["reportingInstance"]));
    let source = match host {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    };
    vec![
        json!(last),
        json!(text(&o["type"])),
        json!(text(&o["reason"])),
        json!(about),
        json!(text(&object["fieldPath"])),
        json!(source),
        json!(text(field("message", "note")).trim()),
        json!(first),
        json!(times),
        json!(name(o)),
    ]
}

fn node(o: &Value, age: Value) -> Vec<Value> {
    let (status, info) = (&o["status"], &o["status"]["nodeInfo"]);
    let ready = list(&status["conditions"]).iter().find(|c| c["type"] == "Ready");
    let mut state = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if o["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<String> = labels(o)
        .into_iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    roles.dedup();
    let address = |kind: &str| {
        let found = list(&status["addresses"]).iter().find(|a| a["type"] == kind);
        json!(or_none(found.map_or("", |a| text(&a["address"]))))
    };
    let known = |field: &str| json!(or(text(&info[field]), "<unknown>"));
    vec![
        json!(name(o)),
        json!(state),
        json!(or_none(&roles.join(","))),
        age,
        json!(text(&info["kubeletVersion"])),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

fn phase(o: &Value) -> Value {
    json!(if is_being_deleted(o) { "Terminating" } else { text(&o["status"]["phase"]) })
}

fn access_modes(modes: &Value) -> Value {
    let modes = strings(modes);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> =
        short.iter().filter(|(mode, _)| modes.contains(mode)).map(|(_, short)| *short).collect();
    json!(shown.join(","))
}

fn class(o: &Value) -> Value {
    let annotated = text(&o["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"]);
    json!(or(annotated, text(&o["spec"]["storageClassName"])))
}

fn claim(o: &Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let volume = text(&spec["volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (json!(""), json!(""))
    } else {
        (json!(plain_or_empty(&status["capacity"]["storage"])), access_modes(&status["accessModes"]))
    };
    vec![
        json!(name(o)),
        phase(o),
        json!(volume),
        capacity,
        modes,
        class(o),
        json!(or(text(&spec["volumeAttributesClassName"]), "<unset>")),
        age,
        json!(or(text(&spec["volumeMode"]), "<unset>")),
    ]
}

fn volume(o: &Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let claim = match (text(&spec["claimRef"]["namespace"]), text(&spec["claimRef"]["name"])) {
        (_, "") => String::new(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![
        json!(name(o)),
        json!(plain_or_empty(&spec["capacity"]["storage"])),
        access_modes(&spec["accessModes"]),
        json!(text(&spec["persistentVolumeReclaimPolicy"])),
        phase(o),
        json!(claim),
        class(o),
        json!(or(text(&spec["volumeAttributesClassName"]), "<unset>")),
        json!(text(&status["reason"])),
        age,
        json!(or(text(&spec["volumeMode"]), "<unset>")),
    ]
}

fn plain_or_empty(value: &Value) -> String {
    if value.is_null() { String::new() } else { plain(value) }
}

fn service(o: &Value, age: Value) -> Vec<Value> {
    let spec = &o["spec"];
    let mut external: Vec<&str> = Vec::new();
    let kind = text(&spec["type"]);
    if kind == "LoadBalancer" {
        let ingress = list(&o["status"]["loadBalancer"]["ingress"]).iter();
        external.extend(ingress.map(|i| or(text(&i["ip"]), text(&i["hostname"]))));
    }
    external.extend(strings(&spec["externalIPs"]));
    let external = match kind {
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        "LoadBalancer" => or(&external.join(","), "<pending>").to_owned(),
        _ => or_none(&external.join(",")).to_owned(),
    };
    let ports: Vec<String> = list(&spec["ports"])
        .iter()
        .map(|port| match number(&port["nodePort"]) {
            0 => format!("{}/{}", number(&port["port"]), text(&port["protocol"])),
            outside => format!("{}:{outside}/{}", number(&port["port"]), text(&port["protocol"])),
        })
        .collect();
    vec![
        json!(name(o)),
        json!(kind),
        json!(or_none(text(&spec["clusterIP"]))),
        json!(external),
        json!(or_none(&ports.join(","))),
        age,
        json!(pairs(&spec["selector"])),
    ]
}

fn endpoint_slice(o: &Value, age: Value) -> Vec<Value> {
    let first_few = |all: Vec<String>| {
        let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(",");
        match all.len() {
            more @ 4.. => format!("{shown} + {} more...", more - 3),
            _ => or(&shown, "<unset>").to_owned(),
        }
    };
    let ports = list(&o["ports"]).iter().map(|port| match (&port["port"], &port["name"]) {
        (Value::Null, Value::Null) => "*".to_owned(),
        (Value::Null, name) => plain(name),
        (number, _) => plain(number),
    });
    let addresses = list(&o["endpoints"]).iter().flat_map(|e| strings(&e["addresses"]));
    vec![
        json!(name(o)),
        json!(text(&o["addressType"])),
        json!(first_few(ports.collect())),
        json!(first_few(addresses.map(str::to_owned).collect())),
        age,
    ]
}

/// `daemonset.apps/name` of the owner that controls the object.
fn controller(o: &Value) -> String {
    let owners = list(&o["metadata"]["ownerReferences"]);
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else {
        return "<none>".to_owned();
    };
    let group = text(&owner["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let kind = text(&owner["kind"]).to_lowercase();
    format!("{}/{}", crate::status::qualified(&kind, group), text(&owner["name"]))
}

fn binding(o: &Value, age: Value) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = list(&o["subjects"]).iter().filter(|s| s["kind"] == kind);
        let names: Vec<String> = of_kind
            .map(|s| match kind {
                "ServiceAccount" => format!("{}/{}", text(&s["namespace"]), text(&s["name"])),
                _ => text(&s["name"]).to_owned(),
            })
            .collect();
        json!(names.join(", "))
    };
    let role = format!("{}/{}", text(&o["roleRef"]["kind"]), text(&o["roleRef"]["name"]));
    let (users, groups) = (subjects("User"), subjects("Group"));
    vec![json!(name(o)), json!(role), age, users, groups, subjects("ServiceAccount")]
}

fn signing_request(o: &Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&o["spec"], &o["status"]);
    let has = |kind: &str| list(&status["conditions"]).iter().any(|c| c["type"] == kind);
    let mut condition = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(&status["certificate"]).is_empty() {
        condition.push_str(",Issued");
    }
    let duration = spec["expirationSeconds"].as_i64().map(human_duration);
    vec![
        json!(name(o)),
        age,
        json!(text(&spec["signerName"])),
        json!(text(&spec["username"])),
        json!(duration.as_deref().unwrap_or("<none>")),
        json!(condition),
    ]
}
