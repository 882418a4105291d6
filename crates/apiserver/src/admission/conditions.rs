//! `matchConditions`: CEL expressions that must all hold for a hook to be asked.
//!
//! Owns the three variables `object`, `oldObject` and `request`. Values have no schema here, so fields keep their
//! names and every whole number is an `int`, as on the real server.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

/// One condition that does not hold decides; only then do errors count.
pub fn all_hold(
    conditions: &Value,
    object: &Value,
    old_object: &Value,
    request: &Value,
) -> Result<bool, String> {
    let mut context = Context::default().with_all();
    context.add_variable_from_value("object", to_cel(object));
    context.add_variable_from_value("oldObject", to_cel(old_object));
    context.add_variable_from_value("request", to_cel(request));
    let mut errors = Vec::new();
    for condition in conditions.as_array().into_iter().flatten() {
        let expression = condition["expression"].as_str().unwrap_or_default();
        match holds(expression, &context) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(cause) => errors.push(format!("expression '{expression}' resulted in error: {cause}")),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn holds(expression: &str, context: &Context<'_>) -> Result<bool, String> {
    let program = Program::compile(expression).map_err(|error| error.to_string())?;
    match program.execute(context) {
        Ok(Cel::Bool(holds)) => Ok(holds),
        Ok(_) => Err("cel expression must evaluate to a bool".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let entries: HashMap<Key, Cel> =
                map.iter().map(|(key, value)| (Key::from(key.clone()), to_cel(value))).collect();
            Cel::Map(Map { map: Arc::new(entries) })
        }
    }
}
