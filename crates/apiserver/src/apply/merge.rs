//! Changing values by their shape: laying a configuration over an object, and taking fields out of it.
//!
//! Owns [`merge`], [`remove`] and [`prune`]; decides nothing about ownership beyond the sets that it is given. Merging
//! never removes a field; only [`remove`] does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{FieldSet, Step};
use super::shape::{Form, Shape};
use super::walk::field_set;
use crate::schema::{ListType, Type};

/// Lays `config` over `live`: config's leaves win, all else stays.
pub fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    match (shape.form(config), live, config) {
        (Form::Map, Value::Object(live), Value::Object(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            let mut out = Map::new();
            for (name, live) in live {
                let merged = match config.get(name) {
                    Some(config) => merge(shape.field(name).0, live, config),
                    None => live.clone(),
                };
                out.insert(name.clone(), merged);
            }
            for (name, config) in config {
                if !live.contains_key(name) {
                    out.insert(name.clone(), config.clone());
                }
            }
            Value::Object(out)
        }
        (Form::Map, Value::Object(live), Value::Null) if !live.is_empty() => Value::Object(live.clone()),
        (Form::List(keys), Value::Array(live), Value::Array(config))
            if !(live.is_empty() && config.is_empty()) =>
        {
            Value::Array(merge_lists(shape, keys, live, config))
        }
        (Form::List(_), Value::Array(live), Value::Null) if !live.is_empty() => Value::Array(live.clone()),
        _ => config.clone(),
    }
}

/// Merges two lists. Config's elements come in config's order, each of live's own elements stays behind the shared
/// element that it follows in live.
fn merge_lists(shape: Shape<'_>, keys: &[String], live: &[Value], config: &[Value]) -> Vec<Value> {
    let steps = |list: &[Value]| -> Vec<Option<Step>> {
        list.iter().map(|element| shape.step(keys, element).ok()).collect()
    };
    let (live_steps, config_steps) = (steps(live), steps(config));
    // An element that live has twice is not merged with config's.
    let mut known: BTreeMap<&Step, Option<&Value>> = BTreeMap::new();
    for (step, element) in live_steps.iter().zip(live) {
        if let Some(step) = step {
            known.entry(step).and_modify(|twice| *twice = None).or_insert(Some(element));
        }
    }
    let wanted: BTreeSet<&Step> = config_steps.iter().flatten().collect();
    let mut shared = config_steps.iter().flatten().filter(|step| known.contains_key(step)).peekable();
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if l < live.len() {
            match &live_steps[l] {
                Some(step) if wanted.contains(step) => {
                    let here = config_steps.get(c).is_some_and(|next| next.as_ref() == Some(step));
                    let later = c < config.len() && shared.peek().is_some_and(|next| *next != step);
                    if !here && later {
                        // Config puts it elsewhere.
                        l += 1;
                        continue;
                    }
                    if here || done.contains(step) {
                        l += 1;
                    }
                }
                _ => {
                    out.push(live[l].clone());
                    l += 1;
                    continue;
                }
            }
        }
        let Some(element) = config.get(c) else { continue };
        let step = config_steps[c].as_ref();
        let old = step.and_then(|step| known.get(step).copied().flatten());
        out.push(old.map_or_else(|| element.clone(), |old| merge(shape.element(), old, element)));
        if let Some(step) = step {
            done.insert(step);
            shared.next_if(|next| *next == step);
        }
        c += 1;
    }
    out
}

