//! The schema against the real server's answers, and properties that hold for every schema and object.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::structural::parse;
use super::{Schema, cel, defaults, prune};
use crate::status::{ApiError, FieldError};

/// Causes as the measurements hold them: reason, field, message; the real server's order is that of a Go map.
pub fn causes(errors: Vec<FieldError>) -> Vec<[String; 3]> {
    let details = ApiError::invalid("g", "K", "n", errors).details.unwrap_or_default();
    let mut causes: Vec<[String; 3]> = details
        .causes
        .into_iter()
        .map(|cause| [cause.reason.to_owned(), cause.field, cause.message])
        .collect();
    causes.sort();
    causes
}

pub fn measured(case: &Value) -> Vec<[String; 3]> {
    serde_json::from_value(case["causes"].clone()).unwrap_or_default()
}

/// Every number as a float, because Go writes `1.0` back as `1`.
fn by_value(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(by_value).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), by_value(v))).collect(),
        other => other.clone(),
    }
}

/// What the handlers do with a body: prune, default, validate.
fn admit(schema: &Schema, body: &Value, old: Option<&Value>) -> (Value, Vec<String>, Vec<FieldError>) {
    let mut object = body.clone();
    let unknown = prune::prune(schema, &mut object);
    defaults::apply(schema, &mut object);
    let errors = cel::validate_all(schema, &object, old);
    (object, unknown, errors)
}

fn whole(body: &Value) -> Value {
    let mut object = body.clone();
    object["apiVersion"] = json!("g.example.com/v1");
    object["kind"] = json!("Case");
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = json!("x");
    }
    object
}

