//! Request bodies: JSON, YAML or protobuf in, a JSON value out.
use serde_json::Value;

use crate::status::ApiResult;

/// A decoded body and the paths of keys that it gave twice (for field validation).
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// Decodes by content type; an unknown one is 415, a malformed body 400.
pub fn decode(_content_type: &str, _body: &[u8]) -> ApiResult<Decoded> {
    todo!()
}
