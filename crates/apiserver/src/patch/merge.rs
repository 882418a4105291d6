//! JSON merge patch, RFC 7386, in place.
//!
//! One thing beyond the RFC, as the real server does it: members that are null inside a new value, also within its
//! lists, are left out of it.

use serde_json::{Map, Value};

/// Merges a patch into a document: null deletes, objects merge, anything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = without_nulls(patch);
        return;
    };
    let target = crate::object::as_map_mut(target);
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else if let Some(old) = target.get_mut(key) {
            merge(old, value);
        } else {
            target.insert(key.clone(), without_nulls(value));
        }
    }
}

/// A copy without members that are null. Elements of lists stay: leaving them out would move the others.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>())
        }
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::body::testing::any_json;

    #[test]
    fn rfc_7386_and_the_real_server() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b"}), json!({"z": null}), json!({"a": "b"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a"]), json!({"a": 1}), json!({"a": 1})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": [1]}), json!({"a": [{"b": null, "c": [null]}]}), json!({"a": [{"c": [null]}]})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, expected, "{target} + {patch}");
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(target in any_json(), patch in any_json()) {
            let mut once = target;
            merge(&mut once, &patch);
            let mut twice = once.clone();
            merge(&mut twice, &patch);
            prop_assert_eq!(once, twice);
        }
    }
}
