//! Tests of the tables: every line is read, and means something.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::definitions::{self, raw_definitions};
use super::{KindTable, builtin};
use crate::schema::{ListType, Node, Schema, Type};

fn definition_of(kind: &super::Kind) -> &'static str {
    match kind.schema {
        Node::Named(name) => name,
        Node::Inline(_) => panic!("a built-in has a named definition"),
    }
}

#[test]
fn every_row_has_a_definition_and_columns() {
    let raw = raw_definitions();
    for kind in builtin::kinds() {
        let name = definition_of(&kind);
        let gvk = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
        assert_eq!(raw[name]["x-kubernetes-group-version-kind"], gvk, "{name}");
        assert!(kind.schema.get().field("metadata").is_some(), "{name}");
        if kind.verbs().contains(&"list") {
            assert!(!kind.columns.is_empty(), "{name}");
            let list = name.replace(&format!(".{}", kind.kind), &format!(".{}", kind.list_kind));
            assert!(raw.contains_key(&list), "{list}");
        }
    }
}

#[test]
fn every_line_of_the_tables_is_about_a_field_that_exists() {
    let raw = raw_definitions();
    for (file, text) in
        [("facts.txt", include_str!("facts.txt")), ("defaults.txt", include_str!("defaults.txt"))]
    {
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let definition = raw.get(words[0]).unwrap_or_else(|| panic!("{file}: {line}"));
            let known = words[1] == "." || definition["properties"].get(words[1]).is_some();
            assert!(known, "{file}: no such field: {line}");
            if let Some((_, default)) = words[2].split_once("default=") {
                serde_json::from_str::<Value>(default).unwrap_or_else(|e| panic!("{file}: {line}: {e}"));
            }
        }
    }
    let plurals: BTreeSet<String> = builtin::kinds().into_iter().map(|kind| kind.plural).collect();
    for line in include_str!("columns.txt").lines().skip(1) {
        let words: Vec<&str> = line.split('|').collect();
        assert!(words.len() == 5 && plurals.contains(words[0]), "columns.txt: {line}");
        assert!(words[3].parse::<i32>().is_ok(), "columns.txt: {line}");
    }
}

/// A node with both versions of IP has two addresses of one type, which are its list's keys.
#[test]
fn a_node_may_have_two_addresses_of_one_type() {
    let status = definitions::get("io.k8s.api.core.v1.NodeStatus");
    let refused = |value: &Value| crate::schema::validate::validate(status, value, None).len();
    let internal = |address: &str| json!({ "type": "InternalIP", "address": address });
    assert_eq!(refused(&json!({ "addresses": [internal("192.0.2.1"), internal("2001:db8::1")] })), 0);
    let ready = json!({ "type": "Ready", "status": "True" });
    assert_eq!(refused(&json!({ "conditions": [ready, ready] })), 1);
}

#[test]
fn facts_reach_the_schemas() {
    let pod_spec = definitions::get("io.k8s.api.core.v1.PodSpec");
    let containers = pod_spec.field("containers").unwrap();
    assert_eq!(containers.kind, Type::Array);
    assert_eq!(containers.list, ListType::Map(vec!["name".into()]));
    assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
    assert!(containers.patch.merge && !containers.patch.retain_keys);
    let container = containers.element().unwrap();
    assert_eq!(container.constraints.required, ["name"]);
    let ports = container.field("ports").unwrap();
    assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
    let protocol = ports.element().unwrap().field("protocol").unwrap();
    assert_eq!(protocol.default, Some(json!("TCP")));
    assert_eq!(protocol.constraints.options.len(), 3);
    assert!(pod_spec.field("volumes").unwrap().patch.retain_keys);
    assert!(pod_spec.field("nodeSelector").unwrap().atomic_map);
    let strategy = definitions::get("io.k8s.api.apps.v1.DeploymentSpec").field("strategy").unwrap();
    assert!(strategy.patch.retain_keys && strategy.field("rollingUpdate").is_some());
    assert_eq!(strategy.default, Some(json!({})));
    assert!(definitions::get("io.k8s.api.apps.v1.DeploymentStrategy").default.is_none());
    assert!(definitions::get("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").atomic_map);
}

#[test]
fn schemas_of_schemas_are_recursive() {
    let group = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    let props = definitions::get(&format!("{group}.JSONSchemaProps"));
    let deep = |field: &str, schema: &'static Schema| schema.field(field).unwrap();
    assert!(deep("additionalProperties", props).field("x-kubernetes-validations").is_some());
    assert!(deep("items", props).field("properties").is_some());
    assert!(deep("items", props).element().unwrap().field("properties").is_some());
    assert!(deep("default", props).preserve_unknown);
}

