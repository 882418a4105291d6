//! The three patch types that are not server-side apply. Pure: a document and a patch in, a document out.
use serde_json::Value;

use crate::schema::Schema;
use crate::status::ApiResult;

/// RFC 6902 with the real server's leniencies.
pub fn json(_target: &Value, _patch: &Value) -> ApiResult<Value> {
    todo!()
}

/// RFC 7386.
pub fn merge(_target: &mut Value, _patch: &Value) {
    todo!()
}

/// Strategic merge patch of a built-in kind.
pub fn strategic(_schema: &Schema, _target: &Value, _patch: &Value) -> ApiResult<Value> {
    todo!()
}
