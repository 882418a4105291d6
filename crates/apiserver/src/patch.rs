//! The three patch types that are not server-side apply. Pure: a document and a patch in, a document out.
//!
//! Which of them a request means, and what its body must look like, is [`crate::body`]'s business; what the
//! result must look like is the caller's. Every merge here keeps a document within the depth that it was read with.

mod json;
mod merge;
mod strategic;

pub use json::{json, unknown_members};
pub use merge::merge;
pub use strategic::strategic;

use serde_json::Value;

use crate::status::{ApiError, Details};

/// A patch that does not fit the object. The real server says no more than this, and we say the same.
pub(crate) fn does_not_apply() -> ApiError {
    let message = "the server rejected our request due to an error in our request";
    let mut error = ApiError::new(422, "Invalid", message);
    error.details = Some(Box::new(Details::default()));
    error
}

/// A patch as messages show it.
pub(crate) fn shown(patch: &Value) -> String {
    strategic::go_text(patch)
}

/// What Go's JSON decoder calls a value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
