//! Documents compared with what the real server published for the same definition.
use serde_json::json;

use super::*;
use crate::discovery::tests::{bird, builtin};

fn kinds() -> KindTable {
    let schema = json!({
        "type": "object", "description": "A bird.", "required": ["spec"],
        "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true},
            "emb": {"type": "object", "x-kubernetes-embedded-resource": true},
        }}},
    });
    let mut kinds = KindTable::default();
    kinds.insert(Kind { status: true, ..bird("v1", schema) });
    kinds.insert(builtin("coordination.k8s.io", "v1", "Lease", "leases"));
    kinds.insert(Kind { namespaced: false, ..builtin("", "v1", "Namespace", "namespaces") });
    kinds
}

fn doc(path: &str) -> Value {
    document(&kinds(), path).unwrap()
}

#[test]
fn a_custom_resource_is_published_whole() {
    let doc = doc("apis/example.godwit.dev/v1");
    let schemas = &doc["components"]["schemas"];
    let schema = &schemas["dev.godwit.example.v1.Bird"];
    assert_eq!(schema["required"], json!(["spec"]));
    assert_eq!(schema["description"], "A bird.");
    assert_eq!(schema[GVK], json!([{"group": "example.godwit.dev", "version": "v1", "kind": "Bird"}]));
    let metadata = json!([reference(&format!("{META}.ObjectMeta"))]);
    assert_eq!(schema["properties"]["metadata"]["allOf"], metadata);
    assert_eq!(schema["properties"]["apiVersion"]["type"], "string");
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["port"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
    assert_eq!(spec["emb"]["required"], json!(["kind", "apiVersion"]));
    assert_eq!(spec["emb"]["properties"]["metadata"]["allOf"], metadata);

    let list = &schemas["dev.godwit.example.v1.BirdList"];
    assert_eq!(list["description"], "BirdList is a list of Bird");
    assert_eq!(list["properties"]["items"]["items"], reference("dev.godwit.example.v1.Bird"));
    assert_eq!(list[GVK][0]["kind"], "BirdList");
}

#[test]
fn patches_say_their_kind_and_types_and_parameters() {
    let bird = doc("apis/example.godwit.dev/v1");
    let item = "/apis/example.godwit.dev/v1/namespaces/{namespace}/birds/{name}";
    let patch = &bird["paths"][item]["patch"];
    assert_eq!(patch[GVK], json!({"group": "example.godwit.dev", "version": "v1", "kind": "Bird"}));
    let names: Vec<_> = patch["parameters"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let strategic = "application/strategic-merge-patch+json";
    let types = patch["requestBody"]["content"].as_object().unwrap();
    assert_eq!(types.len(), 3);
    assert!(!types.contains_key(strategic));

    let lease = doc("apis/coordination.k8s.io/v1");
    let item = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}";
    assert!(lease["paths"][item]["patch"]["requestBody"]["content"].get(strategic).is_some());
}

#[test]
fn paths_are_those_of_the_real_server_without_the_old_watches() {
    let paths = |path| doc(path)["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        paths("apis/example.godwit.dev/v1"),
        [
            "/apis/example.godwit.dev/v1/birds",
            "/apis/example.godwit.dev/v1/namespaces/{namespace}/birds",
            "/apis/example.godwit.dev/v1/namespaces/{namespace}/birds/{name}",
            "/apis/example.godwit.dev/v1/namespaces/{namespace}/birds/{name}/status",
        ]
    );
    assert_eq!(paths("api/v1"), ["/api/v1/namespaces", "/api/v1/namespaces/{name}"]);
}

#[test]
fn only_what_is_reachable_is_included_and_nothing_dangles() {
    let lease = doc("apis/coordination.k8s.io/v1");
    let schemas = lease["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("io.k8s.api.coordination.v1.LeaseSpec"));
    assert!(schemas.contains_key(&format!("{META}.OwnerReference")));
    assert!(schemas.contains_key("io.k8s.api.coordination.v1.LeaseList"));
    assert!(!schemas.contains_key("io.k8s.api.core.v1.PodSpec"));
    let mut names = Vec::new();
    references(&lease, &mut names);
    assert!(names.iter().all(|name| schemas.contains_key(name)));
}

#[test]
fn the_hash_in_the_index_changes_with_the_document() {
    let before = index(&kinds());
    let mut changed = kinds();
    changed.insert(bird("v1", json!({"type": "object"})));
    let after = index(&changed);
    let url =
        |index: &Value, path: &str| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(url(&before, "api/v1").starts_with("/openapi/v3/api/v1?hash="));
    assert_eq!(url(&before, "api/v1"), url(&after, "api/v1"));
    let bird = "apis/example.godwit.dev/v1";
    assert_ne!(url(&before, bird), url(&after, bird));
    assert_eq!(document(&kinds(), "apis/example.godwit.dev/v2"), None);
}

#[test]
fn built_in_names_are_those_of_the_go_types() {
    assert_eq!(builtin_name("", "v1", "Pod"), "io.k8s.api.core.v1.Pod");
    assert_eq!(builtin_name("rbac.authorization.k8s.io", "v1", "Role"), "io.k8s.api.rbac.v1.Role");
    assert_eq!(
        builtin_name("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    );
}
