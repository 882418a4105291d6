//! `x-kubernetes-validations`: CEL rules of a schema, evaluated with `self` and `oldSelf` correlated.
//!
//! The engine is `kube-cel`; the walk through schema and object is ours, because the engine's own escapes field names,
//! correlates list-maps and binds an optional `oldSelf` unlike the real server. Rules are compiled when a definition is
//! read, never while an object is checked. A fault inside the engine fails the rule, not the server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::{Expression, Parser};
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::{Value, json};

use super::binding::to_cel;
use super::path::{NIL, Path};
use super::typing::{self, Known};
use super::{Rule, Schema, Type, correlate};
use crate::status::{FieldError, FieldErrorKind, show};

/// A rule ready to run.
#[derive(Debug)]
pub struct Compiled {
    program: Expression,
    message: Option<Expression>,
    pub(super) uses_old_self: bool,
}

/// Why a rule cannot be right.
pub enum Flaw {
    Rule(String),
    Message(String),
}

/// Compiles a rule and, if there is one, the expression that words its failure.
pub fn compile(rule: &str, message: Option<&str>) -> Result<Compiled, Flaw> {
    let program = parse(rule).map_err(|reason| Flaw::Rule(format!("compilation failed: {reason}")))?;
    let message = message.filter(|source| !source.trim().is_empty()).map(parse).transpose();
    let uses_old_self = program.references().has_variable("oldSelf");
    Ok(Compiled {
        program,
        message: message
            .map_err(|reason| Flaw::Message(format!("messageExpression compilation failed: {reason}")))?,
        uses_old_self,
    })
}

impl Compiled {
    /// What a rule on values of `schema` cannot mean.
    pub(super) fn flaw(&self, schema: &Schema, is_resource: bool, optional_old: bool) -> Option<Flaw> {
        let this = if is_resource { Known::Resource(schema) } else { Known::Of(schema) };
        let old = if optional_old { Known::Anything } else { this };
        let mut scope = vec![("self", this), ("oldSelf", old)];
        match typing::infer(&self.program, &mut scope) {
            Err(reason) => return Some(Flaw::Rule(format!("compilation failed: {reason}"))),
            Ok(known) if !known.may_be(Type::Boolean) => {
                return Some(Flaw::Rule("cel expression must evaluate to a bool".to_owned()));
            }
            Ok(_) => {}
        }
        match typing::infer(self.message.as_ref()?, &mut scope) {
            Err(reason) => Some(Flaw::Message(format!("messageExpression compilation failed: {reason}"))),
            Ok(known) if !known.may_be(Type::String) => {
                Some(Flaw::Message("messageExpression must evaluate to a string".to_owned()))
            }
            Ok(_) => None,
        }
    }
}

pub(super) fn parse(source: &str) -> Result<Expression, String> {
    match catch_unwind(|| Parser::default().enable_optional_syntax(true).parse(source)) {
        Ok(Ok(mut expression)) => {
            mend(&mut expression);
            Ok(expression)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the expression cannot be parsed".to_owned()),
    }
}

/// Writes `a.?b`, and `a.?b.c`, as `a[?'b']`: of the two, the engine knows only of the latter that `b` may be missing.
fn mend(expression: &mut Expression) {
    match &mut expression.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut();
            target.into_iter().chain(&mut call.args).for_each(mend);
            if call.func_name == operators::OPT_SELECT {
                operators::OPT_INDEX.clone_into(&mut call.func_name);
            }
        }
        Expr::Select(select) => {
            mend(&mut select.operand);
            let is_optional =
                matches!(&select.operand.expr, Expr::Call(call) if call.func_name == operators::OPT_INDEX);
            if is_optional && !select.test {
                let field = Expression {
                    id: select.operand.id,
                    expr: Expr::Literal(LiteralValue::String(select.field.as_str().into())),
                };
                expression.expr = Expr::Call(CallExpr {
                    func_name: operators::OPT_INDEX.to_owned(),
                    target: None,
                    args: vec![std::mem::take(&mut *select.operand), field],
                });
            }
        }
        Expr::Comprehension(parts) => {
            let steps = [&mut parts.iter_range, &mut parts.accu_init, &mut parts.loop_cond];
            steps.into_iter().for_each(mend);
            mend(&mut parts.loop_step);
            mend(&mut parts.result);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(mend),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    mend(&mut entry.key);
                    mend(&mut entry.value);
                }
            }
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
    }
}

