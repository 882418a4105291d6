//! Sets of fields: the algebra under ownership.
//!
//! Owns [`FieldSet`], a tree of steps from an object's root, and the order in which the real server writes it. It knows
//! neither schemas nor objects. Invariant: every node is a member of the set or has a member below it, so equal sets
//! are equal trees and an empty set is an empty map.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// One step from a value to a part of it.
#[derive(Debug, Clone)]
pub enum Step {
    /// A field of a struct or a key of a map.
    Field(String),
    /// The element of a list that has these values under these keys, sorted by key.
    Key(Vec<(String, Value)>),
    /// The element of a set.
    Value(Value),
    /// The element at this place of a list.
    Index(i64),
}

impl Step {
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_entries(a.iter().map(pair), b.iter().map(pair)),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A total order over values of all types. Numbers compare by value, whether written `1` or `1.0`.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().unwrap_or(f64::MAX).total_cmp(&b.as_f64().unwrap_or(f64::MAX)),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare_values(a, b)).find(|o| o.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_entries(a.iter(), b.iter()),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Equality as ownership sees it: `1` and `1.0` are one value.
pub fn same(a: &Value, b: &Value) -> bool {
    a == b || compare_values(a, b).is_eq()
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn pair((name, value): &(String, Value)) -> (&String, &Value) {
    (name, value)
}

fn compare_entries<'a>(
    mut a: impl Iterator<Item = (&'a String, &'a Value)>,
    mut b: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (Some((name_a, a)), Some((name_b, b))) => {
                let order = name_a.cmp(name_b).then_with(|| compare_values(a, b));
                if order.is_ne() {
                    return order;
                }
            }
            (a, b) => return a.is_some().cmp(&b.is_some()),
        }
    }
}

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<Step, Node>);

/// What a set says of one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    pub member: bool,
    pub children: FieldSet,
}

impl Node {
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Step, &Node)> {
        self.0.iter()
    }

    pub fn get(&self, step: &Step) -> Option<&Node> {
        self.0.get(step)
    }

    /// Adds what `node` says of `step`; nothing, if it says nothing.
    pub fn add(&mut self, step: Step, node: Node) {
        if node.is_empty() {
            return;
        }
        let known = self.0.entry(step).or_default();
        known.member |= node.member;
        known.children.union(node.children);
    }

    /// The set of one dotted path, such as `metadata.labels`.
    pub fn of_path(path: &str) -> Self {
        let mut set = Self::default();
        let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
        let children = rest.map(Self::of_path).unwrap_or_default();
        let member = rest.is_none();
        set.add(Step::field(first), Node { member, children });
        set
    }

    pub fn union(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (step, node) in other.0 {
            self.add(step, node);
        }
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (step, node) in &self.0 {
            if let Some(theirs) = other.0.get(step) {
                let member = node.member && theirs.member;
                let children = node.children.intersection(&theirs.children);
                out.add(step.clone(), Node { member, children });
            }
        }
        out
    }

    /// Removes the members of `other`, but not what lies below them.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.0.retain(|step, node| {
            if let Some(theirs) = other.0.get(step) {
                node.member &= !theirs.member;
                node.children.subtract(&theirs.children);
            }
            !node.is_empty()
        });
    }

    /// Removes the members of `other` with all that lies below them.
    pub fn subtract_trees(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.0.retain(|step, node| match other.0.get(step) {
            Some(theirs) if theirs.member => false,
            Some(theirs) => {
                node.children.subtract_trees(&theirs.children);
                !node.is_empty()
            }
            None => true,
        });
    }

    /// Whether every member of this set is one of `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|(step, node)| {
            other.0.get(step).is_some_and(|theirs| {
                (theirs.member || !node.member) && node.children.is_subset(&theirs.children)
            })
        })
    }

    /// The members as text, such as `.spec.l[name="a"].v`; members of one level come before what lies below them.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, prefix: &str, out: &mut Vec<String>) {
        let members = self.0.iter().filter(|(_, node)| node.member);
        out.extend(members.map(|(step, _)| format!("{prefix}{step}")));
        for (step, node) in &self.0 {
            if !node.children.is_empty() {
                node.children.collect_paths(&format!("{prefix}{step}"), out);
            }
        }
    }

    /// Changes every node in place; the set's invariant is restored afterwards.
    pub fn edit(&mut self, mut change: impl FnMut(&Step, &mut Node)) {
        self.0.retain(|step, node| {
            change(step, node);
            !node.is_empty()
        });
    }
}
