//! Reading values by their shape: the fields that a value has, and those in which two values differ.
//!
//! Owns [`field_set`] and [`compare`]; never changes a value. Results are built from the leaves up, so that equal parts
//! of two objects cost a walk and no allocation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{FieldSet, Node, Step, same};
use super::shape::{Form, Shape};

/// The fields that `value` sets: every leaf, every list element and every key of a map that no schema names.
pub fn field_set(shape: Shape<'_>, value: &Value) -> FieldSet {
    fields_of(shape, value).children
}

fn fields_of(shape: Shape<'_>, value: &Value) -> Node {
    let mut node = Node::default();
    match (shape.form(value), value) {
        (Form::Leaf, _) => node.member = true,
        (Form::Map, Value::Object(fields)) => {
            for (name, value) in fields {
                let (shape, named) = shape.field(name);
                let mut below = fields_of(shape, value);
                below.member |= !named || value.is_null() || value.as_object().is_some_and(Map::is_empty);
                node.children.add(Step::field(name), below);
            }
        }
        (Form::List(keys), Value::Array(elements)) => {
            for (step, values) in index(shape, keys, elements) {
                let mut below = match values.as_slice() {
                    [value] => fields_of(shape.element(), value),
                    // Elements that cannot be told apart are owned together.
                    _ => Node::default(),
                };
                below.member = true;
                node.children.add(step, below);
            }
        }
        _ => {}
    }
    node
}

/// A list's elements by their steps; more than one for a step are duplicates. An element without a step is passed over:
/// validation refuses it, and until then nobody can own it.
fn index<'v>(shape: Shape<'_>, keys: &[String], elements: &'v [Value]) -> BTreeMap<Step, Vec<&'v Value>> {
    let mut found: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
    for element in elements {
        if let Ok(step) = shape.step(keys, element) {
            found.entry(step).or_default().push(element);
        }
    }
    found
}

/// How a new value differs from an old one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Changes {
    pub fn touch_nothing_but(&self, fields: &FieldSet) -> bool {
        [&self.added, &self.modified, &self.removed].iter().all(|set| set.is_subset(fields))
    }

    /// Forgets the changes at and below the members of `ignored`.
    pub fn ignore(&mut self, ignored: &FieldSet) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_trees(ignored);
        }
    }
}

/// The fields in which `new` differs from `old`.
pub fn compare(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Changes {
    let [added, modified, removed] = differences(shape, old, new).0.map(|node| node.children);
    Changes { added, modified, removed }
}

/// [`Changes`] that may include the compared value itself.
#[derive(Default)]
struct Diff([Node; 3]);

const ADDED: usize = 0;
const MODIFIED: usize = 1;
const REMOVED: usize = 2;

impl Diff {
    /// Adds the changes of the part at `step`.
    fn at(&mut self, step: &Step, below: Diff) {
        for (node, below) in self.0.iter_mut().zip(below.0) {
            if !below.is_empty() {
                node.children.add(step.clone(), below);
            }
        }
    }

    /// Adds other changes of the same value.
    fn union(&mut self, other: Diff) {
        for (node, other) in self.0.iter_mut().zip(other.0) {
            node.member |= other.member;
            node.children.union(other.children);
        }
    }

    fn mark(&mut self, change: usize) {
        self.0[change].member = true;
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Node::is_empty)
    }
}

fn differences(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Diff {
    let (old_form, new_form) = (old.map(|v| shape.form(v)), new.map(|v| shape.form(v)));
    let Some(form) = new_form.or(old_form) else {
        return Diff::default();
    };
    let mut diff = differences_as(form, shape, old, new);
    // A value that changed its type loses the fields of the one and gains those of the other.
    if let Some(other) = old_form.filter(|other| *other != form) {
        diff.union(differences_as(other, shape, old, new));
    }
    diff
}

fn differences_as(form: Form<'_>, shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Diff {
    let mut diff = Diff::default();
    let leaf = match form {
        Form::Leaf => true,
        Form::Map => {
            let (old, new) = (entries(old), entries(new));
            compare_maps(shape, old, new, &mut diff);
            // Empty and null are told apart as leaves are.
            old.is_none() && new.is_none()
        }
        Form::List(keys) => {
            let (old, new) = (elements(old), elements(new));
            if old != new {
                compare_lists(shape, keys, old, new, &mut diff);
            }
            old.is_empty() && new.is_empty()
        }
    };
    match (old, new) {
        (None, _) => diff.mark(ADDED),
        (_, None) => diff.mark(REMOVED),
        (Some(old), Some(new)) if leaf && !same(old, new) => diff.mark(MODIFIED),
        _ => {}
    }
    diff
}

/// The fields of a map that has any.
fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|map| !map.is_empty())
}

fn elements(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn compare_maps(
    shape: Shape<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    diff: &mut Diff,
) {
    let mut field = |name: &String, old: Option<&Value>, new: Option<&Value>| {
        let below = differences(shape.field(name).0, old, new);
        if !below.is_empty() {
            diff.at(&Step::field(name), below);
        }
    };
    for (name, value) in old.into_iter().flatten() {
        field(name, Some(value), new.and_then(|new| new.get(name)));
    }
    for (name, value) in new.into_iter().flatten() {
        if old.is_none_or(|old| !old.contains_key(name)) {
            field(name, None, Some(value));
        }
    }
}

fn compare_lists(shape: Shape<'_>, keys: &[String], old: &[Value], new: &[Value], diff: &mut Diff) {
    let mut news = index(shape, keys, new);
    let mut pairs: Vec<(Step, Vec<&Value>, Vec<&Value>)> = Vec::new();
    for (step, olds) in index(shape, keys, old) {
        let news = news.remove(&step).unwrap_or_default();
        pairs.push((step, olds, news));
    }
    pairs.extend(news.into_iter().map(|(step, news)| (step, Vec::new(), news)));
    for (step, olds, news) in pairs {
        let item = |old, new| differences(shape.element(), old, new);
        let mut below = Diff::default();
        // Duplicates are owned together, as one leaf that comes, changes and goes.
        match (olds.as_slice(), news.as_slice()) {
            ([] | [_], [] | [_]) => below = item(olds.first().copied(), news.first().copied()),
            ([_, _, ..], [_, _, ..]) => {
                if olds.len() != news.len() || olds.iter().zip(&news).any(|(old, new)| !same(old, new)) {
                    below.mark(MODIFIED);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = news.first() {
                    below = item(None, Some(new));
                }
                below.mark(REMOVED);
            }
            (_, _) => {
                if let Some(old) = olds.first() {
                    below = item(Some(old), None);
                }
                below.mark(ADDED);
            }
        }
        diff.at(&step, below);
    }
}
