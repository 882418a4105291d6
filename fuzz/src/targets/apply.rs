//! Server-side apply of arbitrary documents by a schema with every kind of list and map. Seeds: `{"live": …, "config": …}`.
#![allow(clippy::panic, reason = "a target that cannot start must say so")]

use std::sync::LazyLock;

use apiserver::apply;
use apiserver::schema::{Schema, structural};
use serde_json::json;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let item = json!({
        "type": "object", "required": ["name"],
        "properties": { "name": { "type": "string" }, "value": { "type": "integer" } },
    });
    let raw = json!({
        "type": "object",
        "properties": { "spec": {
            "type": "object",
            "properties": {
                "a": { "type": "string" },
                "list": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item },
                "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                "b": { "type": "array", "items": { "type": "string" } },
                "merge": { "type": "object", "additionalProperties": { "type": "string" } },
                "value": { "type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": { "type": "string" } },
                "from": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            },
        }},
    });
    structural::parse(&raw, "schema")
        .unwrap_or_else(|errors| panic!("the target's own schema is wrong: {errors:?}"))
});

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some(([live, config], force)) =
        crate::documents(data, ["live", "config"]).zip(data.first().map(|byte| byte % 2 == 0))
    else {
        return;
    };
    apply::fuzz(&SCHEMA, &live, &config, force);
}