/// Every function that a rule may call. Building it is costly; a scope on top of it is not.
pub(super) static ENGINE: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    // Which type a value has is all that rules ask of types; their names serve.
    for name in typing::TYPES {
        context.add_variable_from_value(name, name);
    }
    context.add_function("type", |value: Cel| type_of(&value).to_owned());
    context.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    // The engine counts the bytes of a string.
    context.add_function("size", |This(value): This<Cel>| -> Result<Cel, ExecutionError> {
        let size = match &value {
            Cel::String(text) => text.chars().count(),
            Cel::Bytes(bytes) => bytes.len(),
            Cel::List(items) => items.len(),
            Cel::Map(map) => map.map.len(),
            _ => return Err(ExecutionError::NoSuchOverload),
        };
        Ok(Cel::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    });
    context
});

fn type_of(value: &Cel) -> &'static str {
    match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::Bool(_) => "bool",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        _ => "",
    }
}

/// Whether the engine has a function of this name, be it an operator.
pub(super) fn is_function(name: &str) -> bool {
    // Libraries of the engine that the real server does not lend to definitions.
    const FOREIGN: [&str; 2] = ["base64.", "math."];
    if FOREIGN.iter().any(|library| name.starts_with(library)) {
        return false;
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return true;
    }
    let Ok(call) = parse(&format!("{name}()")) else {
        return true;
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| ENGINE.resolve(&call)));
    !matches!(outcome, Ok(Err(ExecutionError::UndeclaredReference(_))))
}

/// Every rule that `new` breaks. Transition rules run only where an old value correlates.
pub fn validate(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    validate_value(schema, new, old, &Path::Root, true)
}

/// The same for a value that stands at `path`; `is_resource`: it has apiVersion, kind and metadata.
pub fn validate_value(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    path: &Path,
    is_resource: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let before = Before { old, ancestor: None };
    walk(schema, new, before, path, is_resource, &mut errors);
    errors
}

/// What the real server adds when rules were not run because the object is invalid already; `None` if they may run.
pub fn blocked(errors: &[FieldError]) -> Option<FieldError> {
    let blocking = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    errors.iter().any(blocking).then(|| {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                      errors to complete validation";
        FieldError::invalid(NIL, &Value::Null, detail)
    })
}

/// Both checks of a custom resource in their order: the schema, then, if nothing stands in the way, the rules.
pub fn validate_all(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = super::validate::validate(schema, new, old);
    if schema.without_rules {
        return errors;
    }
    match blocked(&errors) {
        Some(notice) => errors.push(notice),
        None => errors.extend(validate(schema, new, old)),
    }
    errors
}

/// What was there before: the value itself, or the nearest thing around it that correlates.
#[derive(Clone, Copy)]
struct Before<'a> {
    old: Option<&'a Value>,
    ancestor: Option<(&'a Schema, &'a Value, &'a Value)>,
}

impl<'a> Before<'a> {
    fn below(self, schema: &'a Schema, new: &'a Value, old: Option<&'a Value>) -> Self {
        match self.old {
            None => self,
            Some(parent) => Self { old, ancestor: Some((schema, new, parent)) },
        }
    }

    /// Whether the client left the value as it was.
    fn is_unchanged(self, schema: &Schema, new: &Value) -> bool {
        match (self.old, self.ancestor) {
            (Some(old), _) => correlate::unchanged(schema, new, old),
            (None, Some((schema, new, old))) => correlate::unchanged(schema, new, old),
            (None, None) => false,
        }
    }
}

fn walk<'a>(
    schema: &'a Schema,
    new: &'a Value,
    before: Before<'a>,
    path: &Path,
    is_resource: bool,
    errors: &mut Vec<FieldError>,
) {
    // Rules speak of values; that something is null is for the surrounding schema to judge.
    if schema.without_rules || new.is_null() {
        return;
    }
    if !schema.rules.is_empty() {
        check_rules(schema, new, before, path, is_resource, errors);
    }
    match new {
        Value::Object(fields) => {
            let at_root = path.is_root();
            for (name, value) in fields {
                let (known, path) = match (schema.properties.get(name), &schema.additional) {
                    (Some(node), _) => (node.get(), Path::Child(path, name)),
                    (None, Some(node)) => (node.get(), Path::Key(path, name)),
                    (None, None) => continue,
                };
                // Both sides were converted to the requested version: its name says nothing of what changed.
                let hidden = at_root && matches!(name.as_str(), "apiVersion" | "kind");
                let old = if hidden { None } else { correlate::field(before.old, name) };
                let before = before.below(schema, new, old);
                walk(known, value, before, &path, known.embedded_resource, errors);
            }
        }
        Value::Array(items) => {
            let Some(element) = schema.element() else { return };
            for (index, item) in items.iter().enumerate() {
                let old = correlate::item(schema, before.old, item);
                let before = before.below(schema, new, old);
                walk(element, item, before, &Path::Index(path, index), element.embedded_resource, errors);
            }
        }
        _ => {}
    }
}

