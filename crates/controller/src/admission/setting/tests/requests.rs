//! Requests: what is asked of which, and in which words it is answered.

use api::kubevirt::VirtualMachineInstanceMigration;
use serde_json::{Value, json};

use super::{object, three_nodes};
use crate::admission::Answer;
use crate::admission::setting::{concerns, is_under_way, judge, settled};

const GOOD: &str = r#"{"clusterNetwork":"mig","range":"10.1.0.0/24"}"#;
const BAD: &str = r#"{"clusterNetwork":"mig","range":"10.1.0.0/31"}"#;

#[expect(clippy::needless_pass_by_value, reason = "rows read better without references")]
fn request(operation: &str, old: Value, new: Value) -> Value {
    json!({ "kind": { "kind": "Setting" }, "operation": operation, "name": "vm-migration-network", "oldObject": old, "object": new })
}

#[expect(clippy::needless_pass_by_value, reason = "rows read better without references")]
fn migration(status: Value) -> VirtualMachineInstanceMigration {
    object(
        json!({ "metadata": { "name": "move", "namespace": "shop" }, "spec": { "vmiName": "wren" }, "status": status }),
    )
}

fn answer(request: &Value, migrations: &[VirtualMachineInstanceMigration]) -> Answer {
    settled(request).unwrap_or_else(|| judge(request, &three_nodes(), migrations))
}

fn fields(answer: Answer) -> Vec<String> {
    match answer {
        Answer::Refuse(causes) => causes.into_iter().map(|cause| cause.field).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_this_setting_is_judged() {
    let named = |kind: &str, name: &str| {
        let object = json!({ "metadata": { "name": name } });
        json!({ "kind": { "kind": kind }, "operation": "UPDATE", "oldObject": object, "object": object })
    };
    assert!(concerns(&named("Setting", "vm-migration-network")));
    assert!(!concerns(&named("Setting", "storage-network")));
    assert!(!concerns(&named("VirtualMachine", "vm-migration-network")));
    let ours = json!({ "metadata": { "name": "vm-migration-network" } });
    assert!(concerns(&request("CREATE", json!(null), ours.clone())));
    assert!(concerns(&request("DELETE", ours, json!(null))));
}

#[test]
fn both_the_value_and_the_default_are_judged() {
    let new = |value: &str, default: &str| json!({ "value": value, "default": default });
    let create = |value, default| answer(&request("CREATE", json!(null), new(value, default)), &[]);
    assert_eq!(create(GOOD, ""), Answer::Allow);
    assert_eq!(create("", GOOD), Answer::Allow);
    assert_eq!(create("", ""), Answer::Allow);
    assert_eq!(fields(create(BAD, GOOD)), ["value.range"]);
    assert_eq!(fields(create(GOOD, BAD)), ["default.range"]);
    assert_eq!(fields(create(BAD, "{}")), ["default.clusterNetwork", "default.range", "value.range"]);
    let update = |old, new| answer(&request("UPDATE", old, new), &[]);
    assert_eq!(fields(update(new(GOOD, ""), new(BAD, ""))), ["value.range"]);
    assert_eq!(update(new(BAD, ""), new("", "")), Answer::Allow);
}

#[test]
fn what_does_not_change_is_not_judged_again() {
    let old = json!({ "value": BAD, "metadata": {} });
    let new = json!({ "value": BAD, "metadata": { "annotations": { "a": "b" } } });
    let busy = [migration(json!({ "phase": "Running" }))];
    assert_eq!(answer(&request("UPDATE", old.clone(), new), &busy), Answer::Allow);
    assert_eq!(
        fields(answer(&request("UPDATE", old, json!({ "value": BAD, "default": BAD })), &busy)).len(),
        2
    );
}

#[test]
fn it_is_never_deleted() {
    let answer = answer(&request("DELETE", json!({ "value": "" }), json!(null)), &[]);
    let Answer::Deny { code: 405, reason: "MethodNotAllowed", message } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        message,
        "Disallow delete setting name vm-migration-network: to switch the network off, set value to an empty text, and default as \
         well if it has one."
    );
}

#[test]
fn nothing_changes_while_a_migration_runs() {
    for (status, runs) in [
        (json!(null), true),
        (json!({}), true),
        (json!({ "phase": "Pending" }), true),
        (json!({ "phase": "WaitingForSync" }), true),
        (json!({ "phase": "Scheduling", "migrationState": null }), true),
        (json!({ "phase": "Running", "migrationState": { "completed": false } }), true),
        (json!({ "phase": "Running", "migrationState": { "completed": true } }), false),
        (json!({ "phase": "Failed" }), false),
        (json!({ "phase": "Succeeded", "migrationState": { "completed": true } }), false),
    ] {
        let migration = migration(status.clone());
        assert_eq!(is_under_way(&migration), runs, "{status}");
        for new in [json!({ "value": GOOD }), json!({ "value": "" })] {
            for (operation, old) in [("CREATE", json!(null)), ("UPDATE", json!({ "value": BAD }))] {
                let answer = answer(&request(operation, old, new.clone()), std::slice::from_ref(&migration));
                match answer {
                    Answer::Deny { code: 400, reason: "BadRequest", message } if runs => {
                        assert!(message.starts_with("There is a VM migration in progress"), "{message}");
                        assert!(message.contains("shop/move (wren, "), "{message}");
                    }
                    Answer::Allow if !runs => {}
                    other => panic!("{operation} {status}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_refusal_is_told_as_the_api_server_tells_it() {
    let asked = request("DELETE", json!({}), json!(null));
    let review = answer(&asked, &[]).into_review(&asked);
    assert_eq!(review["response"]["allowed"], false);
    assert_eq!(review["response"]["status"]["code"], 405);
    let asked = request("CREATE", json!(null), json!({ "value": BAD }));
    let review = answer(&asked, &[]).into_review(&asked);
    assert_eq!(review["response"]["status"]["code"], 422);
    assert_eq!(review["response"]["status"]["details"]["causes"][0]["field"], "value.range");
}