#[test]
fn raw_definitions_read_as_the_real_servers() {
    let raw = raw_definitions();
    let containers = &raw["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let container = "#/components/schemas/io.k8s.api.core.v1.Container";
    assert_eq!(containers["items"]["$ref"], container);
    let metadata = &raw["io.k8s.api.core.v1.Pod"]["properties"]["metadata"];
    assert!(metadata["description"].is_string());
    assert!(metadata["allOf"][0]["$ref"].is_string());
    for (name, definition) in &raw {
        for reference in definition.to_string().split("#/components/schemas/").skip(1) {
            let target = reference.split('"').next().unwrap_or_default();
            assert!(raw.contains_key(target), "{name} refers to {target}");
        }
    }
}

#[test]
fn both_event_apis_share_their_place() {
    let table = KindTable::builtin();
    let (old, new) = (table.get("", "v1", "events"), table.get("events.k8s.io", "v1", "events"));
    let (old, new) = (old.unwrap(), new.unwrap());
    assert_eq!(old.storage, new.storage);
    assert_eq!(old.storage_api_version, new.storage_api_version);
}

/// What a real server (v1.36.4) made of objects: `created` and `refused` by it, and printed in `scenes`.
fn recorded() -> Value {
    serde_json::from_str(include_str!("testdata/recorded.json")).unwrap()
}

fn kind_of(object: &Value) -> super::Kind {
    let kinds = builtin::kinds();
    let found = kinds
        .into_iter()
        .find(|kind| json!(kind.api_version()) == object["apiVersion"] && json!(kind.kind) == object["kind"]);
    found.unwrap_or_else(|| panic!("no such kind: {object}"))
}

#[test]
fn cells_are_the_real_servers() {
    let recorded = recorded();
    let rows = |list: &str, object: &'static str| {
        let rows = recorded[list].as_array().unwrap().clone();
        rows.into_iter().map(move |row| (row[object].clone(), row["cells"].clone(), row["at"].clone()))
    };
    for (object, cells, at) in rows("created", "stored").chain(rows("scenes", "object")) {
        let kind = kind_of(&object);
        let now: jiff::Timestamp = at.as_str().unwrap().parse().unwrap();
        let ours = super::columns::cells(&kind, &object, now).unwrap();
        let theirs = cells.as_array().unwrap();
        assert_eq!(ours.len(), kind.columns.len(), "{}", kind.kind);
        for ((ours, theirs), column) in ours.iter().zip(theirs).zip(&kind.columns) {
            // The objects were seconds old when they were printed.
            let young = column.name == "Age" && ours.as_str().is_some_and(|age| age.ends_with('s'));
            assert!(young || ours == theirs, "{} {}: {ours} is {theirs}", kind.kind, column.name);
        }
    }
}

#[test]
fn durations_are_the_real_servers() {
    for pair in recorded()["durations"].as_array().unwrap() {
        let seconds = pair[0].as_i64().unwrap();
        assert_eq!(json!(super::columns::human_duration(seconds)), pair[1], "{seconds}");
    }
    assert_eq!(super::columns::human_duration(-1), "0s");
    assert_eq!(super::columns::human_duration(-2), "<invalid>");
}

/// Fills in the defaults of a schema, in the plainest way.
fn fill(node: &Node, value: &mut Value) {
    let schema = node.get();
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        for (key, node) in &schema.properties {
            if let (false, Some(default)) = (map.contains_key(key), &node.get().default) {
                map.insert(key.clone(), default.clone());
            }
        }
        for (key, child) in map {
            if let Some(node) = schema.properties.get(key).or(schema.additional.as_deref()) {
                fill(node, child);
            }
        }
    } else if let (Value::Array(elements), Some(node)) = (value, schema.items.as_deref()) {
        for element in elements {
            fill(node, element);
        }
    }
}

/// The object as a request handler would pass it on: in its namespace, with defaults.
fn defaulted(kind: &super::Kind, sent: &Value) -> Value {
    let mut object = sent.clone();
    if kind.status && !kind.traits.keeps_status_on_create {
        crate::object::as_map_mut(&mut object).remove("status");
    }
    if kind.namespaced {
        crate::object::set_meta(&mut object, "namespace", json!("default"));
    }
    fill(&kind.schema, &mut object);
    super::strategy::complete(kind, &mut object);
    object
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Where two values differ.
fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let side = |map: &crate::object::JsonMap| map.get(key).cloned().unwrap_or_default();
                differences(&format!("{path}.{key}"), &side(a), &side(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours}, real {theirs}")),
    }
}

