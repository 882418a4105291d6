//! Kubernetes protobuf to JSON: what client-go sends for built-in kinds, with no way to ask it for JSON instead.
//!
//! One generic reader driven by `fields.txt`, which says for each message the number, JSON name and type of every
//! field (made by `fields.go` from the Kubernetes types). The JSON is what Go would have written for the same
//! object, without nulls. Malformed input is refused, never guessed at.

mod scalars;
mod table;

use serde_json::{Value, json};

use self::table::{Field, Kind, Message, TABLE};
use crate::object::{JsonMap, child_mut};

const MAGIC: &[u8] = b"k8s\0";

/// An object from its envelope. `kind` stands in where the envelope does not name one.
pub(super) fn decode(body: &[u8], kind: &str) -> Result<Value, String> {
    if body.is_empty() {
        return Err("empty data".to_owned());
    }
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        let expected = "expected prefix [107 56 115 0]";
        return Err(format!("provided data does not appear to be a protobuf message, {expected}"));
    };
    if envelope.is_empty() {
        return Err("empty body".to_owned());
    }
    let (mut api_version, mut named, mut raw) = (String::new(), String::new(), &[][..]);
    for part in Fields(envelope) {
        match part? {
            (1, Wire::Bytes(type_meta)) => {
                for part in Fields(type_meta) {
                    match part? {
                        (1, Wire::Bytes(text)) => api_version = String::from_utf8_lossy(text).into_owned(),
                        (2, Wire::Bytes(text)) => named = String::from_utf8_lossy(text).into_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let kind = if named.is_empty() { kind } else { &named };
    let Some(message) = TABLE.kind(&api_version, kind) else {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
    };
    let mut object = message_of(message, raw, 0)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// One field's value as it is on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message in the order in which they were sent.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| {
            let field = self.field();
            if field.is_err() {
                self.0 = &[];
            }
            field
        })
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Wire<'a>), String> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.array()?)),
            5 => Wire::Number(u64::from(u32::from_le_bytes(self.array()?))),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| end())?;
                Wire::Bytes(self.take(length)?)
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok((tag >> 3, wire))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(end)?;
        self.0 = rest;
        Ok(*head)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(end)?;
        self.0 = rest;
        Ok(head)
    }
}

fn end() -> String {
    "unexpected EOF".to_owned()
}

/// A message as a JSON object.
fn message_of(message: &Message, bytes: &[u8], depth: usize) -> Result<JsonMap, String> {
    if depth > super::MAX_DEPTH {
        return Err("exceeded max depth".to_owned());
    }
    let mut out = JsonMap::new();
    for part in Fields(bytes) {
        let (number, wire) = part?;
        let Some(field) = message.field(number) else {
            continue;
        };
        if field.name.is_empty() {
            // An embedded struct: its fields are the message's own.
            if let Value::Object(inner) = value_of(&field.kind, field, wire, depth + 1)? {
                out.extend(inner);
            }
            continue;
        }
        match &field.kind {
            Kind::List(element) => {
                let value = value_of(element, field, wire, depth + 1)?;
                if let Value::Array(list) = out.entry(field.name).or_insert_with(|| json!([])) {
                    list.push(value);
                }
            }
            Kind::Map(element) => {
                let (key, value) = entry_of(element, field, wire, depth + 1)?;
                child_mut(&mut out, field.name).insert(key, value);
            }
            kind => {
                let value = value_of(kind, field, wire, depth + 1)?;
                if value.is_null() || (field.omit_empty && is_empty(&value)) {
                    out.remove(field.name);
                } else {
                    out.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Ok(out)
}

/// A map's entry is a message of its own: the key is field 1, the value field 2.
fn entry_of(element: &Kind, field: &Field, wire: Wire, depth: usize) -> Result<(String, Value), String> {
    let Wire::Bytes(bytes) = wire else {
        return Err(wrong_type(field, wire));
    };
    let mut key = String::new();
    let mut value = value_of(element, field, element.zero(), depth)?;
    for part in Fields(bytes) {
        match part? {
            (1, Wire::Bytes(text)) => key = String::from_utf8_lossy(text).into_owned(),
            (2, wire) => value = value_of(element, field, wire, depth)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn value_of(kind: &Kind, field: &Field, wire: Wire, depth: usize) -> Result<Value, String> {
    Ok(match (kind, wire) {
        (Kind::Integer, Wire::Number(number)) => json!(number.cast_signed()),
        (Kind::Boolean, Wire::Number(number)) => json!(number != 0),
        (Kind::Double, Wire::Number(bits)) => json!(f64::from_bits(bits)),
        (Kind::String, Wire::Bytes(text)) => json!(String::from_utf8_lossy(text)),
        (Kind::Bytes, Wire::Bytes(bytes)) => scalars::base64(bytes),
        (Kind::Message(name), Wire::Bytes(bytes)) => {
            if let Some(value) = scalars::special(name, bytes)? {
                return Ok(value);
            }
            let message = TABLE.message(name).ok_or_else(|| format!("no message {name}"))?;
            Value::Object(message_of(message, bytes, depth)?)
        }
        _ => return Err(wrong_type(field, wire)),
    })
}

fn wrong_type(field: &Field, wire: Wire) -> String {
    let number = match wire {
        Wire::Number(_) => 0,
        Wire::Bytes(_) => 2,
    };
    format!("proto: wrong wireType = {number} for field {}", field.name)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests;
