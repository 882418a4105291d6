//! `/api`, `/apis` and below: what is served, in the old and the aggregated form.
//!
//! Owns the discovery documents and the list of a kind's subresources; both are read from the table of kinds
//! and nothing else. Must never name a resource that the table does not have. Both forms say the same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::kinds::{Kind, KindTable};
use crate::object::JsonMap;

/// Built-in groups in the order of the real server; clients try them in this order when a name is ambiguous.
/// Groups of definitions follow by name.
const GROUP_ORDER: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// The verbs of a custom resource in the real server's order, which is not that of the built-ins.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

const READ_WRITE: &[&str] = &["get", "patch", "update"];
/// The verbs of what is no object but a conversation.
const CONNECT: &[&str] = &["create", "get"];

/// An endpoint below an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Subresource<'a> {
    pub name: &'a str,
    /// What the endpoint speaks, when it is not the resource's own kind.
    pub speaks: Option<ForeignKind>,
    pub verbs: &'static [&'static str],
}

impl Subresource<'_> {
    /// Whether it is a conversation: then there is no object that it takes or gives.
    pub fn is_conversation(&self) -> bool {
        self.verbs == CONNECT
    }
}

/// The kind of another group that a subresource speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

/// The subresources of a kind, in the order in which discovery lists them.
pub fn subresources(kind: &Kind) -> Vec<Subresource<'_>> {
    let named = |name| {
        let (speaks, verbs) = facts(name);
        Subresource { name, speaks, verbs }
    };
    let status = kind.status.then_some("status");
    let scale = kind.scale.as_ref().map(|_| "scale");
    let mut all: Vec<_> =
        status.into_iter().chain(scale).chain(kind.subresources.iter().copied()).map(named).collect();
    // The real server lists status before scale for custom resources, and goes by name for built-ins.
    if kind.custom.is_none() {
        all.sort_by_key(|subresource| subresource.name);
    }
    all
}

fn facts(name: &str) -> (Option<ForeignKind>, &'static [&'static str]) {
    let foreign = |group, version, kind| Some(ForeignKind { group, version, kind });
    match name {
        "scale" => (foreign("autoscaling", "v1", "Scale"), READ_WRITE),
        "eviction" => (foreign("policy", "v1", "Eviction"), &["create"]),
        "token" => (foreign("authentication.k8s.io", "v1", "TokenRequest"), &["create"]),
        "binding" => (foreign("", "v1", "Binding"), &["create"]),
        "exec" => (foreign("", "v1", "PodExecOptions"), CONNECT),
        "attach" => (foreign("", "v1", "PodAttachOptions"), CONNECT),
        "finalize" => (None, &["update"]),
        "approval" | "ephemeralcontainers" | "resize" | "status" => (None, READ_WRITE),
        // `log`, and what is not known here, can at least be read.
        _ => (None, &["get"]),
    }
}

