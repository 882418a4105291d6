//! `recorded.json`: a Deployment's merging fields, then patches with what kube-apiserver 1.36.4 made of each.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::body::testing::any_json;
use crate::schema::Node;

fn object(fields: &[(&str, Schema)]) -> Schema {
    let fields = fields.iter().map(|(name, schema)| ((*name).to_owned(), Node::from(schema.clone())));
    Schema { properties: fields.collect(), ..Schema::default() }
}

fn merging(key: Option<&str>, element: Schema) -> Schema {
    Schema {
        items: Some(Box::new(element.into())),
        patch: PatchStrategy { merge_key: key.map(str::to_owned), merge: true, ..PatchStrategy::default() },
        ..Schema::default()
    }
}

/// As much of a Deployment as the recorded patches touch.
fn deployment() -> Schema {
    let named = || merging(Some("name"), Schema::default());
    let container = object(&[
        ("env", named()),
        ("ports", merging(Some("containerPort"), Schema::default())),
        ("volumeMounts", merging(Some("mountPath"), Schema::default())),
    ]);
    let pod = object(&[
        ("containers", merging(Some("name"), container)),
        ("volumes", named()),
        ("imagePullSecrets", named()),
        ("hostAliases", merging(Some("ip"), Schema::default())),
    ]);
    let metadata = object(&[
        ("finalizers", merging(None, Schema::default())),
        ("ownerReferences", merging(Some("uid"), Schema::default())),
    ]);
    object(&[("metadata", metadata), ("spec", object(&[("template", object(&[("spec", pod)]))]))])
}

/// Empty lists and maps are not written back by a typed server, save where being there is the meaning.
fn normal(value: &Value) -> Value {
    let keep = |key: &str, value: &Value| key == "emptyDir" || !(value == &json!([]) || value == &json!({}));
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), normal(value)));
            Value::Object(fields.filter(|(key, value)| keep(key, value)).collect())
        }
        Value::Array(list) => list.iter().map(normal).collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn a_map_may_be_replaced_as_a_whole() {
    let selector =
        Schema { patch: PatchStrategy { replace: true, ..PatchStrategy::default() }, ..Schema::default() };
    let budget = object(&[("selector", selector)]);
    let patch = json!({"selector": {"matchLabels": {"c": "d"}, "matchExpressions": null}});
    let merged = strategic(&budget, &json!({"selector": {"matchLabels": {"a": "b"}}}), &patch).unwrap();
    assert_eq!(merged, json!({"selector": {"matchLabels": {"c": "d"}}}));
}

#[test]
fn patches_do_what_the_real_server_does() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let (target, cases) = recorded.split_first().unwrap();
    for case in cases {
        let patch = &case["patch"];
        match strategic(&deployment(), target, patch) {
            Ok(merged) => assert_eq!(normal(&merged), normal(&case["result"]), "{patch}"),
            Err(error) => assert_eq!(
                json!([error.code, error.message]),
                json!([case["code"], case["message"]]),
                "{patch}"
            ),
        }
    }
}

#[test]
fn malformed_patches_are_named() {
    let target = json!({"metadata": {"finalizers": ["x/z", "x/w"]}, "data": {"a": "1"}});
    for (patch, code, message) in [
        (json!([]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (json!(3), 400, "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        (json!({"data": {"$patch": "frob"}}), 500, "unknown patch type: frob in map: map[$patch:frob]"),
        (
            json!({"metadata": {"$setElementOrder/finalizers": 3}}),
            500,
            "expected a []interface {}, but received a int64",
        ),
        (
            json!({"metadata": {"$setElementOrder": ["a"]}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveListx": ["a"]}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"finalizers": [1]}}),
            500,
            "list element types are not identical: [[x/z x/w] [1]]",
        ),
        (
            json!({"metadata": {"finalizers": [null]}}),
            500,
            "list element types are not identical: [[x/z x/w] [<nil>]]",
        ),
        (
            json!({"metadata": {"finalizers": [{"a": 1}]}}),
            500,
            "list element types are not identical: [[x/z x/w] [map[a:1]]]",
        ),
    ] {
        let error = strategic(&deployment(), &target, &patch).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, message), "{patch}");
    }
}

#[test]
fn directives_on_absent_fields_vanish() {
    for patch in
        [json!(null), json!({"data": {"$patch": "frob"}}), json!({"data": {"$patch": "merge", "q": "1"}})]
    {
        assert_eq!(strategic(&deployment(), &json!({"a": 1}), &patch).unwrap(), json!({"a": 1}), "{patch}");
    }
}

proptest! {
    #[test]
    fn an_object_as_its_own_patch_changes_nothing(object in any_json().prop_filter("plain", |value| {
        value.is_object() && !value.to_string().contains('$') && !value.to_string().contains("null")
    })) {
        prop_assert_eq!(&strategic(&Schema::anything(), &object, &object).unwrap(), &object);
    }
}
