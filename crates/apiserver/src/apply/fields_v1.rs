//! The wire form of a [`FieldSet`]: `fieldsV1` of a managedFields entry.
//!
//! Owns reading and writing it. A path step of a kind that we do not know is dropped, as the real server does, so that a
//! newer client's sets still load; anything else that cannot be read is an error and never a guess.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::set::{FieldSet, Node, Step};

/// Reads a set from its wire form.
pub fn parse(fields: &Value) -> Result<FieldSet, String> {
    Ok(read(fields)?.children)
}

/// Writes a set in its wire form.
pub fn serialize(set: &FieldSet) -> Value {
    let mut out = Map::new();
    write_set(set, &mut out);
    Value::Object(out)
}

fn read(fields: &Value) -> Result<Node, String> {
    let mut node = Node::default();
    match fields {
        Value::Object(entries) => {
            for (key, below) in entries {
                if key == "." {
                    node.member = true;
                } else if let Some(step) = read_step(key)? {
                    node.children.add(step, read(below)?);
                }
            }
        }
        Value::Null => {}
        other => return Err(format!("expected an object in fieldsV1, got {other}")),
    }
    // A field with nothing below it stands for itself.
    node.member |= node.children.is_empty();
    Ok(node)
}

fn read_step(text: &str) -> Result<Option<Step>, String> {
    let Some((kind, content)) = text.split_at_checked(2) else {
        return Err(format!("key must be 2 characters long: {text}"));
    };
    let json = || serde_json::from_str::<Value>(content).map_err(|e| format!("parsing {text}: {e}"));
    Ok(Some(match kind {
        "f:" => Step::field(content),
        "v:" => Step::Value(json()?),
        "k:" => match json()? {
            Value::Object(keys) => {
                let mut keys: Vec<(String, Value)> = keys.into_iter().collect();
                keys.sort_by(|(a, _), (b, _)| a.cmp(b));
                Step::Key(keys)
            }
            _ => return Err(format!("expected an object of keys: {text}")),
        },
        "i:" => Step::Index(content.parse().map_err(|e| format!("parsing {text}: {e}"))?),
        _ if kind.ends_with(':') => return Ok(None),
        _ => return Err(format!("missing colon: {text}")),
    }))
}

fn write_set(set: &FieldSet, out: &mut Map<String, Value>) {
    for (step, node) in set.iter() {
        let mut below = Map::new();
        if node.member && !node.children.is_empty() {
            below.insert(".".to_owned(), Value::Object(Map::new()));
        }
        write_set(&node.children, &mut below);
        out.insert(write_step(step), Value::Object(below));
    }
}

fn write_step(step: &Step) -> String {
    match step {
        Step::Field(name) => format!("f:{name}"),
        Step::Value(value) => format!("v:{}", escape_html(value.to_string())),
        Step::Key(keys) => {
            let keys: Map<String, Value> = keys.iter().cloned().collect();
            format!("k:{}", escape_html(Value::Object(keys).to_string()))
        }
        Step::Index(index) => format!("i:{index}"),
    }
}

/// Go writes these characters escaped inside JSON strings; a key written otherwise would not be the same key to a
/// client that compares texts.
pub fn escape_html(json: String) -> String {
    const SPECIAL: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];
    if !json.contains(SPECIAL) {
        return json;
    }
    json.chars().fold(String::with_capacity(json.len() + 16), |mut out, c| {
        if SPECIAL.contains(&c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
        out
    })
}
