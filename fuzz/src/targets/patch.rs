//! The three patch types over arbitrary documents. Seeds: `{"target": …, "patch": …}`.

use apiserver::patch;
use apiserver::schema::{Node, PatchStrategy, Schema};

/// Lists that merge by `name` and by value, at every depth that matters.
fn schema(depth: usize) -> Schema {
    let mut schema = Schema::default();
    for (field, merge_key) in [("list", Some("name")), ("set", None), ("spec", None)].into_iter().take(depth)
    {
        let inner = self::schema(depth - 1);
        let node = if field == "spec" {
            inner
        } else {
            let merge_key = merge_key.map(str::to_owned);
            Schema {
                items: Some(Box::new(Node::from(inner))),
                patch: PatchStrategy {
                    merge_key,
                    merge: true,
                    retain_keys: false,
                    ..PatchStrategy::default()
                },
                ..Schema::default()
            }
        };
        schema.properties.insert(field.to_owned(), node.into());
    }
    schema
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some([target, patch]) = crate::documents(data, ["target", "patch"]) else {
        return;
    };
    let _ = patch::json(&target, &patch);
    let _ = patch::strategic(&schema(3), &target, &patch);
    let mut once = target;
    patch::merge(&mut once, &patch);
    let mut twice = once.clone();
    patch::merge(&mut twice, &patch);
    assert_eq!(once, twice, "a merge patch is idempotent");
}
