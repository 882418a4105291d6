//! Values as CEL rules see them: typed by their schema, fields named so that the language can write them.
//!
//! A field that the schema does not know is not visible, except in values of which the schema knows nothing at all.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::parser::Expression;
use serde_json::{Number, Value};

use super::cel::{ENGINE, parse, run};
use super::{Schema, Type, metadata};

/// The value as rules see it.
pub fn to_cel(schema: &Schema, value: &Value, is_resource: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number_to_cel(schema.kind, number),
        Value::String(text) => string_to_cel(schema, text),
        Value::Array(items) => {
            let unknown = Schema::default();
            let element = schema.element().unwrap_or(&unknown);
            let items = items.iter().map(|item| to_cel(element, item, element.embedded_resource));
            Cel::List(Arc::new(items.collect()))
        }
        Value::Object(fields) => {
            let unknown = Schema::default();
            let entries = fields.iter().filter_map(|(name, value)| {
                if let Some(node) = schema.properties.get(name) {
                    let known = node.get();
                    return Some((escape(name)?, to_cel(known, value, known.embedded_resource)));
                }
                // The keys of a map are data, not names: they are not escaped.
                if let Some(node) = &schema.additional {
                    return Some((name.clone(), to_cel(node.get(), value, node.get().embedded_resource)));
                }
                let visible =
                    schema.properties.is_empty() || (is_resource && metadata::is_type_or_meta(name));
                visible.then(|| (name.clone(), to_cel(&unknown, value, false)))
            });
            let map: HashMap<Key, Cel> =
                entries.map(|(name, value)| (Key::String(Arc::new(name)), value)).collect();
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "checked to be a whole number in range")]
fn number_to_cel(kind: Type, number: &Number) -> Cel {
    let float = number.as_f64().unwrap_or_default();
    match (kind, number.as_i64()) {
        (Type::Number, _) => Cel::Float(float),
        (_, Some(integer)) => Cel::Int(integer),
        (Type::Integer | Type::IntOrString, None) if float.fract() == 0.0 && float.abs() < 9.2e18 => {
            Cel::Int(float as i64)
        }
        _ => Cel::Float(float),
    }
}

fn string_to_cel(schema: &Schema, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.kind != Type::String {
        return plain();
    }
    match schema.constraints.format.as_deref() {
        Some("date-time") => construct("timestamp", text.to_owned()).unwrap_or_else(plain),
        Some("date") => construct("timestamp", format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        Some("duration") => construct("duration", text.to_owned()).unwrap_or_else(plain),
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// A time value, made by the engine's own function.
fn construct(function: &str, text: String) -> Option<Cel> {
    static PROGRAMS: LazyLock<HashMap<&str, Expression>> = LazyLock::new(|| {
        let compiled = ["timestamp", "duration"]
            .into_iter()
            .filter_map(|name| Some((name, parse(&format!("{name}(text)")).ok()?)));
        compiled.collect()
    });
    let mut scope = ENGINE.new_inner_scope();
    scope.add_variable_from_value("text", text);
    run(PROGRAMS.get(function)?, &scope).ok()
}

/// A field's name as an identifier of the language; `None` when it cannot be written as one.
pub fn escape(name: &str) -> Option<String> {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let escaped = || {
        let text = name.replace("__", "__underscores__");
        text.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
    };
    name.chars().all(legal).then(escaped)
}
