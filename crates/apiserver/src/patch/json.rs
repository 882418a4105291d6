//! JSON patch, RFC 6902, as the real server's library reads it.
//!
//! Its leniencies, which clients depend on: `test` for null passes where the member is missing, `replace` makes a
//! missing member, `copy` of a missing member makes a null, negative indices count from the end, and what stands
//! before the first `/` of a path is passed over. The result never nests deeper than a document that was read.

use serde_json::Value;

use super::{does_not_apply, json_type};
use crate::body::MAX_DEPTH;
use crate::status::{ApiError, ApiResult};

const MAX_OPERATIONS: usize = 10_000;
/// What `copy` may add in all: a short patch could otherwise double the document again and again.
const MAX_COPIED_BYTES: usize = 3 << 20;
const MEMBERS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies an RFC 6902 patch with the real server's leniencies.
pub fn json(target: &Value, patch: &Value) -> ApiResult<Value> {
    let operations = operations(patch)?;
    let mut document = Document { root: target.clone(), depth: depth(target), copied: 0 };
    for operation in operations {
        document.apply(operation).ok_or_else(does_not_apply)?;
    }
    Ok(document.root)
}

/// Members of operations that mean nothing, as field validation reports them.
pub fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(index, operation)| {
            let members = operation.as_object().into_iter().flat_map(|map| map.keys());
            members
                .filter(|member| !MEMBERS.contains(&member.as_str()))
                .map(move |member| format!("json patch unknown field \"[{index}].{member}\""))
        })
        .collect()
}

/// The patch as a list of operations; its shape is checked before any of them runs.
fn operations(patch: &Value) -> ApiResult<&[Value]> {
    let malformed =
        |what: String| ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {what}"));
    let operations = match patch {
        Value::Null => &[],
        Value::Array(operations) => operations.as_slice(),
        other => {
            return Err(malformed(format!(
                "{} into Go value of type []handlers.jsonPatchOp",
                json_type(other)
            )));
        }
    };
    for operation in operations {
        match operation {
            Value::Null => {}
            Value::Object(members) => {
                let mut texts =
                    ["op", "path", "from"].into_iter().filter_map(|name| Some((name, members.get(name)?)));
                if let Some((name, value)) = texts.find(|(_, value)| !value.is_string() && !value.is_null()) {
                    let what = json_type(value);
                    return Err(malformed(format!(
                        "{what} into Go struct field jsonPatchOp.{name} of type string"
                    )));
                }
            }
            other => {
                return Err(malformed(format!(
                    "{} into Go value of type handlers.jsonPatchOp",
                    json_type(other)
                )));
            }
        }
    }
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", message));
    }
    Ok(operations)
}

struct Document {
    root: Value,
    /// No value nests deeper than this: an upper bound, so that moving a large value costs nothing.
    depth: usize,
    copied: usize,
}

/// Every step answers `None` when it does not apply to the document as it is.
impl Document {
    fn apply(&mut self, operation: &Value) -> Option<()> {
        let text = |name| operation.get(name).and_then(Value::as_str);
        let value = operation.get("value");
        let path = text("path")?;
        match text("op")? {
            "add" => {
                self.deepen(segments(path), value.map_or(0, depth))?;
                self.add(path, value.cloned().unwrap_or_default())
            }
            "remove" => self.remove(path).map(drop),
            "replace" => self.replace(path, value?),
            "test" => self.test(path, value),
            "move" => {
                let from = text("from")?;
                self.relocate(from, path)?;
                let value = self.remove(from)?;
                self.add(path, value)
            }
            "copy" => {
                let from = text("from")?;
                self.relocate(from, path)?;
                let value = self.get(from)?.clone();
                self.copied += size(&value);
                (self.copied <= MAX_COPIED_BYTES).then(|| self.add(path, value))?
            }
            _ => None,
        }
    }

    /// The value at a path; a member that is missing from its object is null.
    fn get(&mut self, path: &str) -> Option<&Value> {
        let (parent, key) = self.place(path)?;
        match parent {
            Value::Array(list) => list.get(index(&key, list.len())?),
            Value::Object(map) => Some(map.get(&key).unwrap_or(&Value::Null)),
            _ => None,
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Option<()> {
        let (parent, key) = self.place(path)?;
        match parent {
            Value::Object(map) => drop(map.insert(key, value)),
            Value::Array(list) if key == "-" => list.push(value),
            Value::Array(list) => list.insert(index(&key, list.len() + 1)?, value),
            _ => return None,
        }
        Some(())
    }

    fn remove(&mut self, path: &str) -> Option<Value> {
        let (parent, key) = self.place(path)?;
        match parent {
            Value::Object(map) => map.remove(&key),
            Value::Array(list) => Some(list.remove(index(&key, list.len())?)),
            _ => None,
        }
    }

    fn replace(&mut self, path: &str, value: &Value) -> Option<()> {
        self.deepen(segments(path), depth(value))?;
        if path.is_empty() {
            self.root = (value.is_object() || value.is_array()).then(|| value.clone())?;
            return Some(());
        }
        let (parent, key) = self.place(path)?;
        match parent {
            Value::Object(map) => drop(map.insert(key, value.clone())),
            Value::Array(list) => {
                let index = index(&key, list.len())?;
                *list.get_mut(index)? = value.clone();
            }
            _ => return None,
        }
        Some(())
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Option<()> {
        let found = if path.is_empty() { &self.root } else { self.get(path)? };
        (found == expected.unwrap_or(&Value::Null)).then_some(())
    }

    /// The container that a path points into, and the key in it.
    fn place(&mut self, path: &str) -> Option<(&mut Value, String)> {
        let (parents, key) = path.rsplit_once('/')?;
        let mut parent = &mut self.root;
        for part in parents.split('/').skip(1) {
            let key = unescape(part);
            parent = match parent {
                Value::Object(map) => map.get_mut(&key)?,
                Value::Array(list) => {
                    let index = index(&key, list.len())?;
                    list.get_mut(index)?
                }
                _ => return None,
            };
        }
        Some((parent, unescape(key)))
    }

    /// A value of the given depth is about to be put below so many containers.
    fn deepen(&mut self, above: usize, below: usize) -> Option<()> {
        self.depth = self.depth.max(above + below);
        (self.depth <= MAX_DEPTH).then_some(())
    }

    /// A value is about to be put elsewhere, with all that it holds.
    fn relocate(&mut self, from: &str, to: &str) -> Option<()> {
        let below = self.depth.saturating_sub(segments(from));
        self.deepen(segments(to), below)
    }
}

/// How many containers hold the value at a path.
fn segments(path: &str) -> usize {
    path.matches('/').count()
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// An index into a list of this length; negative ones count from its end.
fn index(key: &str, length: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let from_end = usize::try_from(index.unsigned_abs()).ok()?;
    let index = if index < 0 { length.checked_sub(from_end)? } else { from_end };
    (index < length).then_some(index)
}

/// How deep containers nest in a value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// A value's length in bytes as JSON, near enough for a limit.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 2 + list.iter().map(|element| 1 + size(element)).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
        Value::String(text) => text.len() + 2,
        _ => 8,
    }
}

#[cfg(test)]
mod tests;
