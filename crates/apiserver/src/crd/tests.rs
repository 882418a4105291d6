//! Definitions against the real server's answers.

use serde_json::{Value, json};

use super::{accept, default, establish, kinds, prepare_status, validate};
use crate::schema::tests::{causes, measured};

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../schema/measured/definitions.json")).unwrap()
}

fn prepared(case: &Value) -> Value {
    let mut definition = case["new"].clone();
    default(&mut definition);
    prepare_status(&mut definition, case.get("old"));
    definition
}

/// A message as far as it can be the same: the real server shows its internal structures, the words of its own
/// expression parsers, and where in a CEL expression it stumbled.
fn comparable([reason, field, message]: [String; 3]) -> [String; 3] {
    let cut = ["error parsing regexp", "compilation failed", "only [Description"];
    let message = match cut.into_iter().find_map(|words| message.find(words).map(|at| (words, at))) {
        Some(("only [Description", at)) => message[at..].to_owned(),
        Some((words, at)) => message[..at + words.len()].to_owned(),
        None => message,
    };
    [reason, field, message]
}

#[test]
fn definitions_are_judged_as_by_the_real_server() {
    // Operands of the wrong type show here only when the rule runs; see `schema::typing`.
    let unseen = ["schema 76"];
    let mut wrong = Vec::new();
    for case in cases().iter().filter(|case| !unseen.contains(&case["name"].as_str().unwrap())) {
        let definition = prepared(case);
        let errors = validate(&definition, case.get("old"));
        let ours: Vec<_> = causes(errors).into_iter().map(comparable).collect();
        let theirs: Vec<_> = measured(case).into_iter().map(comparable).collect();
        if ours != theirs {
            wrong.push(format!("{}: \n  ours   {ours:?}\n  theirs {theirs:?}", case["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn names_are_accepted_as_by_the_real_server() {
    let without_times = |status: &Value| {
        let mut status = status.clone();
        for condition in status["conditions"].as_array_mut().unwrap() {
            condition.as_object_mut().unwrap().remove("lastTransitionTime");
        }
        status
    };
    for case in cases() {
        let mut definition = prepared(&case);
        if let Some(theirs) = case.get("established") {
            assert!(accept(&mut definition, [], "now"));
            establish(&mut definition, "now");
            assert_eq!(definition["spec"], theirs["spec"]);
            assert_eq!(without_times(&definition["status"]), without_times(&theirs["status"]));
        }
        if let Some(theirs) = case.get("conflicting") {
            assert!(!accept(&mut definition, [&case["other"]], "now"));
            assert_eq!(without_times(&definition["status"]), without_times(theirs));
        }
    }
}

#[test]
fn a_row_per_served_version() {
    let mut definition = json!({
        "metadata": {"name": "vms.example.com", "uid": "u"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "vms", "kind": "Vm", "shortNames": ["v"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                 "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1}],
                 "selectableFields": [{"jsonPath": ".spec.host"}]},
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                 "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1alpha1", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    });
    default(&mut definition);
    let rows = kinds(&definition).unwrap();
    assert_eq!(rows.len(), 2);
    let (v1, beta) = (&rows[0], &rows[1]);
    assert_eq!(
        (v1.list_kind.as_str(), v1.singular.as_str(), &*v1.storage),
        ("VmList", "vm", "vms.example.com")
    );
    assert_eq!(v1.selectable_fields, ["spec.host"]);
    assert_eq!((v1.columns[0].path.as_str(), v1.columns[0].priority), (".spec.n", 1));
    assert!(v1.status && v1.scale.is_some() && v1.namespaced && !beta.status);
    assert_eq!(beta.storage_api_version, "example.com/v1");
    let warning = beta.custom.as_ref().unwrap().deprecation_warning.as_deref();
    assert_eq!(warning, Some("example.com/v1beta1 Vm is deprecated; use example.com/v1 Vm"));
}

#[test]
fn never_panics_on_nonsense() {
    for definition in
        [json!(null), json!([]), json!({"spec": 1}), json!({"spec": {"versions": [1, {}]}, "metadata": []})]
    {
        let mut definition = definition;
        let _ = validate(&definition, Some(&json!(3)));
        if definition.is_object() {
            let _ = kinds(&definition);
        }
        if definition["spec"].is_object() {
            default(&mut definition);
        }
    }
}