#[test]
fn resources_are_judged_as_by_the_real_server() {
    let groups: Vec<Value> = serde_json::from_str(include_str!("measured/resources.json")).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for group in &groups {
        let schema = match parse(&group["schema"], "schema") {
            Ok(schema) => schema,
            Err(errors) => panic!("{:#?}", errors.iter().map(ToString::to_string).collect::<Vec<_>>()),
        };
        for case in group["cases"].as_array().unwrap() {
            count += 1;
            let old = case.get("old").map(whole);
            let (object, unknown, errors) = admit(&schema, &whole(&case["new"]), old.as_ref());
            let (ours, theirs) = (causes(errors), measured(case));
            // A value that is left out leaves its colon behind: `FieldError` cannot say otherwise.
            let ours: Vec<_> = ours
                .into_iter()
                .map(|cause| cause.map(|text| text.trim_end_matches(": ").to_owned()))
                .collect();
            if ours != theirs {
                wrong.push(format!("{}\n  ours   {ours:?}\n  theirs {theirs:?}", case["new"]));
            }
            if theirs.is_empty() {
                let stored = by_value(&object["spec"]);
                if stored != by_value(&case["stored"]["spec"]) {
                    wrong.push(format!("{}\n  ours   {stored}\n  theirs {}", case["new"], case["stored"]));
                }
                let warnings: Vec<&str> = case["warnings"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .filter_map(|warning| warning.strip_prefix("unknown field \"")?.strip_suffix('"'))
                    .collect();
                if unknown != warnings {
                    wrong.push(format!("{}\n  ours   {unknown:?}\n  theirs {warnings:?}", case["new"]));
                }
            }
        }
    }
    assert!(count >= 100, "only {count} cases");
    assert!(wrong.is_empty(), "{} of {count} differ\n{}", wrong.len(), wrong.join("\n"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]|spec|metadata|kind|items", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Schemas that are mostly well formed, so that many of them parse.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = (
        prop::sample::select(vec!["string", "integer", "number", "boolean"]),
        any::<bool>(),
        prop::option::of(any_json()),
        prop::option::of(prop::sample::select(vec!["date", "int32", "ipv4", "byte", "x"])),
        prop::option::of(0..5_u8),
    )
        .prop_map(|(kind, nullable, default, format, least)| {
            let mut schema = json!({"type": kind, "nullable": nullable});
            if let Some(default) = default.filter(|value| value.is_string() == (kind == "string")) {
                schema["default"] = default;
            }
            if let Some(format) = format {
                schema["format"] = json!(format);
            }
            if let Some(least) = least {
                schema["minimum"] = json!(least);
                schema["minLength"] = json!(least);
            }
            schema
        });
    leaf.prop_recursive(4, 24, 3, |inner| {
        let properties = prop::collection::btree_map("[a-c]", inner.clone(), 0..4);
        prop_oneof![
            (properties, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(map, keep, default, embedded)| {
                let mut schema = json!({"type": "object", "properties": map, "required": ["a"]});
                if keep {
                    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                }
                if default {
                    schema["default"] = json!({"a": null});
                }
                if embedded {
                    schema["x-kubernetes-embedded-resource"] = json!(true);
                }
                schema
            }),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 2})),
            inner.clone().prop_map(|values| json!({"type": "object", "additionalProperties": values})),
            (inner.clone(), inner).prop_map(|(a, b)| json!({
                "type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": a, "c": b},
                "required": ["a"]}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            })),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_once(spec in any_schema(), object in any_json(), old in any_json()) {
        let raw = json!({"type": "object", "properties": {"spec": spec}});
        if let Ok(schema) = parse(&raw, "schema") {
            let mut object = json!({"spec": object, "metadata": {"x": 1}, "y": 1});
            let old = json!({"spec": old});
            let unknown = prune::prune(&schema, &mut object);
            prop_assert!(unknown[0] == "metadata.x" && unknown.contains(&"y".to_owned()));
            let pruned = object.clone();
            prop_assert!(prune::prune(&schema, &mut object).is_empty());
            prop_assert_eq!(&object, &pruned);
            defaults::apply(&schema, &mut object);
            let defaulted = object.clone();
            defaults::apply(&schema, &mut object);
            prop_assert_eq!(&object, &defaulted);
            let _ = cel::validate_all(&schema, &object, Some(&old));
        }
    }

    #[test]
    fn nothing_panics(raw in any_json(), schema in any_schema(), object in any_json()) {
        let _ = parse(&raw, "schema");
        let _ = parse(&json!({"type": raw, "properties": raw, "items": raw, "anyOf": [raw]}), "schema");
        if let Ok(schema) = parse(&schema, "schema") {
            let _ = cel::validate_all(&schema, &object, Some(&raw));
            let _ = prune::prune(&schema, &mut object.clone());
        }
    }
}

#[test]
fn a_broken_rule_names_what_is_wrong() {
    let schema = |rule: &str| {
        json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
            "x-kubernetes-validations": [{"rule": rule}],
        }}})
    };
    for good in [
        "self.l.exists(i, i.x == 1)",
        "has(self.a) && self.a.startsWith('x')",
        "sets.contains(['a'], [self.a])",
        "self.l.map(i, i.x).sum() > 3",
        "type(self.a) == string",
        "self.?a.orValue('') != 'x'",
    ] {
        assert!(parse(&schema(good), "s").is_ok(), "{good}: {:?}", parse(&schema(good), "s").err());
    }
    for (bad, words) in [
        ("self.l.exists(i, i.y == 1)", "undefined field 'y'"),
        ("self.b == 1", "undefined field 'b'"),
        ("nope(self.a)", "undeclared reference to 'nope'"),
        ("spec.a == 'x'", "undeclared reference to 'spec'"),
        ("self.a", "cel expression must evaluate to a bool"),
        ("self.a ==", "compilation failed"),
        // The real server knows these, the engine does not: better refused now than failing with every object.
        ("self.l.sortBy(i, i.x).size() > 0", "undeclared reference to 'sortBy'"),
        ("self.l.all(n, i, n < i.x)", "undeclared reference to 'all'"),
        ("self.?a.optMap(a, a + 'x').hasValue()", "undeclared reference to"),
    ] {
        let errors = parse(&schema(bad), "s").unwrap_err();
        assert!(errors[0].detail.contains(words), "{bad}: {errors:?}");
    }
}