/// What others fill in (metadata, the user, the definition's names) or what we leave out on purpose.
const NOT_OURS: [&str; 16] = [
    ".caBundle: \"\"",
    "CertificateSigningRequest.spec.extra",
    "CertificateSigningRequest.spec.groups",
    "CertificateSigningRequest.spec.username",
    "CustomResourceDefinition.spec.conversion",
    "CustomResourceDefinition.spec.names",
    "CustomResourceDefinition.status",
    "Namespace.metadata.name",
    "Namespace.metadata.labels",
    "Node.spec.taints",
    "PersistentVolume.status.lastPhaseTransitionTime",
    "Service.spec.clusterIP",
    "Service.spec.ipFamil",
    "creationTimestamp",
    "generation",
    "finalizers: null",
];

#[test]
fn created_objects_are_the_real_servers() {
    let mut found = Vec::new();
    for case in recorded()["created"].as_array().unwrap() {
        let kind = kind_of(&case["sent"]);
        let mut object = defaulted(&kind, &case["sent"]);
        super::strategy::prepare_create(&kind, &mut object);
        let mut errors = missing("", &kind.schema, &object);
        errors.extend(super::strategy::validate(&kind, &object, None));
        assert!(errors.is_empty(), "{}: {errors:?}", case["sent"]);
        differences(&kind.kind, &without_nulls(&object), &without_nulls(&case["stored"]), &mut found);
    }
    found.retain(|difference| !NOT_OURS.iter().any(|known| difference.contains(known)));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_the_real_server_shows_can_be_sent_back() {
    let recorded = recorded();
    let shown = |list: &str, field: &str| -> Vec<Value> {
        let cases = recorded[list].as_array().unwrap();
        cases.iter().map(|case| without_nulls(&case[field])).collect()
    };
    for object in [shown("created", "stored"), shown("scenes", "object")].concat() {
        let kind = kind_of(&object);
        let mut again = object.clone();
        fill(&kind.schema, &mut again);
        super::strategy::complete(&kind, &mut again);
        super::strategy::prepare_update(&kind, &mut again, &object);
        let mut errors = missing("", &kind.schema, &again);
        errors.extend(super::strategy::validate(&kind, &again, Some(&object)));
        assert!(errors.is_empty(), "{object}: {errors:?}");
        let mut found = Vec::new();
        differences(&kind.kind, &without_nulls(&again), &object, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn events_turn_from_one_face_to_the_other() {
    let table = KindTable::builtin();
    for case in recorded()["created"].as_array().unwrap() {
        if case["alt"].is_null() {
            continue;
        }
        let (sent, other) = (kind_of(&case["sent"]), kind_of(&case["alt"]));
        assert!(table.get(&other.group, "v1", "events").is_some());
        let mut object = case["stored"].clone();
        super::strategy::absorb(&sent, &mut object).unwrap();
        assert_eq!(object["apiVersion"], "v1");
        super::strategy::present(&other, &mut object);
        let (ours, theirs) = (without_nulls(&object), without_nulls(&case["alt"]));
        let mut found = Vec::new();
        differences("", &ours, &theirs, &mut found);
        // Written out by `v1` alone, when it is asked.
        found.retain(|difference| !difference.contains(": null, real \"\""));
        assert!(found.is_empty(), "{found:#?}");
        let about = super::strategy::selectable_value(&sent, &object, "involvedObject.kind");
        assert_eq!(about.as_deref(), Some("Pod"));
    }
}

#[test]
fn refusals_are_the_real_servers() {
    let mut found = Vec::new();
    for case in recorded()["refused"].as_array().unwrap() {
        let kind = kind_of(&case["new"]);
        let mut new = defaulted(&kind, &case["new"]);
        let old = (!case["old"].is_null()).then(|| {
            let mut old = defaulted(&kind, &case["old"]);
            super::strategy::prepare_create(&kind, &mut old);
            old
        });
        match &old {
            Some(old) => super::strategy::prepare_update(&kind, &mut new, old),
            None => super::strategy::prepare_create(&kind, &mut new),
        }
        let mut errors = missing("", &kind.schema, &new);
        errors.extend(super::strategy::validate(&kind, &new, old.as_ref()));
        let ours = (!errors.is_empty()).then(|| kind.invalid("t1", errors).message);
        // Refused by both, in other words: the order or the spelling of Go's own values.
        let differs = case["differs"] == true && ours.is_some() && case["message"].is_string();
        if differs == (json!(ours) == case["message"]) {
            found.push(format!("{}\n   ours {ours:?}\n   real {}", case["new"], case["message"]));
        }
    }
    assert!(found.is_empty(), "{} {}", found.len(), found.join("\n"));
}

/// Required fields and enumerations, as the schema's validation reports them.
fn missing(path: &str, node: &Node, value: &Value) -> Vec<crate::status::FieldError> {
    use crate::status::FieldError;
    let schema = node.get();
    let mut errors = Vec::new();
    let at = |key: &str| format!("{path}.{key}").trim_start_matches('.').to_owned();
    if let Value::Object(map) = value {
        for key in schema.constraints.required.iter().filter(|key| !map.contains_key(*key)) {
            errors.push(FieldError::required(at(key), ""));
        }
        for (key, child) in map {
            if let Some(node) = schema.properties.get(key).or(schema.additional.as_deref()) {
                errors.extend(missing(&at(key), node, child));
            }
        }
    } else if let (Value::Array(elements), Some(node)) = (value, schema.items.as_deref()) {
        for (index, element) in elements.iter().enumerate() {
            errors.extend(missing(&format!("{path}[{index}]"), node, element));
        }
    }
    let options = &schema.constraints.options;
    if !options.is_empty() && !options.contains(value) {
        let options: Vec<String> = options.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        errors.push(FieldError::not_supported(path, value, &options));
    }
    errors
}

#[test]
fn quantities_have_one_spelling() {
    for (written, stored) in [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("0.5Ki", "512"),
        ("100Ki", "100Ki"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("-1", "-1"),
        ("0m", "0"),
        ("0.1Ki", "102400m"),
        ("4", "4"),
    ] {
        let mut claim = json!({"spec": {"resources": {"requests": {"storage": written}}}});
        let kind = kind_of(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim"}));
        super::strategy::complete(&kind, &mut claim);
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], stored, "{written}");
    }
}

#[test]
fn names_are_judged_as_by_the_real_server() {
    use super::strategy::{NameRule, name_rule};
    let rule = |api_version: &str, kind: &str| {
        name_rule(&kind_of(&json!({"apiVersion": api_version, "kind": kind})))
    };
    assert_eq!(rule("v1", "Namespace"), NameRule::Label);
    assert_eq!(rule("v1", "Pod"), NameRule::Subdomain);
    assert_eq!(rule("rbac.authorization.k8s.io/v1", "ClusterRole"), NameRule::PathSegment);
    let long = "a".repeat(254);
    for (rule, name, complaint) in [
        (NameRule::Label, "1a", ""),
        (NameRule::Label, "a.b", "must not contain dots"),
        (NameRule::Label, "A_b", "a lowercase RFC 1123 label must consist of"),
        (NameRule::Label, &long, "must be no more than 63 characters"),
        (NameRule::Subdomain, "a.b-c", ""),
        (NameRule::Subdomain, "a-", "a lowercase RFC 1123 subdomain must consist of"),
        (NameRule::Subdomain, &long, "must be no more than 253 characters"),
        (NameRule::PathSegment, "system:x", ""),
        (NameRule::PathSegment, "..", "may not be '..'"),
        (NameRule::PathSegment, "a%b", "may not contain '%'"),
    ] {
        let wrong = rule.check(name, false);
        assert_eq!(wrong.is_empty(), complaint.is_empty(), "{name}: {wrong:?}");
        assert!(wrong.iter().all(|wrong| wrong.starts_with(complaint)), "{name}: {wrong:?}");
    }
    assert!(NameRule::Subdomain.check("web-", true).is_empty());
    assert!(!NameRule::Subdomain.check("-", true).is_empty());
}

/// Whatever a client sends, in whatever shape: nothing here gives up.
#[test]
fn no_shape_is_too_strange() {
    let odd = [json!(null), json!(1), json!("x"), json!([]), json!([1, null]), json!({"spec": 1})];
    let paths = [
        "spec",
        "spec.template",
        "spec.ports",
        "spec.containers",
        "status",
        "metadata.labels",
        "roleRef",
        "webhooks",
        "rules",
    ];
    for kind in builtin::kinds() {
        for (shape, path) in odd.iter().flat_map(|shape| paths.iter().map(move |path| (shape, path))) {
            let mut object = json!({"metadata": {"name": "n"}});
            crate::object::set_path(&mut object, path, shape.clone());
            let old = object.clone();
            super::strategy::complete(&kind, &mut object);
            super::strategy::prepare_create(&kind, &mut object);
            super::strategy::prepare_update(&kind, &mut object, &old);
            super::strategy::validate(&kind, &object, Some(&old));
            super::strategy::present(&kind, &mut object);
            let cells = super::columns::cells(&kind, &object, jiff::Timestamp::UNIX_EPOCH);
            assert!(cells.is_none_or(|cells| cells.len() == kind.columns.len()));
        }
    }
}
