//! `/api`, `/apis` and below: what is served, in the old and the aggregated form.
use serde_json::Value;

use crate::kinds::KindTable;

/// `/apis` as `APIGroupList`.
pub fn group_list(_kinds: &KindTable) -> Value {
    todo!()
}

/// `/apis/GROUP` as `APIGroup`, if the group is served.
pub fn group(_kinds: &KindTable, _group: &str) -> Option<Value> {
    todo!()
}

/// `/api/v1` or `/apis/GROUP/VERSION` as `APIResourceList`, if served.
pub fn resource_list(_kinds: &KindTable, _group: &str, _version: &str) -> Option<Value> {
    todo!()
}

/// `/api` as `APIVersions`.
pub fn core_versions(_server_address: &str) -> Value {
    todo!()
}

/// The aggregated form of `/api` (`core`) or `/apis`.
pub fn aggregated(_kinds: &KindTable, _core: bool) -> Value {
    todo!()
}
