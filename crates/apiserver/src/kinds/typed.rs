//! Whether a value can be one of a built-in type at all, and the words in which the real server says that it cannot.
//!
//! Built-in kinds are structs there: a body is decoded into them before anything else looks at it, so a value of the wrong
//! type is a malformed request, not an invalid object. Fields that nobody knows are not this module's business.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

use super::definitions::{BYTES, QUANTITY};
use super::strategy::is_quantity;
use crate::patch::json_type;
use crate::schema::{Node, Type, formats};

/// Who reads the value. The two word the same mistake differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// The JSON decoder: of bodies, and of what a JSON or merge patch makes.
    Json,
    /// The converter of what a strategic merge patch makes.
    Converter,
}

/// The first value in `object` that is not of its field's type: what is wrong with it.
pub fn mismatch(kind: &Node, object: &Value, reader: Reader) -> Option<String> {
    let place = Place { structure: "", field: None, reader };
    place.check(kind, object)
}

/// Where a value stands: the struct around it, and the fields on the way to it. Indices and keys of maps do not count.
#[derive(Clone, Copy)]
struct Place<'a> {
    structure: &'a str,
    field: Option<&'a Field<'a>>,
    reader: Reader,
}

struct Field<'a> {
    above: Option<&'a Field<'a>>,
    name: &'a str,
}

impl Field<'_> {
    fn path(&self) -> String {
        match self.above {
            Some(above) => format!("{}.{}", above.path(), self.name),
            None => self.name.to_owned(),
        }
    }
}

impl Place<'_> {
    fn check(self, node: &Node, value: &Value) -> Option<String> {
        let schema = node.get();
        let format = schema.constraints.format.as_deref();
        match (schema.kind, value) {
            (Type::Any, _) if is_quantity_node(node) => bad_quantity(value),
            (Type::Any, _)
            | (_, Value::Null)
            | (Type::Boolean, Value::Bool(_))
            | (Type::Number, Value::Number(_))
            | (Type::IntOrString, Value::String(_)) => None,
            (Type::IntOrString, Value::Number(number)) if number.is_i64() => None,
            (Type::Object, Value::Object(fields)) => self.check_fields(node, fields),
            (Type::Array, Value::Array(items)) => {
                let element = schema.items.as_deref()?;
                items.iter().find_map(|item| self.check(element, item))
            }
            (Type::Integer, Value::Number(number)) => {
                let fits = match format {
                    Some("int32") => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
                    _ => number.is_i64(),
                };
                (!fits).then(|| self.not_whole(node, number))
            }
            (Type::IntOrString, other) => Some(self.unread(other, "int32")),
            (Type::String, Value::String(text)) => match format {
                Some(BYTES) => bad_base64(text),
                Some("date-time") if formats::matches("date-time", text) == Some(false) => {
                    let layout = "2006-01-02T15:04:05Z07:00";
                    Some(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\""))
                }
                _ => None,
            },
            (Type::String, other) if format == Some("date-time") => Some(self.unread(other, "string")),
            _ => Some(self.wrong(node, value)),
        }
    }

    fn check_fields(self, node: &Node, fields: &Map<String, Value>) -> Option<String> {
        let schema = node.get();
        let structure = struct_name(node).unwrap_or(self.structure);
        fields.iter().find_map(|(name, value)| {
            match (schema.properties.get(name), schema.additional.as_deref()) {
                (Some(known), _) => {
                    let field = Field { above: self.field, name };
                    Place { structure, field: Some(&field), ..self }.check(known, value)
                }
                (None, Some(of_map)) => self.check(of_map, value),
                (None, None) => None,
            }
        })
    }

    fn wrong(self, node: &Node, value: &Value) -> String {
        if self.reader == Reader::Converter {
            return unconverted(node, value);
        }
        self.unmarshal(json_type(value), &go_type(node))
    }

    fn not_whole(self, node: &Node, number: &Number) -> String {
        match self.reader {
            Reader::Json => self.unmarshal(&format!("number {number}"), &go_type(node)),
            Reader::Converter => format!("cannot convert float64 to {}", go_type(node)),
        }
    }

    /// A value whose type reads itself from JSON; in the converter's hands it does not know where it stands.
    fn unread(self, value: &Value, into: &str) -> String {
        let field = self.field.filter(|_| self.reader == Reader::Json);
        Place { field, ..self }.unmarshal(json_type(value), into)
    }

    fn unmarshal(self, what: &str, into: &str) -> String {
        match self.field {
            Some(field) => {
                let (structure, path) = (self.structure, field.path());
                format!(
                    "json: cannot unmarshal {what} into Go struct field {structure}.{path} of type {into}"
                )
            }
            None => format!("json: cannot unmarshal {what} into Go value of type {into}"),
        }
    }
}

fn bad_base64(text: &str) -> Option<String> {
    use base64::DecodeError::{InvalidByte, InvalidLastSymbol};
    // The decoder that sets the standard passes over line breaks.
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let place = match BASE64_STANDARD.decode(&text).err()? {
        InvalidByte(place, _) => place,
        // Bits that do not fill a byte are passed over, too.
        InvalidLastSymbol { .. } => return None,
        _ => text.len(),
    };
    Some(format!("illegal base64 data at input byte {place}"))
}

