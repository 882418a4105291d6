//! Checks an object against its schema.
//!
//! Reports what the real server would report, in its words. Must never panic, whatever the object and the schema, and
//! allocates nothing for an object that is valid. The checks of one value run whatever its type turned out to be: a
//! string where a number should be is still held to its length.

use std::cmp::Ordering;

use serde_json::{Number, Value, json};

use super::lists::duplicates_in;
use super::numbers::{compare, go_float, is_integral, is_multiple, out_of_range, show_number};
use super::path::{Path, or_nil};
use super::{Bound, Schema, Type, correlate, formats, metadata};
use crate::status::{FieldError, FieldErrorKind};

/// Every violation in `new`. With `old` given, what did not change is not held against the client (ratcheting).
pub fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = validate_value(schema, new, old, "");
    metadata::validate_embedded(schema, new, &Path::Root, &mut errors);
    errors.extend(new_duplicates(schema, new, old));
    errors
}

/// The violations that a change of the status answers for: those below `status`, seen from there.
pub fn validate_status(schema: &Schema, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = match (schema.field("status"), new.get("status")) {
        (Some(known), Some(status)) => validate_value(known, status, old.get("status"), "status"),
        _ => Vec::new(),
    };
    errors.extend(new_duplicates(schema, new, Some(old)));
    errors
}

/// Elements given twice in a list that holds each once, unless there were some before.
fn new_duplicates(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let found = duplicates_in(schema, new);
    let forgiven = !found.is_empty() && old.is_some_and(|old| !duplicates_in(schema, old).is_empty());
    if forgiven { Vec::new() } else { found }
}

/// The violations of types and constraints alone, of a value found at `base`.
pub fn validate_value(schema: &Schema, new: &Value, old: Option<&Value>, base: &str) -> Vec<FieldError> {
    Checker { base }.check(schema, new, &Path::Root, old).errors
}

/// What one value's checks came to.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    /// How many checks applied and passed: of several alternatives that fail, the one that came closest is reported.
    matches: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for error in other.errors {
            self.add(error);
        }
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

struct Checker<'a> {
    /// Where the value stands, for the fields of errors; their messages speak of the path within the value.
    base: &'a str,
}

