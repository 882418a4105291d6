//! What can be said of a CEL expression before any object is there: that it names fields, variables and functions that
//! exist, and that it yields what it must.
//!
//! The engine has no type checker. This one follows field access through the schema and gives up, in the rule's favour,
//! where the language would need real types: a mismatch of operands shows only when the rule runs.

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::binding::escape;
use super::cel::is_function;
use super::{Node, Schema, Type};

/// What is known of a value.
#[derive(Clone, Copy)]
pub enum Known<'a> {
    Anything,
    Boolean,
    Text,
    /// Neither a boolean nor a string.
    Other,
    Of(&'a Schema),
    /// A whole object, whose type and metadata are visible besides its own fields.
    Resource(&'a Schema),
    /// The metadata of a whole object, of which rules see only the names.
    Metadata,
}

impl Known<'_> {
    /// Whether the value may be of the type.
    pub fn may_be(self, wanted: Type) -> bool {
        match self {
            Self::Anything => true,
            Self::Boolean => wanted == Type::Boolean,
            Self::Text => wanted == Type::String,
            Self::Of(schema) => schema.kind == wanted || matches!(schema.kind, Type::Any | Type::IntOrString),
            Self::Other | Self::Resource(_) | Self::Metadata => false,
        }
    }
}

/// The variables in sight, innermost last.
pub type Scope<'a> = Vec<(&'a str, Known<'a>)>;

/// What the expression yields, or why it cannot be right.
pub fn infer<'a>(expr: &'a IdedExpr, scope: &mut Scope<'a>) -> Result<Known<'a>, String> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Ok(Known::Boolean),
        Expr::Literal(LiteralValue::String(_)) => Ok(Known::Text),
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => Ok(Known::Other),
        Expr::Ident(name) => variable(name, scope),
        Expr::Select(select) => {
            let operand = infer(&select.operand, scope)?;
            let found = field(operand, &select.field)?;
            Ok(if select.test { Known::Boolean } else { found })
        }
        Expr::Call(call) => infer_call(call, scope),
        Expr::Comprehension(comprehension) => {
            let element = element_of(infer(&comprehension.iter_range, scope)?);
            infer(&comprehension.accu_init, scope)?;
            let depth = scope.len();
            scope.push((&comprehension.accu_var, Known::Anything));
            scope.push((&comprehension.iter_var, element));
            let parts = [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result];
            let checked = parts.into_iter().try_for_each(|part| infer(part, scope).map(drop));
            scope.truncate(depth);
            checked.map(|()| Known::Anything)
        }
        Expr::List(list) => {
            for element in &list.elements {
                infer(element, scope)?;
            }
            Ok(Known::Other)
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    infer(&entry.key, scope)?;
                    infer(&entry.value, scope)?;
                }
            }
            Ok(Known::Other)
        }
    }
}

/// Names of types are values of the language.
pub const TYPES: [&str; 9] = ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type"];

fn variable<'a>(name: &str, scope: &Scope<'a>) -> Result<Known<'a>, String> {
    match scope.iter().rev().find(|(known, _)| *known == name) {
        Some((_, known)) => Ok(*known),
        None if TYPES.contains(&name) => Ok(Known::Other),
        None => Err(undeclared(name)),
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn infer_call<'a>(call: &'a CallExpr, scope: &mut Scope<'a>) -> Result<Known<'a>, String> {
    let name = call.func_name.as_str();
    let mut operands = Vec::new();
    match &call.target {
        None if !is_function(name) => return Err(undeclared(name)),
        None => {}
        Some(target) => {
            let qualified = match &target.expr {
                Expr::Ident(library) => is_function(&format!("{library}.{name}")),
                _ => false,
            };
            if !qualified {
                operands.push(infer(target, scope)?);
                if !is_function(name) {
                    return Err(undeclared(name));
                }
            }
        }
    }
    for argument in &call.args {
        operands.push(infer(argument, scope)?);
    }
    Ok(match name {
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "_&&_" | "_||_" | "!_" | "@in" | "startsWith"
        | "endsWith" | "matches" | "contains" | "hasValue" => Known::Boolean,
        "_[_]" => operands.first().map_or(Known::Anything, |operand| element_or_value(*operand)),
        "string" => Known::Text,
        "size" | "int" | "uint" | "double" | "duration" | "timestamp" | "-_" => Known::Other,
        _ => Known::Anything,
    })
}

/// What a field holds; a field that cannot be there is an error.
fn field<'a>(operand: Known<'a>, name: &str) -> Result<Known<'a>, String> {
    let undefined = || Err(format!("undefined field '{name}'"));
    match operand {
        Known::Metadata if matches!(name, "name" | "generateName") => Ok(Known::Text),
        Known::Metadata => undefined(),
        Known::Resource(_) if matches!(name, "apiVersion" | "kind") => Ok(Known::Text),
        Known::Resource(_) if name == "metadata" => Ok(Known::Metadata),
        Known::Of(schema) | Known::Resource(schema) => {
            let named = schema.properties.iter().find(|(known, _)| escape(known).as_deref() == Some(name));
            match (named, &schema.additional) {
                (Some((_, node)), _) => Ok(of(node)),
                (None, Some(node)) => Ok(of(node)),
                (None, None) if schema.kind == Type::Object && !schema.preserve_unknown => undefined(),
                _ => Ok(Known::Anything),
            }
        }
        _ => Ok(Known::Anything),
    }
}

fn of(node: &Node) -> Known<'_> {
    let schema = node.get();
    if schema.embedded_resource { Known::Resource(schema) } else { Known::Of(schema) }
}

/// What a macro's variable runs through: the items of a list, the keys of a map.
fn element_of(range: Known) -> Known {
    match range {
        Known::Of(Schema { items: Some(items), .. }) => of(items),
        Known::Of(Schema { additional: Some(_), .. }) => Known::Text,
        _ => Known::Anything,
    }
}

fn element_or_value(operand: Known) -> Known {
    match operand {
        Known::Of(Schema { items: Some(node), .. } | Schema { additional: Some(node), .. }) => of(node),
        _ => Known::Anything,
    }
}
