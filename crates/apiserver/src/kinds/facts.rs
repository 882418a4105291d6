//! What the Kubernetes types do not say of themselves: how lists are owned and merged, what values are allowed,
//! and what absent fields become.
//!
//! `facts.txt` is written by `tools/kubernetes/facts` from a real server's `OpenAPI`; `defaults.txt`, by hand, holds
//! the defaults that only the server's code knows, and wins. A line is a definition, a field (`.` is the definition
//! itself) and what is known of it. A line that cannot be read says nothing; a test reads them all.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::schema::{ListType, PatchStrategy, Schema};

/// The name under which a definition's own facts stand.
pub const WHOLE: &str = ".";

/// What `facts.txt` and `defaults.txt` say, by definition and field.
pub struct Facts(HashMap<(&'static str, &'static str), Fact>);

/// What is known of a field beyond its structure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fact {
    /// `map:KEY,…`, `set` or `atomic`
    list: Option<&'static str>,
    atomic_map: bool,
    /// `merge`, `retainKeys`, `merge,retainKeys` or `replace`, with `:KEY` after it where the list has a merge key
    patch: Option<&'static str>,
    /// The values of an enumeration, with `|` between them.
    options: Option<&'static str>,
    /// Required by the types, but the server puts in a zero value.
    pub optional: bool,
    /// A list with keys that its entries may share all the same.
    repeats: bool,
    /// JSON
    pub default: Option<&'static str>,
}

impl Facts {
    pub fn parse() -> Self {
        let mut facts: HashMap<_, Fact> = HashMap::new();
        let text = [include_str!("facts.txt"), include_str!("defaults.txt")];
        for line in text.into_iter().flat_map(str::lines) {
            let mut words = line.splitn(3, ' ');
            if let (Some(name), Some(field), Some(said)) = (words.next(), words.next(), words.next())
                && !name.starts_with('#')
            {
                facts.entry((name, field)).or_default().read(said);
            }
        }
        Self(facts)
    }

    pub fn of(&self, name: &str, field: &str) -> Fact {
        // The table's keys outlive any name that is asked for, so the lookup is at a shorter lifetime.
        let facts: &HashMap<(&str, &str), Fact> = &self.0;
        facts.get(&(name, field)).copied().unwrap_or_default()
    }
}

impl Fact {
    fn read(&mut self, said: &'static str) {
        // A default is JSON and may hold spaces: it comes last.
        let (tokens, default) = match said.split_once("default=") {
            Some((tokens, default)) => (tokens, Some(default)),
            None => (said, None),
        };
        self.default = default.or(self.default);
        for token in tokens.split_whitespace() {
            match token.split_once('=') {
                Some(("list", value)) => self.list = Some(value),
                Some(("map", _)) => self.atomic_map = true,
                Some(("patch", value)) => self.patch = Some(value),
                Some(("enum", value)) => self.options = Some(value),
                _ if token == "repeats" => self.repeats = true,
                _ => self.optional = true,
            }
        }
    }

    fn map_keys(&self) -> Option<Vec<String>> {
        let keys = self.list?.strip_prefix("map:")?;
        Some(keys.split(',').map(str::to_owned).collect())
    }

    fn patch_parts(&self) -> Option<(&'static str, Option<&'static str>)> {
        let patch = self.patch?;
        Some(match patch.split_once(':') {
            Some((strategy, key)) => (strategy, Some(key)),
            None => (patch, None),
        })
    }

    fn enumeration(&self) -> Vec<Value> {
        self.options.iter().flat_map(|all| all.split('|')).map(Value::from).collect()
    }

    /// Whether the field's schema says more than its type alone.
    pub fn shapes(self) -> bool {
        let of_the_parent = Self { optional: true, ..Self::default() };
        self != of_the_parent && self != Self::default()
    }

    pub fn apply(&self, schema: &mut Schema) {
        if let Some(keys) = self.map_keys() {
            schema.list = ListType::Map(keys);
        } else if self.list == Some("set") {
            schema.list = ListType::Set;
        }
        schema.repeats |= self.repeats;
        schema.atomic_map |= self.atomic_map;
        if let Some((strategy, key)) = self.patch_parts() {
            schema.patch = PatchStrategy {
                merge_key: key.map(str::to_owned),
                merge: strategy.contains("merge"),
                retain_keys: strategy.contains("retainKeys"),
                replace: strategy == "replace",
            };
        }
        schema.constraints.options.extend(self.enumeration());
        if let Some(default) = self.default {
            schema.default = serde_json::from_str(default).ok();
            schema.nullable |= schema.default == Some(Value::Null);
        }
    }

    /// Writes the facts into an `OpenAPI` schema.
    pub fn extend(&self, schema: &mut Value) {
        if let Some(keys) = self.map_keys() {
            schema["x-kubernetes-list-type"] = json!("map");
            schema["x-kubernetes-list-map-keys"] = json!(keys);
        } else if let Some(list) = self.list {
            schema["x-kubernetes-list-type"] = json!(list);
        }
        if self.atomic_map {
            schema["x-kubernetes-map-type"] = json!("atomic");
        }
        if let Some((strategy, key)) = self.patch_parts() {
            schema["x-kubernetes-patch-strategy"] = json!(strategy);
            if let Some(key) = key {
                schema["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
        if self.options.is_some() {
            schema["enum"] = Value::Array(self.enumeration());
        }
    }
}