/// Takes the members of `set` out of `value`. A map or list that loses all it had becomes null.
pub fn remove(shape: Shape<'_>, value: Value, set: &FieldSet) -> Value {
    let form = shape.form(&value);
    let kept = |below: Shape<'_>, step: &Step, value: Value| match set.get(step) {
        Some(node) if node.member => None,
        Some(node) => Some(remove(below, value, &node.children)),
        None => Some(value),
    };
    match (form, value) {
        (Form::Map, Value::Object(fields)) => {
            let fields: Map<String, Value> = fields
                .into_iter()
                .filter_map(|(name, value)| {
                    let below = shape.field(&name).0;
                    let step = Step::Field(name);
                    let value = kept(below, &step, value)?;
                    let Step::Field(name) = step else { return None };
                    Some((name, value))
                })
                .collect();
            if fields.is_empty() { Value::Null } else { Value::Object(fields) }
        }
        (Form::List(keys), Value::Array(elements)) => {
            let elements: Vec<Value> = elements
                .into_iter()
                .filter_map(|element| match shape.step(keys, &element) {
                    Ok(step) => kept(shape.element(), &step, element),
                    Err(_) => Some(element),
                })
                .collect();
            if elements.is_empty() { Value::Null } else { Value::Array(elements) }
        }
        (_, value) => value,
    }
}

/// Drops the nulls that cannot be stored: those of metadata, and, of a built-in kind, all.
pub fn drop_nulls(shape: Shape<'_>, value: &mut Value, builtin: bool) {
    match value {
        Value::Object(fields) => {
            if builtin || shape.is_metadata() {
                fields.retain(|_, value| !value.is_null());
            }
            for (name, value) in fields {
                drop_nulls(shape.field(name).0, value, builtin);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                drop_nulls(shape.element(), element, builtin);
            }
        }
        _ => {}
    }
}

/// Takes out of `merged` what its applier owned before (`last`) and neither it nor anyone else owns now (`owned`).
pub fn prune(shape: Shape<'_>, merged: Value, last: &FieldSet, owned: &FieldSet) -> Value {
    let (last, owned) = (with_named(shape, last), with_named(shape, owned));
    let all = with_named(shape, &field_set(shape, &merged));
    let fields_without = |gone: &FieldSet| {
        let left = remove(shape, merged.clone(), gone);
        with_named(shape, &field_set(shape, &left))
    };
    // All that was owned goes, with what lies below it; then what is owned by anyone comes back, and at last what lay
    // below but was never this applier's.
    let mut gone = all.clone();
    gone.subtract(&fields_without(&last));
    gone.subtract(&owned);
    let mut lost = all;
    lost.subtract(&fields_without(&gone));
    remove(shape, merged, &lost.intersection(&last))
}

/// The set with every field that a schema names and that has members below it as a member too: such a field is there
/// only for what it holds.
fn with_named(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    let mut out = set.clone();
    name_fields(shape, &mut out);
    out
}

fn name_fields(shape: Shape<'_>, set: &mut FieldSet) {
    set.edit(|step, node| {
        let below = match step {
            Step::Field(name) => {
                let (below, named) = shape.field(name);
                node.member |= named;
                below
            }
            Step::Key(_) => shape.element(),
            Step::Value(_) | Step::Index(_) => Shape::Opaque,
        };
        name_fields(below, &mut node.children);
    });
}

/// Fits a set that was written under an older schema: of a value that is now owned whole, nobody owns parts.
pub fn fit_to_schema(shape: Shape<'_>, set: &mut FieldSet) {
    set.edit(|step, node| {
        if node.children.is_empty() {
            return;
        }
        let below = match step {
            Step::Field(name) => shape.field(name).0,
            Step::Key(_) | Step::Value(_) | Step::Index(_) => shape.element(),
        };
        if is_whole(below) {
            node.member = true;
            node.children = FieldSet::default();
        } else {
            fit_to_schema(below, &mut node.children);
        }
    });
}

fn is_whole(shape: Shape<'_>) -> bool {
    match shape {
        Shape::Known { schema, .. } => match schema.kind {
            Type::Array => schema.list == ListType::Atomic,
            // A map of which the schema says nothing was always owned as it is now.
            Type::Object | Type::Any => {
                schema.atomic_map && !(schema.properties.is_empty() && schema.additional.is_none())
            }
            _ => false,
        },
        Shape::Deduced | Shape::Opaque => false,
    }
}
