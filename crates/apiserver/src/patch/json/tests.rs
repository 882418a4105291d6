use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::body::testing::any_json;

#[test]
fn operations_do_what_the_real_server_does() {
    let target = json!({"data": {"x": "1", "n": null, "a/b~": 1}, "list": [1, 2, 3]});
    let with = |path: &str, value: Value| {
        let mut out = target.clone();
        *out.pointer_mut(path).unwrap() = value;
        Some(out)
    };
    let same = || Some(target.clone());
    for (patch, expected) in [
        (json!(null), same()),
        (json!([]), same()),
        // Missing and null are one to `test`, and to `replace` missing is as good as there.
        (json!([{"op": "test", "path": "/data/nope", "value": null}]), same()),
        (json!([{"op": "test", "path": "/data/nope"}]), same()),
        (json!([{"op": "test", "path": "/data/n", "value": null}]), same()),
        (json!([{"op": "test", "path": "/data/x", "value": "1"}]), same()),
        (json!([{"op": "test", "path": "/data/x", "value": "2"}]), None),
        (json!([{"op": "test", "path": "/data/x"}]), None),
        (json!([{"op": "test", "path": "/nope/x", "value": null}]), None),
        (json!([{"op": "test", "path": "/list/-1", "value": 3}]), same()),
        (json!([{"op": "test", "path": "", "value": target}]), same()),
        (json!([{"op": "replace", "path": "/data/n", "value": "q"}]), with("/data/n", json!("q"))),
        (json!([{"op": "replace", "path": "/data", "value": {}}]), with("/data", json!({}))),
        (json!([{"op": "replace", "path": "/list/3", "value": 1}]), None),
        (json!([{"op": "replace", "path": "/list/-", "value": 1}]), None),
        (json!([{"op": "replace", "path": "", "value": {"a": 1}}]), Some(json!({"a": 1}))),
        (json!([{"op": "replace", "path": "", "value": 3}]), None),
        (json!([{"op": "add", "path": "", "value": {}}]), None),
        (json!([{"op": "add", "path": "/list/-", "value": 4}]), with("/list", json!([1, 2, 3, 4]))),
        (json!([{"op": "add", "path": "/list/-1", "value": 4}]), with("/list", json!([1, 2, 3, 4]))),
        (json!([{"op": "add", "path": "/list/-2", "value": 4}]), with("/list", json!([1, 2, 4, 3]))),
        (json!([{"op": "add", "path": "/list/3", "value": 4}]), with("/list", json!([1, 2, 3, 4]))),
        (json!([{"op": "add", "path": "/list/4", "value": 4}]), None),
        (json!([{"op": "add", "path": "/list/x", "value": 4}]), None),
        (json!([{"op": "add", "path": "ignored/list/0", "value": 0}]), with("/list", json!([0, 1, 2, 3]))),
        (json!([{"op": "add", "path": "/data/x/y", "value": 0}]), None),
        (json!([{"op": "replace", "path": "/data/a~1b~0", "value": 2}]), with("/data/a~1b~0", json!(2))),
        (json!([{"op": "remove", "path": "/list/-3"}]), with("/list", json!([2, 3]))),
        (json!([{"op": "remove", "path": "/data/nope"}]), None),
        (json!([{"op": "remove", "path": "/list/3"}]), None),
        (json!([{"op": "move", "from": "/list/0", "path": "/list/-"}]), with("/list", json!([2, 3, 1]))),
        (json!([{"op": "move", "from": "/nope", "path": "/a"}]), None),
        (json!([{"op": "copy", "from": "/list/0", "path": "/data/n"}]), with("/data/n", json!(1))),
        (json!([{"op": "copy", "from": "/data/nope", "path": "/data/x"}]), with("/data/x", json!(null))),
        (json!([{"op": "frob", "path": "/a"}]), None),
        (json!([{"op": "add"}]), None),
        (json!([null]), None),
    ] {
        let applied = json(&target, &patch);
        match expected {
            Some(expected) => assert_eq!(applied, Ok(expected), "{patch}"),
            None => assert_eq!(applied, Err(does_not_apply()), "{patch}"),
        }
    }
}

#[test]
fn malformed_patches_are_named() {
    for (patch, message) in [
        (json!({}), "object into Go value of type []handlers.jsonPatchOp"),
        (json!("s"), "string into Go value of type []handlers.jsonPatchOp"),
        (json!([1]), "number into Go value of type handlers.jsonPatchOp"),
        (json!([{"op": 1}]), "number into Go struct field jsonPatchOp.op of type string"),
    ] {
        let error = json(&json!({}), &patch).unwrap_err();
        let expected = format!("error decoding patch: json: cannot unmarshal {message}");
        assert_eq!((error.code, error.message), (400, expected));
    }
    let patch = json!([{"op": "test", "bogus": 1}]);
    assert_eq!(unknown_members(&patch), ["json patch unknown field \"[0].bogus\""]);
}

#[test]
fn a_patch_cannot_grow_without_bound() {
    let many = Value::from(vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1]);
    assert_eq!(json(&json!({}), &many).unwrap_err().code, 413);

    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::from(vec![double; 64]);
    assert_eq!(json(&json!({"a": [[1, 2], [3, 4]]}), &patch), Err(does_not_apply()));

    let deeper = json!({"op": "copy", "from": "/a", "path": "/a/a"});
    let patch = Value::from(vec![deeper; 2 * MAX_DEPTH]);
    assert_eq!(json(&json!({"a": {}}), &patch), Err(does_not_apply()));
}

proptest! {
    #[test]
    fn what_replace_wrote_test_finds(target in any_json(), value in any_json()) {
        let target = json!({"a": target});
        let path = "/a";
        let patch = json!([
            {"op": "replace", "path": path, "value": value},
            {"op": "test", "path": path, "value": value},
        ]);
        prop_assert_eq!(json(&target, &patch), Ok(json!({"a": value})));
    }

    #[test]
    fn any_document_patches_or_is_refused(target in any_json(), patch in any_json()) {
        let _ = json(&target, &patch);
    }
}
