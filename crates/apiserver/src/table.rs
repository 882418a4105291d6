//! Objects as rows: the `Table` that kubectl prints.
use serde_json::Value;

use crate::kinds::Kind;

/// How much of each object a row carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

/// A `Table` of these objects. `list_meta` is the list's metadata; in a watch only the first event has column definitions.
pub fn render(
    _kind: &Kind,
    _objects: &[Value],
    _list_meta: &Value,
    _include: IncludeObject,
    _with_columns: bool,
) -> Value {
    todo!()
}

/// `PartialObjectMetadata` of an object.
pub fn partial_metadata(_object: &Value) -> Value {
    todo!()
}
