//! The one description of an object's shape, for built-in kinds and custom resources alike.
//!
//! Everything that must know a field's type reads it from here: pruning, defaulting, validation, strategic
//! patches, server-side apply. A custom resource's schema comes from its definition; a built-in's from the
//! Kubernetes types and `kinds/facts.txt`. A [`Schema`] is immutable once made.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

mod binding;
pub mod cel;
pub mod correlate;
pub mod defaults;
pub(crate) mod dialect;
pub mod formats;
mod lists;
pub mod metadata;
pub mod naming;
mod numbers;
pub mod path;
pub mod pattern;
pub mod prune;
pub mod structural;
#[cfg(test)]
pub(crate) mod tests;
mod typing;
pub mod validate;
mod wellformed;

/// What is known of one value.
#[derive(Debug, Clone, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact of the value, named by the schema language"
)]
pub struct Schema {
    pub kind: Type,
    pub properties: BTreeMap<String, Node>,
    /// The schema of every value of a map whose keys are not known beforehand.
    pub additional: Option<Box<Node>>,
    pub items: Option<Box<Node>>,
    pub nullable: bool,
    /// Keep fields that `properties` does not list.
    pub preserve_unknown: bool,
    /// The value is a whole object with apiVersion, kind and metadata of its own.
    pub embedded_resource: bool,
    pub default: Option<Value>,
    pub list: ListType,
    /// `x-kubernetes-map-type: atomic`: one manager owns the map as a whole.
    pub atomic_map: bool,
    /// Entries of the list may share a key.
    pub repeats: bool,
    pub patch: PatchStrategy,
    pub constraints: Constraints,
    pub rules: Vec<Rule>,
    /// Known to have no default here or below: there is nothing to look for.
    pub without_defaults: bool,
    /// Known to have no rule here or below.
    pub without_rules: bool,
}

/// A schema in place, or a named definition of a built-in type (those may be recursive).
#[derive(Debug, Clone)]
pub enum Node {
    Inline(Arc<Schema>),
    Named(&'static str),
}

impl Node {
    /// The schema itself. A name that is not defined accepts anything.
    pub fn get(&self) -> &Schema {
        match self {
            Self::Inline(schema) => schema,
            Self::Named(name) => crate::kinds::definitions::get(name),
        }
    }
}

impl From<Schema> for Node {
    fn from(schema: Schema) -> Self {
        Self::Inline(Arc::new(schema))
    }
}

impl Type {
    /// The name in the schema language, as messages show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::IntOrString => "integer,string",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Type {
    /// No type given: any value.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How a list is owned and merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects told apart by these keys.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a built-in's list or map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge_key: Option<String>,
    pub merge: bool,
    pub retain_keys: bool,
    /// A map of the patch takes the place of the object's.
    pub replace: bool,
}

/// Rules on a value beyond its type.
#[derive(Debug, Clone, Default)]
pub struct Constraints {
    pub required: Vec<String>,
    pub options: Vec<Value>,
    pub pattern: Option<pattern::Pattern>,
    pub format: Option<String>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    /// `additionalProperties: false`: a field that is not listed is an error, not pruned.
    pub closed: bool,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub field_path: Option<String>,
    pub reason: Option<String>,
    pub optional_old_self: bool,
    /// `rule` compiled once, when the definition was read.
    pub compiled: Option<Arc<cel::Compiled>>,
}

impl Schema {
    /// The schema of a map's or struct's field, if the field is known.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(self.additional.as_deref()).map(Node::get)
    }

    /// The schema of a list's elements.
    pub fn element(&self) -> Option<&Schema> {
        self.items.as_deref().map(Node::get)
    }

    /// A schema that accepts anything and keeps all of it.
    pub fn anything() -> Self {
        Self { preserve_unknown: true, ..Self::default() }
    }
}
