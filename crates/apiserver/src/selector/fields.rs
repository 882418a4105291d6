//! Field selectors: equalities and inequalities on the few fields that a kind offers.

use std::fmt;

use serde_json::Value;

use crate::kinds::Kind;
use crate::object::at_path;
use crate::schema::Type;
use crate::status::{ApiError, ApiResult};

/// A parsed field selector; the default one matches everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    field: String,
    equal: bool,
    value: String,
    /// Where the value is: the first of these paths that is set counts.
    paths: &'static [&'static str],
    /// What an object has that does not give the field.
    absent: &'static str,
}

impl FieldSelector {
    /// From a query string such as `metadata.name=a,spec.nodeName!=b`; a field that the kind does not offer is refused.
    pub fn parse(kind: &Kind, text: &str) -> ApiResult<Self> {
        let mut parts = split(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(ApiError::bad_request(message));
            };
            terms.push(Term {
                field: field.to_owned(),
                equal,
                value: unescape(value).map_err(ApiError::bad_request)?,
                paths: aliases(&kind.kind, field),
                absent: absent(kind, field),
            });
        }
        if let Some(term) = terms.iter().find(|term| !offers(kind, &term.field)) {
            return Err(unsupported(kind, &term.field));
        }
        // The text's order depends on how each term is spelt (`=` or `==`); the terms' own does not.
        terms.sort_unstable();
        Ok(Self { terms })
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let own = [term.field.as_str()];
            let paths = if term.paths.is_empty() { &own } else { term.paths };
            let found = paths.iter().find_map(|path| at_path(object, path).map(shown));
            let found = found.filter(|text| !text.is_empty());
            (found.as_deref().unwrap_or(term.absent) == term.value) == term.equal
        })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The name, when the selector asks for exactly one `metadata.name`.
    pub fn exact_name(&self) -> Option<&str> {
        let mut terms = self.terms.iter();
        let term = terms.find(|term| term.equal && term.field == "metadata.name")?;
        Some(&term.value)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

fn offers(kind: &Kind, field: &str) -> bool {
    match field {
        "metadata.name" => true,
        // Kinds that list their own fields offer the namespace only where there is one.
        "metadata.namespace" => kind.namespaced || lists_nothing(kind),
        _ => kind.selectable_fields.iter().any(|offered| offered.trim_start_matches('.') == field),
    }
}

fn lists_nothing(kind: &Kind) -> bool {
    kind.custom.is_none() && kind.selectable_fields.is_empty()
}

fn unsupported(kind: &Kind, field: &str) -> ApiError {
    ApiError::bad_request(if lists_nothing(kind) {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else if kind.group == "batch" {
        format!("field label {field:?} not supported for {}", kind.kind)
    } else {
        format!("field label not supported: {field}")
    })
}

/// Fields that go by another name than their path.
fn aliases(kind: &str, field: &str) -> &'static [&'static str] {
    match (kind, field) {
        ("Pod", "spec.host") => &["spec.nodeName"],
        ("Event", "source") => &["source.component", "reportingComponent"],
        _ => &[],
    }
}

/// Built-in numbers and booleans have their zero value where they are not set.
fn absent(kind: &Kind, field: &str) -> &'static str {
    if kind.custom.is_some() {
        return "";
    }
    let mut keys = field.split('.');
    let schema = keys.try_fold(kind.schema.get(), |schema, key| schema.field(key));
    match schema.map(|schema| schema.kind) {
        Some(Type::Boolean) => "false",
        Some(Type::Integer | Type::Number) => "0",
        _ => "",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        _ => String::new(),
    }
}

/// Splits at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Field, whether it must be equal, and value: at the first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (field, value) = (&term[..at], &term[at + 1..]);
    match field.strip_suffix('!') {
        Some(field) => Some((field, false, value)),
        None => Some((field, true, value.strip_prefix('=').unwrap_or(value))),
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(format!("invalid field selector: unescaped character in value: {code}"));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