impl Checker<'_> {
    /// Checks the value, and forgives what is wrong with it if it did not change.
    fn check(&self, schema: &Schema, value: &Value, path: &Path, old: Option<&Value>) -> Outcome {
        let mut outcome = self.apply(schema, value, path, old);
        if !outcome.is_valid() && old.is_some_and(|old| correlate::unchanged(schema, value, old)) {
            outcome.errors.clear();
        }
        outcome
    }

    fn apply(&self, schema: &Schema, value: &Value, path: &Path, old: Option<&Value>) -> Outcome {
        let mut out = Outcome::default();
        let format = schema.constraints.format.as_deref().filter(|name| is_known(schema.kind, name));
        self.check_type(schema, format, value, path, &mut out);
        if value.is_null() {
            self.check_options(schema, value, path, &mut out);
            return out;
        }
        self.check_alternatives(schema, value, path, old, &mut out);
        match value {
            Value::String(text) => self.check_string(schema, format, text, path, &mut out),
            Value::Number(number) => self.check_number(schema, format, number, path, &mut out),
            Value::Array(items) => self.check_items(schema, items, path, old, &mut out),
            Value::Object(fields) => self.check_fields(schema, fields, path, old, &mut out),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_options(schema, value, path, &mut out);
        out.matches += 2;
        out
    }

    fn check_type(
        &self,
        schema: &Schema,
        format: Option<&str>,
        value: &Value,
        path: &Path,
        out: &mut Outcome,
    ) {
        if schema.kind == Type::Any && format.is_none() {
            return;
        }
        out.matches += 1;
        let fits = match (schema.kind, value) {
            (_, Value::Null) => schema.nullable || schema.kind == Type::Any,
            (Type::Any, _)
            | (Type::Object, Value::Object(_))
            | (Type::Array, Value::Array(_))
            | (Type::String | Type::IntOrString, Value::String(_))
            | (Type::Boolean, Value::Bool(_))
            | (Type::Number, Value::Number(_)) => true,
            (Type::Integer | Type::IntOrString, Value::Number(number)) => is_integral(number),
            // The real server lets a list pass for a string that has a format.
            (Type::String, Value::Array(_)) => format.is_some(),
            _ => false,
        };
        if fits {
            out.matches += 1;
            return;
        }
        // A number's format stands for its type.
        let (expected, found) = match (format, value) {
            (Some(format), Value::Bool(_) | Value::Object(_)) => (format, ""),
            (Some(format), Value::Number(number)) => {
                (format, if number.is_f64() { "float64" } else { "int64" })
            }
            _ => (schema.kind.name(), type_name(value)),
        };
        let detail = format!("{path} in body must be of type {expected}: {found:?}");
        out.add(self.error(FieldErrorKind::TypeInvalid, path, &json!(found), detail));
    }

    fn check_string(
        &self,
        schema: &Schema,
        format: Option<&str>,
        text: &str,
        path: &Path,
        out: &mut Outcome,
    ) {
        let limits = &schema.constraints;
        out.matches += 1;
        let length = text.chars().count() as u64;
        if let Some(most) = limits.max_length.filter(|most| length > *most) {
            let unit = if most == 1 { "byte" } else { "bytes" };
            let detail = format!("may not be more than {most} {unit}");
            out.add(FieldError::of(FieldErrorKind::TooLong, self.field(path), String::new(), detail));
        } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
            let detail = format!("{path} in body should be at least {least} chars long");
            out.add(self.invalid(path, &json!(text), detail));
        } else if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            let detail = format!("{path} in body should match '{}'", pattern.as_str());
            out.add(self.invalid(path, &json!(text), detail));
        }
        let Some(format) = format else { return };
        out.matches += 1;
        if formats::matches(format, text) == Some(false) {
            let detail = format!("{path} in body must be of type {format}: {text:?}");
            out.add(self.error(FieldErrorKind::TypeInvalid, path, &json!(text), detail));
        }
    }

    fn check_number(
        &self,
        schema: &Schema,
        format: Option<&str>,
        number: &Number,
        path: &Path,
        out: &mut Outcome,
    ) {
        let limits = &schema.constraints;
        out.matches += 2;
        if let Some(range) = out_of_range(schema.kind, format, number) {
            let detail = format!("Checked value must be of type {} {range} in {path}", schema.kind.name());
            out.add(self.whole(&detail));
        }
        let shown = Value::Number(number.clone());
        if let Some(factor) = limits.multiple_of {
            let factor_text = go_float(factor);
            if factor <= 0.0 {
                let detail = format!("factor MultipleOf declared for {path} must be positive: {factor_text}");
                out.add(self.invalid(path, &json!(factor), detail));
            } else if !is_multiple(number, factor) {
                let detail = format!("{path} in body should be a multiple of {factor_text}");
                out.add(self.invalid(path, &shown, detail));
            }
        }
        let broken = |bound: &&Bound, beyond: Ordering| {
            let order = compare(number, bound.value);
            order == Some(beyond) || (bound.exclusive && order == Some(Ordering::Equal))
        };
        for (bound, beyond, word) in
            [(&limits.minimum, Ordering::Less, "greater"), (&limits.maximum, Ordering::Greater, "less")]
        {
            if let Some(bound) = bound.as_ref().filter(|bound| broken(bound, beyond)) {
                let or_equal = if bound.exclusive { "" } else { " or equal to" };
                let limit = go_float(bound.value);
                let detail = format!("{path} in body should be {word} than{or_equal} {limit}");
                out.add(self.invalid(path, &shown, detail));
            }
        }
    }

    fn check_items(
        &self,
        schema: &Schema,
        items: &[Value],
        path: &Path,
        old: Option<&Value>,
        out: &mut Outcome,
    ) {
        let limits = &schema.constraints;
        out.matches += 2;
        if let Some(element) = schema.element() {
            for (index, item) in items.iter().enumerate() {
                let before = old.and_then(|old| correlate::item(schema, Some(old), item));
                out.merge(self.check(element, item, &Path::Index(path, index), before));
            }
        }
        let count = items.len() as u64;
        if let Some(least) = limits.min_items.filter(|least| count < *least) {
            let detail = format!("{path} in body should have at least {least} items");
            out.add(self.invalid(path, &json!(count), detail));
        }
        if let Some(most) = limits.max_items.filter(|most| count > *most) {
            out.add(self.too_many(path, count, most));
        }
        if limits.unique_items && !all_distinct(items) {
            let detail = format!("{path} in body shouldn't contain duplicates");
            out.add(self.invalid(path, &json!(""), detail));
        }
    }

    fn check_fields(
        &self,
        schema: &Schema,
        fields: &serde_json::Map<String, Value>,
        path: &Path,
        old: Option<&Value>,
        out: &mut Outcome,
    ) {
        let limits = &schema.constraints;
        out.matches += 1;
        let count = fields.len() as u64;
        if let Some(least) = limits.min_properties.filter(|least| count < *least) {
            let detail = format!("{path} in body should have at least {least} properties");
            out.add(self.invalid(path, &json!(count), detail));
        }
        if let Some(most) = limits.max_properties.filter(|most| count > *most) {
            out.add(self.too_many(path, count, most));
        }
        for name in fields.keys().filter(|name| limits.closed && !schema.properties.contains_key(*name)) {
            let detail = format!("{path}.{name} in body is a forbidden property");
            out.add(self.invalid(path, &json!(name), detail));
        }
        for (name, value) in fields {
            let Some(known) = schema.field(name) else { continue };
            // Both sides were converted to the requested version: its name says nothing of what the client changed.
            let hidden = path.is_root() && matches!(name.as_str(), "apiVersion" | "kind");
            let before = if hidden { None } else { correlate::field(old, name) };
            out.merge(self.check(known, value, &Path::Child(path, name), before));
        }
        for name in limits.required.iter().filter(|name| !fields.contains_key(*name)) {
            let field = self.field(&Path::Child(path, name));
            out.add(FieldError::required(field, ""));
        }
    }

    fn check_options(&self, schema: &Schema, value: &Value, path: &Path, out: &mut Outcome) {
        let options = &schema.constraints.options;
        // The real server never finds null among the options.
        if options.is_empty() || (!value.is_null() && options.iter().any(|option| same(option, value))) {
            return;
        }
        let texts: Vec<String> = options.iter().map(text_of).collect();
        out.add(FieldError::not_supported(self.field(path), value, &texts));
    }

    fn check_alternatives(
        &self,
        schema: &Schema,
        value: &Value,
        path: &Path,
        old: Option<&Value>,
        out: &mut Outcome,
    ) {
        let limits = &schema.constraints;
        out.matches += 2;
        let groups = [&limits.any_of, &limits.one_of, &limits.all_of];
        if limits.not.is_none() && groups.iter().all(|group| group.is_empty()) {
            return;
        }
        let run = |schema: &Schema| self.apply(schema, value, path, old);
        let quoted = path.to_string();
        if !limits.any_of.is_empty() {
            match closest(limits.any_of.iter().map(run), true) {
                (Some(valid), _, _) => out.merge(valid),
                (None, failure, _) => {
                    out.add(self.whole(&format!("{quoted:?} must validate at least one schema (anyOf)")));
                    out.merge(failure.unwrap_or_default());
                }
            }
        }
        if !limits.one_of.is_empty() {
            match closest(limits.one_of.iter().map(run), false) {
                (Some(valid), _, 1) => out.merge(valid),
                (_, failure, count) => {
                    let found = match count {
                        0 => "Found none valid".to_owned(),
                        _ => format!("Found {count} valid alternatives"),
                    };
                    let detail = format!("{quoted:?} must validate one and only one schema (oneOf). {found}");
                    out.add(self.whole(&detail));
                    out.merge(failure.filter(|_| count == 0).unwrap_or_default());
                }
            }
        }
        let mut failed = 0;
        for part in limits.all_of.iter().map(run) {
            failed += usize::from(!part.is_valid());
            out.merge(part);
        }
        if failed > 0 {
            let none = if failed == limits.all_of.len() { ". None validated" } else { "" };
            out.add(self.whole(&format!("{quoted:?} must validate all the schemas (allOf){none}")));
        }
        if limits.not.as_deref().is_some_and(|not| run(not).is_valid()) {
            out.add(self.whole(&format!("{quoted:?} must not validate the schema (not)")));
        }
    }

    fn field(&self, path: &Path) -> String {
        match (self.base, path.is_root()) {
            ("", _) => path.field(),
            (base, true) => base.to_owned(),
            (base, false) => format!("{base}.{path}"),
        }
    }

    fn error(&self, kind: FieldErrorKind, path: &Path, value: &Value, detail: String) -> FieldError {
        FieldError::of(kind, self.field(path), show_number(value), detail)
    }

    fn invalid(&self, path: &Path, value: &Value, detail: String) -> FieldError {
        self.error(FieldErrorKind::Invalid, path, value, detail)
    }

    /// An error that the real server does not pin to a field.
    fn whole(&self, detail: &str) -> FieldError {
        FieldError::invalid(or_nil(self.base.to_owned()), &json!(""), detail)
    }

    fn too_many(&self, path: &Path, count: u64, most: u64) -> FieldError {
        let unit = if most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {most} {unit}");
        FieldError::of(FieldErrorKind::TooMany, self.field(path), count.to_string(), detail)
    }
}

/// The first valid outcome, the failure that came closest, and how many were valid.
fn closest(
    outcomes: impl Iterator<Item = Outcome>,
    first: bool,
) -> (Option<Outcome>, Option<Outcome>, usize) {
    let (mut valid, mut failure, mut count) = (None, None::<Outcome>, 0);
    for outcome in outcomes {
        if outcome.is_valid() {
            count += 1;
            valid.get_or_insert(outcome);
            if first {
                break;
            }
        } else if failure.as_ref().is_none_or(|best| outcome.matches > best.matches) {
            failure = Some(outcome);
        }
    }
    (valid, failure, count)
}

/// Whether the format means anything for the type.
fn is_known(kind: Type, format: &str) -> bool {
    match kind {
        Type::String | Type::Any => formats::matches(format, "").is_some(),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Equal, where numbers are equal by value and not by how they were written.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn all_distinct(items: &[Value]) -> bool {
    items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
}
