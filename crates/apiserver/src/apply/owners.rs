//! `metadata.managedFields`: who owns which fields, and since when.
//!
//! Owns the entries' wire form, their order, and the cap on how many are kept. It never decides who gets a field. At
//! most one entry exists per identity: manager, operation, subresource and, for updates, apiVersion.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::fields_v1;
use super::set::FieldSet;

/// More update entries than this are merged, oldest first.
const MAX_UPDATERS: usize = 10;

/// One entry of `managedFields`.
#[derive(Debug, Clone)]
pub struct Owner {
    pub manager: String,
    /// By server-side apply; otherwise by create, update or another patch.
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

impl Owner {
    /// What tells entries apart. One applier stays one whatever version it applies.
    fn identity(&self) -> (&str, bool, &str, &str) {
        let version = if self.applied { "" } else { &self.api_version };
        (&self.manager, !self.applied, version, &self.subresource)
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// The order in which conflicts are reported.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.identity().cmp(&other.identity())
    }

    /// The entry as a conflict names it.
    pub fn describe(&self) -> String {
        let mut text = format!("conflict with {:?}", self.manager);
        if !self.subresource.is_empty() {
            let _ = write!(text, " with subresource {:?}", self.subresource);
        }
        if !self.applied {
            let _ = write!(text, " using {}", self.api_version);
        }
        text
    }

    fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.map_or(0, jiff::Timestamp::as_second)
    }

    fn read(entry: &Value, place: usize) -> Result<Self, String> {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let applied = match entry["operation"].as_str() {
            Some("Apply") => true,
            Some("Update") => false,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {place}")),
            other => {
                return Err(format!("invalid fieldsType {other:?} in managed fields entry {place}"));
            }
        }
        Ok(Self {
            manager: text("manager"),
            applied,
            api_version,
            subresource: text("subresource"),
            time: entry["time"].as_str().map(str::to_owned),
            fields: fields_v1::parse(&entry["fieldsV1"])?,
        })
    }

    fn write(&self) -> Value {
        let mut entry = Map::new();
        let operation = if self.applied { "Apply" } else { "Update" };
        entry.insert("operation".to_owned(), json!(operation));
        entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
        entry.insert("fieldsV1".to_owned(), fields_v1::serialize(&self.fields));
        let texts = [
            ("manager", self.manager.as_str()),
            ("apiVersion", &self.api_version),
            ("time", self.time.as_deref().unwrap_or_default()),
            ("subresource", &self.subresource),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                entry.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(entry)
    }
}

/// Reads the value of `managedFields`; absent or null is no entries.
pub fn decode(entries: &Value) -> Result<Vec<Owner>, String> {
    let entries = match entries {
        Value::Null => return Ok(Vec::new()),
        Value::Array(entries) => entries,
        other => return Err(format!("managedFields must be a list, got {other}")),
    };
    let mut owners: Vec<Owner> = Vec::with_capacity(entries.len());
    for (place, entry) in entries.iter().enumerate() {
        let owner = Owner::read(entry, place)?;
        owners.retain(|known| !known.is_same(&owner));
        owners.push(owner);
    }
    Ok(owners)
}

/// Whether a client asks to forget all entries. A custom resource loses an empty list when it is decoded.
pub fn is_reset(entries: &Value, custom: bool) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => !custom,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Writes `managedFields`: appliers first, then by time and name.
pub fn encode(owners: &mut [Owner]) -> Value {
    owners.sort_by_cached_key(|owner| {
        let names = [&owner.manager, &owner.api_version, &owner.subresource].map(String::clone);
        (!owner.applied, owner.seconds(), names)
    });
    owners.iter().map(Owner::write).collect()
}

/// Whether two lists of entries differ in times at most.
pub fn same_but_times(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else {
        return a.is_null() && b.is_null();
    };
    let untimed =
        |entry: &Value| entry.as_object().map_or(0, |e| e.len() - usize::from(e.contains_key("time")));
    let same = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(fields), Some(_)) => {
            untimed(a) == untimed(b)
                && fields.iter().all(|(key, value)| key == "time" || b.get(key) == Some(value))
        }
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// Merges the oldest update entries of one apiVersion until few enough are left, so that an object that many clients
/// write does not grow for ever.
pub fn cap_updaters(owners: &mut Vec<Owner>) {
    let mut updaters: Vec<Owner> = owners.extract_if(.., |owner| !owner.applied).collect();
    let mut excess = updaters.len().saturating_sub(MAX_UPDATERS);
    updaters.sort_by(|a, b| a.seconds().cmp(&b.seconds()).then_with(|| a.order(b)));
    let mut kept: Vec<Owner> = Vec::with_capacity(updaters.len());
    for owner in updaters {
        let older = kept.iter_mut().find(|older| excess > 0 && older.api_version == owner.api_version);
        match older {
            Some(bucket) => {
                "ancient-changes".clone_into(&mut bucket.manager);
                bucket.subresource.clear();
                bucket.time = owner.time;
                bucket.fields.union(owner.fields);
                excess -= 1;
            }
            None => kept.push(owner),
        }
    }
    owners.append(&mut kept);
}