fn is_quantity_node(node: &Node) -> bool {
    matches!(node, Node::Named(name) if base(name) == QUANTITY)
}

fn bad_quantity(value: &Value) -> Option<String> {
    let fits = match value {
        Value::Null => true,
        Value::String(text) => is_quantity(text),
        Value::Number(number) => is_quantity(&number.to_string()),
        _ => false,
    };
    let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    (!fits).then(|| wrong.to_owned())
}

/// The converter's complaint: it names kinds of values, and never the place.
fn unconverted(node: &Node, value: &Value) -> String {
    let found = match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    };
    let schema = node.get();
    match schema.kind {
        Type::Object if struct_name(node).is_some() => format!("cannot restore struct from: {found}"),
        Type::Object => format!("cannot restore map from {found}"),
        Type::Array => format!("cannot restore slice from {found}"),
        // Go can make a text of a whole number; this converter then says that it may not.
        Type::String if found == "int64" => format!("cannot convert {found} to {}", go_type(node)),
        _ => format!("unrecognized type: {}", go_type(node)),
    }
}

/// The name of the Go struct that a definition stands for.
fn struct_name(node: &Node) -> Option<&str> {
    let Node::Named(name) = node else { return None };
    base(name).rsplit('.').next()
}

/// A definition's name without the mark of a single field's use of it.
fn base(name: &str) -> &str {
    name.split('#').next().unwrap_or(name)
}

/// A type as Go writes it. Names of string types are not known here: they are strings.
fn go_type(node: &Node) -> String {
    let schema = node.get();
    let below = |node: &Option<Box<Node>>| node.as_deref().map_or_else(|| "interface {}".to_owned(), go_type);
    match (schema.kind, node) {
        (Type::Object, Node::Named(name)) => {
            let mut parts = base(name).rsplit('.');
            let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{package}.{name}")
        }
        (Type::Object, Node::Inline(_)) => format!("map[string]{}", below(&schema.additional)),
        (Type::Array, _) => format!("[]{}", below(&schema.items)),
        (Type::String, _) if schema.constraints.format.as_deref() == Some(BYTES) => "[]uint8".to_owned(),
        (Type::Integer, _) => schema.constraints.format.clone().unwrap_or_else(|| "int64".to_owned()),
        (Type::Number, _) => "float64".to_owned(),
        (Type::Boolean, _) => "bool".to_owned(),
        (Type::String | Type::Any | Type::IntOrString, _) => "string".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(kind: &'static str, object: &Value, reader: Reader) -> Option<String> {
        mismatch(&Node::Named(kind), object, reader)
    }

    const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
    const POD: &str = "io.k8s.api.core.v1.Pod";
    const SECRET: &str = "io.k8s.api.core.v1.Secret";

    #[test]
    fn says_what_the_decoder_says() {
        for (kind, object, expected) in [
            (
                CONFIG_MAP,
                json!({"data": ["a"]}),
                "array into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                CONFIG_MAP,
                json!({"data": {"k": 5}}),
                "number into Go struct field ConfigMap.data of type string",
            ),
            (
                CONFIG_MAP,
                json!({"immutable": "x"}),
                "string into Go struct field ConfigMap.immutable of type bool",
            ),
            (CONFIG_MAP, json!([]), "array into Go value of type v1.ConfigMap"),
            (
                POD,
                json!({"spec": {"containers": [{"env": [{"name": true}]}]}}),
                "bool into Go struct field EnvVar.spec.containers.env.name of type string",
            ),
            (
                POD,
                json!({"spec": {"terminationGracePeriodSeconds": 1.5}}),
                "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
            ),
            (
                POD,
                json!({"spec": {"containers": {}}}),
                "object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
        ] {
            let expected = format!("json: cannot unmarshal {expected}");
            assert_eq!(words(kind, &object, Reader::Json), Some(expected), "{object}");
        }
        let object = json!({"data": {"k": "not base64!"}});
        assert_eq!(
            words(SECRET, &object, Reader::Json).as_deref(),
            Some("illegal base64 data at input byte 3")
        );
        let object = json!({"spec": {"overhead": {"cpu": "plenty"}}});
        assert!(
            words(POD, &object, Reader::Json).is_some_and(|why| why.starts_with("quantities must match"))
        );
    }

    #[test]
    fn says_what_the_converter_says() {
        for (object, expected) in [
            (json!({"data": {"k": 5}}), "cannot convert int64 to string"),
            (json!({"data": {"k": true}}), "unrecognized type: string"),
            (json!({"data": []}), "cannot restore map from slice"),
            (json!({"metadata": "x"}), "cannot restore struct from: string"),
        ] {
            assert_eq!(words(CONFIG_MAP, &object, Reader::Converter).as_deref(), Some(expected), "{object}");
        }
    }

    #[test]
    fn nulls_and_unknown_fields_pass() {
        let object = json!({"data": null, "metadata": {"creationTimestamp": null}, "extra": 1, "binaryData": {"a": "aGk=", "b": ""}});
        assert_eq!(words(CONFIG_MAP, &object, Reader::Json), None);
    }
}
