//! What single built-in kinds do before they are stored: the few rules that no schema can say.
use serde_json::Value;

use super::Kind;
use crate::status::{ApiResult, FieldError};

/// Prepares a new object (after defaulting): initial status, derived fields.
pub fn prepare_create(_kind: &Kind, _object: &mut Value) {}

/// Prepares an update of the main endpoint: fields that a client cannot change are put back.
pub fn prepare_update(_kind: &Kind, _new: &mut Value, _old: &Value) {}

/// Rules of single kinds on create (`old` absent) and update.
pub fn validate(_kind: &Kind, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// The stored object as this version of the kind shows it (events have two faces).
pub fn present(_kind: &Kind, _object: &mut Value) {}

/// The reverse of [`present`]: what the client sent, as it is stored.
pub fn absorb(_kind: &Kind, _object: &mut Value) -> ApiResult<()> {
    Ok(())
}
