//! OpenAPI v3 documents: what kubectl needs to apply, edit and explain.
use serde_json::Value;

use crate::kinds::KindTable;

/// `/openapi/v3`: every document with its hash.
pub fn index(_kinds: &KindTable) -> Value {
    todo!()
}

/// One document, by its path below `/openapi/v3/` (`api/v1`, `apis/GROUP/VERSION`).
pub fn document(_kinds: &KindTable, _path: &str) -> Option<Value> {
    todo!()
}
