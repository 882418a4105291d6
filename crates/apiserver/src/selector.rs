//! Label and field selectors: parsing and matching.
use std::collections::BTreeMap;

use serde_json::Value;

use crate::kinds::Kind;
use crate::status::ApiResult;

/// A parsed label selector; the default one matches everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LabelSelector {}

impl LabelSelector {
    /// From a query string such as `app=web,tier in (a,b),!legacy`.
    pub fn parse(_text: &str) -> ApiResult<Self> {
        todo!()
    }

    /// From a `metav1.LabelSelector` object with `matchLabels` and `matchExpressions`.
    pub fn from_object(_object: &Value) -> ApiResult<Self> {
        todo!()
    }

    pub fn matches(&self, _labels: &BTreeMap<String, String>) -> bool {
        todo!()
    }

    pub fn is_everything(&self) -> bool {
        todo!()
    }
}

/// A parsed field selector: equalities and inequalities on fields that the kind allows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector {}

impl FieldSelector {
    /// From a query string such as `metadata.name=a,spec.nodeName!=b`; a field that the kind does not offer is refused.
    pub fn parse(_kind: &Kind, _text: &str) -> ApiResult<Self> {
        todo!()
    }

    pub fn matches(&self, _object: &Value) -> bool {
        todo!()
    }

    pub fn is_everything(&self) -> bool {
        todo!()
    }

    /// The name, when the selector asks for exactly one `metadata.name`.
    pub fn exact_name(&self) -> Option<&str> {
        todo!()
    }
}