/// `/apis` as `APIGroupList`.
pub fn group_list(kinds: &KindTable) -> Value {
    let groups: Vec<Value> = named_groups(kinds)
        .into_iter()
        .map(|(group, versions)| Value::Object(group_fields(group, &versions)))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP` as `APIGroup`, if the group is served.
pub fn group(kinds: &KindTable, group: &str) -> Option<Value> {
    let (name, versions) = named_groups(kinds).into_iter().find(|(name, _)| *name == group)?;
    let mut fields = group_fields(name, &versions);
    fields.insert("kind".into(), json!("APIGroup"));
    fields.insert("apiVersion".into(), json!("v1"));
    Some(Value::Object(fields))
}

/// `/api/v1` or `/apis/GROUP/VERSION` as `APIResourceList`, if served.
pub fn resource_list(kinds: &KindTable, group: &str, version: &str) -> Option<Value> {
    let resources: Vec<Value> =
        kinds.resources(group, version).flat_map(|kind| legacy_resources(kind)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version, "resources": resources,
        })
    })
}

/// `/api` as `APIVersions`.
pub fn core_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// The aggregated form of `/api` (`core`) or `/apis`. The real server speaks `v2` only; `v2beta1` looks the same.
pub fn aggregated(kinds: &KindTable, core: bool, version: &str) -> Value {
    let groups = if core {
        kinds.groups().filter(|(group, _)| group.is_empty()).collect()
    } else {
        named_groups(kinds)
    };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        kinds.resources(group, version).map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

/// All groups but the core, which has an address of its own, in the real server's order.
fn named_groups(kinds: &KindTable) -> Vec<(&str, Vec<&str>)> {
    let rank = |group: &str| GROUP_ORDER.iter().position(|known| *known == group);
    let mut groups: Vec<_> = kinds.groups().filter(|(group, _)| !group.is_empty()).collect();
    groups.sort_by_key(|(group, _)| (rank(group).unwrap_or(GROUP_ORDER.len()), *group));
    groups
}

fn group_fields(group: &str, versions: &[&str]) -> JsonMap {
    let entry = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let mut fields = Map::new();
    fields.insert("name".into(), json!(group));
    fields.insert("versions".into(), versions.iter().map(entry).collect());
    fields.insert("preferredVersion".into(), versions.first().map(entry).unwrap_or_default());
    fields
}

fn verbs(kind: &Kind) -> &'static [&'static str] {
    if kind.custom.is_some() { &CUSTOM_VERBS } else { kind.verbs() }
}

/// Adds what only some resources have; discovery leaves empty lists out.
fn add_names(entry: &mut Value, kind: &Kind) {
    for (key, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            entry[key] = json!(names);
        }
    }
}

/// Tells clients when objects come to be stored as another version.
fn storage_version_hash(kind: &Kind) -> String {
    let (group, version) =
        kind.storage_api_version.split_once('/').unwrap_or(("", &kind.storage_api_version));
    let digest = Sha256::digest(format!("{group}/{version}/{}", kind.kind));
    BASE64_STANDARD.encode(&digest[..8])
}

/// A resource and its subresources as entries of an `APIResourceList`.
fn legacy_resources(kind: &Kind) -> Vec<Value> {
    let mut resource = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.kind, "verbs": verbs(kind),
    });
    add_names(&mut resource, kind);
    if kind.verbs() != ["create"] {
        resource["storageVersionHash"] = json!(storage_version_hash(kind));
    }
    let mut entries = vec![resource];
    for subresource in subresources(kind) {
        let mut entry = json!({
            "name": format!("{}/{}", kind.plural, subresource.name), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.kind, "verbs": subresource.verbs,
        });
        if let Some(foreign) = subresource.speaks {
            entry["kind"] = json!(foreign.kind);
            if foreign.group != kind.group {
                entry["group"] = json!(foreign.group);
                entry["version"] = json!(foreign.version);
            }
        }
        entries.push(entry);
    }
    entries
}

fn aggregated_resource(kind: &Kind) -> Value {
    // A built-in's group and version stay empty: a reader takes them from the entry that holds the resource.
    let own = if kind.custom.is_some() {
        json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
    } else {
        json!({"group": "", "version": "", "kind": kind.kind})
    };
    let below: Vec<Value> = subresources(kind)
        .iter()
        .map(|subresource| {
            let response = match subresource.speaks {
                None => own.clone(),
                Some(f) if f.group == kind.group => json!({"group": "", "version": "", "kind": f.kind}),
                Some(f) => json!({"group": f.group, "version": f.version, "kind": f.kind}),
            };
            json!({"subresource": subresource.name, "responseKind": response, "verbs": subresource.verbs})
        })
        .collect();
    let mut entry = json!({
        "resource": kind.plural, "responseKind": own,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": verbs(kind),
    });
    add_names(&mut entry, kind);
    if !below.is_empty() {
        entry["subresources"] = json!(below);
    }
    entry
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kinds::{Custom, Scale, Traits};
    use crate::schema::Schema;

    /// A built-in resource with nothing special.
    pub(crate) fn builtin(group: &str, version: &str, kind: &str, plural: &str) -> Kind {
        Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: vec![],
            categories: vec![],
            namespaced: true,
            storage: Arc::from(plural),
            storage_api_version: version.into(),
            schema: Schema::anything().into(),
            columns: vec![],
            selectable_fields: vec![],
            status: false,
            scale: None,
            subresources: vec![],
            traits: Traits::default(),
            custom: None,
        }
    }

    /// The custom resource whose documents the real server was asked for.
    pub(crate) fn bird(version: &str, raw_schema: Value) -> Kind {
        Kind {
            short_names: vec!["bd".into()],
            categories: vec!["all".into(), "fauna".into()],
            storage_api_version: "example.godwit.dev/v1".into(),
            custom: Some(Custom {
                definition: "birds.example.godwit.dev".into(),
                definition_uid: String::new(),
                default_on_read: false,
                raw_schema: Arc::new(raw_schema),
                deprecation_warning: None,
                storage_schema: None,
                terminating: false,
            }),
            ..builtin("example.godwit.dev", version, "Bird", "birds")
        }
    }

    fn table() -> KindTable {
        let mut kinds = KindTable::default();
        kinds.insert(bird("v1alpha1", json!({})));
        kinds.insert(Kind {
            status: true,
            scale: Some(Scale {
                spec_replicas: ".spec.replicas".into(),
                status_replicas: ".status.replicas".into(),
                selector: None,
            }),
            ..bird("v1", json!({}))
        });
        kinds.insert(Kind {
            status: true,
            subresources: vec!["log", "binding", "eviction"],
            ..builtin("", "v1", "Pod", "pods")
        });
        kinds.insert(builtin("coordination.k8s.io", "v1", "Lease", "leases"));
        kinds.insert(builtin("apps", "v1", "Deployment", "deployments"));
        kinds
    }

    #[test]
    fn a_definition_is_discovered_as_by_the_real_server() {
        let expected = json!({"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.godwit.dev/v1","resources":[
            {"name":"birds","singularName":"bird","namespaced":true,"kind":"Bird",
             "verbs":["delete","deletecollection","get","list","patch","create","update","watch"],
             "shortNames":["bd"],"categories":["all","fauna"],"storageVersionHash":"PjlWE4Bd1Ok="},
            {"name":"birds/status","singularName":"","namespaced":true,"kind":"Bird","verbs":["get","patch","update"]},
            {"name":"birds/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1",
             "kind":"Scale","verbs":["get","patch","update"]}]});
        assert_eq!(resource_list(&table(), "example.godwit.dev", "v1"), Some(expected));
        assert_eq!(resource_list(&table(), "example.godwit.dev", "v7"), None);
        let expected = json!({"kind":"APIGroup","apiVersion":"v1","name":"example.godwit.dev",
            "versions":[{"groupVersion":"example.godwit.dev/v1","version":"v1"},
                        {"groupVersion":"example.godwit.dev/v1alpha1","version":"v1alpha1"}],
            "preferredVersion":{"groupVersion":"example.godwit.dev/v1","version":"v1"}});
        assert_eq!(group(&table(), "example.godwit.dev"), Some(expected));
        assert_eq!(group(&table(), ""), None);
    }

    #[test]
    fn subresources_of_built_ins_go_by_name_and_say_what_they_speak() {
        let pods = resource_list(&table(), "", "v1").unwrap();
        assert_eq!(pods["groupVersion"], "v1");
        let entry = |i: usize| pods["resources"][i].clone();
        let below = |name, kind, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
        assert_eq!(entry(0)["storageVersionHash"], "xPOwRZ+Yhw8=");
        assert_eq!(entry(1), below("pods/binding", "Binding", &["create"]));
        let mut eviction = below("pods/eviction", "Eviction", &["create"]);
        eviction["group"] = json!("policy");
        eviction["version"] = json!("v1");
        assert_eq!(entry(2), eviction);
        assert_eq!(entry(3), below("pods/log", "Pod", &["get"]));
        assert_eq!(entry(4), below("pods/status", "Pod", &["get", "patch", "update"]));
    }

    #[test]
    fn groups_keep_the_real_order_with_definitions_last() {
        let list = group_list(&table());
        let names: Vec<_> =
            list["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["apps", "coordination.k8s.io", "example.godwit.dev"]);
        assert_eq!(list["groups"][0].get("kind"), None);
    }

    #[test]
    fn the_aggregated_form_leaves_a_built_ins_own_group_empty() {
        let core = aggregated(&table(), true, "v2");
        assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2");
        assert_eq!(core["items"][0]["metadata"], json!({}));
        let pods = &core["items"][0]["versions"][0]["resources"][0];
        assert_eq!(pods["responseKind"], json!({"group":"","version":"","kind":"Pod"}));
        assert_eq!(pods["scope"], "Namespaced");
        let eviction = json!({"subresource":"eviction","verbs":["create"],
            "responseKind":{"group":"policy","version":"v1","kind":"Eviction"}});
        assert_eq!(pods["subresources"][1], eviction);

        let named = aggregated(&table(), false, "v2");
        assert_eq!(named["items"].as_array().unwrap().len(), 3);
        let birds = &named["items"][2]["versions"][0]["resources"][0];
        assert_eq!(birds["responseKind"], json!({"group":"example.godwit.dev","version":"v1","kind":"Bird"}));
        assert_eq!(birds["subresources"][0]["responseKind"], birds["responseKind"]);
        assert_eq!(birds.get("storageVersionHash"), None);
    }
}