fn check_rules(
    schema: &Schema,
    new: &Value,
    before: Before,
    path: &Path,
    is_resource: bool,
    errors: &mut Vec<FieldError>,
) {
    let old = before.old.filter(|old| !old.is_null());
    let this = to_cel(schema, new, is_resource);
    let old_this = old.map(|old| to_cel(schema, old, is_resource));
    for rule in &schema.rules {
        let Some(compiled) = &rule.compiled else { continue };
        if compiled.uses_old_self && old.is_none() && !rule.optional_old_self {
            continue;
        }
        let mut scope = ENGINE.new_inner_scope();
        scope.add_variable_from_value("self", this.clone());
        if rule.optional_old_self {
            let optional = old_this.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
        } else if let Some(old) = &old_this {
            scope.add_variable_from_value("oldSelf", old.clone());
        }
        let error = match run(&compiled.program, &scope) {
            Ok(Cel::Bool(true)) => continue,
            Ok(Cel::Bool(false)) => broken(schema, rule, compiled, &scope, new, path),
            Ok(_) => failed(schema, path, &format!("no such overload evaluating rule: {}", words(rule))),
            Err(reason) if reason == "no such overload" => failed(
                schema,
                path,
                &format!(
                    "'{reason}': call arguments did not match a supported operator, function or macro signature for \
                     rule: {}",
                    words(rule)
                ),
            ),
            Err(reason) => failed(schema, path, &format!("{reason} evaluating rule: {}", words(rule))),
        };
        // What the client did not touch is not held against it, but a change always is.
        if compiled.uses_old_self || !before.is_unchanged(schema, new) {
            errors.push(error);
        }
    }
}

pub(super) fn run(program: &Expression, scope: &Context) -> Result<Cel, String> {
    match catch_unwind(AssertUnwindSafe(|| scope.resolve(program))) {
        Ok(outcome) => outcome.map_err(|error| reason_of(&error)),
        Err(_) => Err("internal error".to_owned()),
    }
}

fn broken(
    schema: &Schema,
    rule: &Rule,
    compiled: &Compiled,
    scope: &Context,
    new: &Value,
    path: &Path,
) -> FieldError {
    let told = compiled.message.as_ref().and_then(|message| match run(message, scope) {
        Ok(Cel::String(text)) => Some(text.trim().to_owned()),
        _ => None,
    });
    let detail = told
        .filter(|text| !text.is_empty() && !text.contains('\n') && text.len() <= 5 * 1024)
        .unwrap_or_else(|| match &rule.message {
            Some(message) if !message.is_empty() => message.trim().to_owned(),
            _ => format!("failed rule: {}", words(rule)),
        });
    let field = match rule.field_path.as_deref().map(normal_path) {
        Some(below) => Path::Child(path, &below).field(),
        None => path.field(),
    };
    // Whole objects and lists are not shown.
    let shown = (!matches!(schema.kind, Type::Object | Type::Array)).then(|| show(new));
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
        Some("FieldValueRequired") => FieldError::required(field, detail),
        Some("FieldValueDuplicate") => {
            FieldError::of(FieldErrorKind::Duplicate, field, shown.unwrap_or_default(), "")
        }
        _ => match shown {
            Some(shown) => FieldError::of(FieldErrorKind::Invalid, field, shown, detail),
            None => FieldError::of(FieldErrorKind::Invalid, field, detail, ""),
        },
    }
}

/// A rule that could not be evaluated.
fn failed(schema: &Schema, path: &Path, detail: &str) -> FieldError {
    FieldError::invalid(path.field(), &json!(schema.kind.name()), detail)
}

fn words(rule: &Rule) -> &str {
    match rule.message.as_deref() {
        Some(message) if !message.is_empty() => message.trim(),
        _ => rule.rule.trim(),
    }
}

/// The engine's error in the words of the real server's.
fn reason_of(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == "quantity" => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        }
        ExecutionError::FunctionError { function, .. }
            if matches!(function.as_str(), "int" | "uint" | "double") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// `.spec['a.b']` as errors write it: `spec[a.b]`.
pub(super) fn normal_path(path: &str) -> String {
    path.trim().trim_start_matches('.').replace("['", "[").replace("']", "]")
}
