//! The table of what is served: one [`Kind`] per group, version and resource.
//!
//! Built-in kinds are rows of `kinds/builtin.rs`; a CustomResourceDefinition adds one row per served version.
//! Handlers are generic over this table: a row says all that the server needs to know of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::schema::Node;
use crate::status::{ApiError, FieldError};

pub mod builtin;
pub mod columns;
pub mod definitions;
mod facts;
pub mod strategy;
pub mod typed;

/// One served version of one resource.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact of the kind, named by the API")]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Where objects are kept: versions of one resource, and the two event APIs, share a place.
    pub storage: Arc<str>,
    /// The apiVersion that is written to the store.
    pub storage_api_version: String,
    pub schema: Node,
    pub columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<String>,
    /// `/status` is an endpoint of its own, and the main endpoint ignores `status`.
    pub status: bool,
    pub scale: Option<Scale>,
    /// Other subresources by name: `binding`, `eviction`, `log`, `finalize`, `token`.
    pub subresources: Vec<&'static str>,
    pub traits: Traits,
    /// The definition that made this row; `None` for built-ins.
    pub custom: Option<Custom>,
}

/// Habits in which built-in kinds differ.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fact of the kind, named by the API")]
pub struct Traits {
    /// PUT of an absent object creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object, not with a `Status`.
    pub returns_deleted: bool,
    /// `metadata.generation` counts changes of the spec.
    pub generation: bool,
    /// The status of a new object is kept as sent (kinds without a spec/status split still drop nothing).
    pub keeps_status_on_create: bool,
}

/// What a custom resource's row remembers of its definition.
#[derive(Debug, Clone)]
pub struct Custom {
    pub definition: String,
    pub definition_uid: String,
    /// Objects may have been stored under an older schema: default them when they are read.
    pub default_on_read: bool,
    /// `spec.versions[].schema.openAPIV3Schema` as written, for OpenAPI.
    pub raw_schema: Arc<serde_json::Value>,
    pub deprecation_warning: Option<String>,
    /// The definition is being deleted: its objects go, and no new ones come.
    pub terminating: bool,
    /// The schema of the stored version, when that is another.
    pub storage_schema: Option<Node>,
}

/// A printed column of a `Table`.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    /// A JSONPath such as `.status.phase`.
    pub path: String,
}

/// Where a resource keeps what `/scale` shows.
#[derive(Debug, Clone)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub selector: Option<String>,
}

impl Kind {
    /// `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn verbs(&self) -> &'static [&'static str] {
        match self.plural.as_str() {
            // Reviews are questions: they are answered, not kept.
            "selfsubjectaccessreviews"
            | "subjectaccessreviews"
            | "localsubjectaccessreviews"
            | "selfsubjectrulesreviews"
            | "selfsubjectreviews"
            | "tokenreviews" => &["create"],
            // Reports, made when they are asked for.
            "namespaces" if self.custom.is_none() => {
                &["create", "delete", "get", "list", "patch", "update", "watch"]
            }
            _ => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
    }

    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.group, &self.plural, name)
    }

    pub fn already_exists(&self, name: &str) -> ApiError {
        ApiError::already_exists(&self.group, &self.plural, name)
    }

    pub fn stale(&self, name: &str) -> ApiError {
        ApiError::stale(&self.group, &self.plural, name)
    }

    pub fn conflict(&self, name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::conflict(&self.group, &self.plural, name, why)
    }

    pub fn forbidden(&self, name: &str, why: impl std::fmt::Display) -> ApiError {
        ApiError::forbidden(&self.group, &self.plural, name, why)
    }

    pub fn invalid(&self, name: &str, errors: Vec<FieldError>) -> ApiError {
        // What is stored is what is judged: an event is the core group's by either name.
        let group = self.storage_api_version.split_once('/').map_or("", |(group, _)| group);
        ApiError::invalid(group, &self.kind, name, errors)
    }
}

/// All rows, replaced as a whole when a definition changes; readers keep the table that they started with.
#[derive(Debug, Clone, Default)]
pub struct KindTable {
    /// group -> version -> plural
    rows: BTreeMap<String, BTreeMap<String, BTreeMap<String, Arc<Kind>>>>,
}

impl KindTable {
    pub fn builtin() -> Self {
        let mut table = Self::default();
        for kind in builtin::kinds() {
            table.insert(kind);
        }
        table
    }

    pub fn insert(&mut self, kind: Kind) {
        let versions = self.rows.entry(kind.group.clone()).or_default();
        versions.entry(kind.version.clone()).or_default().insert(kind.plural.clone(), Arc::new(kind));
    }

    /// Removes every row that the named definition made.
    pub fn remove_definition(&mut self, definition: &str) {
        for versions in self.rows.values_mut() {
            for resources in versions.values_mut() {
                resources.retain(|_, kind| kind.custom.as_ref().is_none_or(|c| c.definition != definition));
            }
            versions.retain(|_, resources| !resources.is_empty());
        }
        self.rows.retain(|_, versions| !versions.is_empty());
    }

    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.rows.get(group)?.get(version)?.get(plural)
    }

    /// Group names with their versions, preferred version first.
    pub fn groups(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.rows.iter().map(|(group, versions)| {
            let mut names: Vec<&str> = versions.keys().map(String::as_str).collect();
            names.sort_by_key(|name| std::cmp::Reverse(version_rank(name)));
            (group.as_str(), names)
        })
    }

    /// The resources of one group and version, by plural.
    pub fn resources(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Kind>> {
        self.rows.get(group).and_then(|versions| versions.get(version)).into_iter().flat_map(BTreeMap::values)
    }

    /// Why a path below a group and version leads nowhere: only built-in ones are known to the whole server.
    pub fn not_served(&self, group: &str, version: &str) -> ApiError {
        if self.resources(group, version).any(|kind| kind.custom.is_none()) {
            ApiError::not_served()
        } else {
            ApiError::no_such_resource()
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.rows.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values)
    }
}

/// The table that handlers read and definitions replace.
#[derive(Debug)]
pub struct Kinds(ArcSwap<KindTable>);

impl Kinds {
    pub fn new(table: KindTable) -> Self {
        Self(ArcSwap::from_pointee(table))
    }

    pub fn load(&self) -> Arc<KindTable> {
        self.0.load_full()
    }

    pub fn replace(&self, table: KindTable) {
        self.0.store(Arc::new(table));
    }
}

/// Orders versions as Kubernetes does: v2 > v1 > v1beta2 > v1alpha1 > anything else.
pub fn version_rank(version: &str) -> (u8, u32, u32) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let stage = &rest[digits..];
        Some(match stage {
            "" => (3, major, 0),
            _ if stage.starts_with("beta") => (2, major, stage[4..].parse().unwrap_or(0)),
            _ if stage.starts_with("alpha") => (1, major, stage[5..].parse().unwrap_or(0)),
            _ => return None,
        })
    };
    parsed().unwrap_or((0, 0, 0))
}

#[cfg(test)]
#[path = "kinds/tests.rs"]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
mod tests;
