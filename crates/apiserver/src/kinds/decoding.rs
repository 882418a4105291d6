//! What Go's decoder would say of an object that does not fit the types of a built-in kind.
//!
//! The real server decodes before it looks at anything else, and stops at the first value that does not fit. The words
//! are Go's, as far as a schema knows its types: a string type with a name of its own is called `string` here.

use base64::DecodeError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::definitions::{BYTES, QUANTITY};
use super::strategy::is_quantity;
use crate::patch::json_type;
use crate::schema::{Node, Schema, Type, formats};

/// Why the object cannot be decoded; `None`: it can.
pub fn misfit(node: &Node, object: &Value) -> Option<String> {
    let mut place = Place {
        owner: "",
        fields: Vec::new(),
    };
    place.check(node, object)
}

/// Where the decoder is: the struct that it fills, and the fields that lead there.
struct Place<'a> {
    owner: &'a str,
    fields: Vec<&'a str>,
}

impl<'a> Place<'a> {
    fn check(&mut self, node: &'a Node, value: &'a Value) -> Option<String> {
        let schema = node.get();
        match (schema.kind, value) {
            (_, Value::Null) => None,
            (Type::Any, _) if definition(node) == Some(QUANTITY) => quantity(value),
            (Type::Object | Type::Any, Value::Object(map)) => {
                let outer = self.owner;
                if let (Some(name), false) = (definition(node), schema.properties.is_empty()) {
                    self.owner = name.rsplit('.').next().unwrap_or(name);
                }
                let mut found = None;
                for (key, child) in map {
                    found = match (schema.properties.get(key), &schema.additional) {
                        (Some(field), _) => {
                            self.fields.push(key);
                            let found = self.check(field, child);
                            self.fields.pop();
                            found
                        }
                        (None, Some(values)) => self.check(values, child),
                        (None, None) => None,
                    };
                    if found.is_some() {
                        break;
                    }
                }
                self.owner = outer;
                found
            }
            (Type::Array | Type::Any, Value::Array(items)) => {
                let element = schema.items.as_deref()?;
                items.iter().find_map(|item| self.check(element, item))
            }
            (Type::Any, _)
            | (Type::Boolean, Value::Bool(_))
            | (Type::Number, Value::Number(_))
            | (Type::IntOrString, Value::String(_)) => None,
            (Type::String, Value::String(text)) => wrong_text(schema, text),
            (Type::Integer | Type::IntOrString, Value::Number(number)) => {
                let narrow = schema.constraints.format.as_deref() != Some("int64");
                let fits = number.as_i64().is_some_and(|n| !narrow || i32::try_from(n).is_ok());
                (!fits).then(|| self.refuse(node, &format!("number {number}")))
            }
            _ => Some(self.refuse(node, json_type(value))),
        }
    }

    fn refuse(&self, node: &Node, found: &str) -> String {
        // These decode themselves, and do not know where they are.
        let blind = match node.get() {
            schema if schema.kind == Type::IntOrString => Some("int32"),
            schema if is_time(schema) => Some("string"),
            _ => None,
        };
        match blind {
            Some(wanted) => format!("json: cannot unmarshal {found} into Go value of type {wanted}"),
            None => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                self.owner,
                self.fields.join("."),
                go_type(node)
            ),
        }
    }
}

/// The name of a definition, without the mark of the field that uses it.
fn definition(node: &Node) -> Option<&'static str> {
    match node {
        Node::Named(name) => name.split('#').next(),
        Node::Inline(_) => None,
    }
}

fn is_time(schema: &Schema) -> bool {
    schema.constraints.format.as_deref() == Some("date-time")
}

fn go_type(node: &Node) -> String {
    let schema = node.get();
    let below = |node: &Option<Box<Node>>| node.as_deref().map_or("interface {}".to_owned(), go_type);
    match schema.kind {
        Type::Boolean => "bool".into(),
        Type::Number => "float64".into(),
        Type::Integer => schema.constraints.format.clone().unwrap_or_else(|| "int32".into()),
        Type::String if schema.constraints.format.as_deref() == Some(BYTES) => "[]uint8".into(),
        Type::Array => format!("[]{}", below(&schema.items)),
        Type::Object if schema.properties.is_empty() => format!("map[string]{}", below(&schema.additional)),
        Type::Object => {
            // `io.k8s.api.core.v1.PodSpec` is `v1.PodSpec`.
            let mut parts = definition(node).unwrap_or_default().rsplitn(3, '.');
            let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{package}.{name}")
        }
        Type::String | Type::IntOrString | Type::Any => "string".into(),
    }
}

fn wrong_text(schema: &Schema, text: &str) -> Option<String> {
    if is_time(schema) {
        let wrong = formats::matches("date-time", text) == Some(false);
        return wrong.then(|| {
            format!(r#"parsing time {text:?} as "2006-01-02T15:04:05Z07:00": cannot parse {text:?} as "2006""#)
        });
    }
    if schema.constraints.format.as_deref() != Some(BYTES) {
        return None;
    }
    // Lines may be broken anywhere.
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let at = match BASE64_STANDARD.decode(&plain).err()? {
        DecodeError::InvalidByte(at, _) => at,
        // Bits that do not fill a byte are passed over.
        DecodeError::InvalidLastSymbol { .. } => return None,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => plain.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

fn quantity(value: &Value) -> Option<String> {
    let fits = match value {
        Value::String(text) => is_quantity(text),
        Value::Number(number) => is_quantity(&number.to_string()),
        _ => false,
    };
    let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    (!fits).then(|| wrong.to_owned())
}
