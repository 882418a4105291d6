//! Removes fields that the schema does not know, and says which.
//!
//! Must never touch a field that the schema knows. Pruning twice removes nothing the second time. The object's own
//! `metadata`, and that of embedded resources, is an `ObjectMeta` whatever the schema says of it.

use serde_json::Value;

use super::path::Path;
use super::{Schema, metadata};

/// Drops unknown fields of a whole object and returns their paths (`spec.bogus`, `spec.list[0].x`).
///
/// The order is the real server's: first those of the object's metadata, then the rest by name, then those in the
/// metadata of embedded resources.
pub fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Some(own) = object.get_mut("metadata") {
        metadata::prune(own, &Path::Base("metadata"), &mut unknown);
    }
    let (mut fields, mut embedded) = (Vec::new(), Vec::new());
    let mut walk = Walk { unknown: &mut fields, embedded: &mut embedded };
    if let Value::Object(map) = object {
        let keep = schema.preserve_unknown;
        map.retain(|name, value| {
            metadata::is_type_or_meta(name) || walk.keeps(schema, keep, name, value, &Path::Root)
        });
    }
    for mut paths in [fields, embedded] {
        paths.sort();
        unknown.append(&mut paths);
    }
    unknown
}

/// Drops unknown fields below a value that is no whole object, such as a default.
pub fn prune_value(schema: &Schema, value: &mut Value) {
    let walk = &mut Walk { unknown: &mut Vec::new(), embedded: &mut Vec::new() };
    walk.prune(schema, schema.preserve_unknown, value, &Path::Root);
}

struct Walk<'a> {
    unknown: &'a mut Vec<String>,
    embedded: &'a mut Vec<String>,
}

impl Walk<'_> {
    /// `keep`: fields that are not described stay.
    fn prune(&mut self, schema: &Schema, keep: bool, value: &mut Value, path: &Path) {
        match value {
            Value::Object(map) => map.retain(|name, child| {
                if schema.embedded_resource && metadata::is_type_or_meta(name) {
                    if name == "metadata" {
                        metadata::prune(child, &Path::Child(path, name), self.embedded);
                    }
                    return true;
                }
                self.keeps(schema, keep, name, child, path)
            }),
            Value::Array(items) => {
                let unknown = Schema::default();
                let element = schema.element().unwrap_or(&unknown);
                let keep = keep || element.preserve_unknown;
                for (index, item) in items.iter_mut().enumerate() {
                    self.prune(element, keep, item, &Path::Index(path, index));
                }
            }
            _ => {}
        }
    }

    /// Whether the field stays; if it does, what is below it is pruned.
    fn keeps(&mut self, schema: &Schema, keep: bool, name: &str, value: &mut Value, path: &Path) -> bool {
        let path = Path::Child(path, name);
        match schema.field(name) {
            Some(known) => self.prune(known, known.preserve_unknown, value, &path),
            None if keep => {}
            None => {
                self.unknown.push(path.to_string());
                return false;
            }
        }
        true
    }
}
