//! Server-side apply: who owns which field, and what happens when two want the same.
use serde_json::Value;

use crate::schema::Schema;
use crate::status::ApiResult;

/// Who writes, and how.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    pub manager: &'a str,
    /// The apiVersion of the request.
    pub api_version: &'a str,
    /// `status`, `scale`, or empty for the main endpoint.
    pub subresource: &'a str,
    /// `metadata.managedFields[].time` of what this write changes.
    pub now: &'a str,
}

/// Applies `config` onto `live` (none: creates) and returns the new object with its `managedFields`.
/// Conflicts with other managers are an error unless `force`.
pub fn apply(
    _schema: &Schema,
    _live: Option<&Value>,
    _config: &Value,
    _writer: &Writer<'_>,
    _force: bool,
) -> ApiResult<Value> {
    todo!()
}

/// Records in `new` that `writer` changed it from `live` by create, update or another patch.
/// The managedFields that the client sent are honoured as the real server does (an empty list resets them).
pub fn record_update(_schema: &Schema, _live: Option<&Value>, _new: &mut Value, _writer: &Writer<'_>) {}
