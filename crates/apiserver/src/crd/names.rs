//! Which of the names that a definition asks for it gets, and the conditions that say so.
//!
//! A name belongs to the definition that had it first. A definition is served once all its names are accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::text;
use crate::object::{self, strings};

/// The condition of the given type.
pub fn condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| text(condition, "type") == kind)
}

/// Whether the condition of the given type holds.
pub fn is_true(definition: &Value, kind: &str) -> bool {
    condition(definition, kind).is_some_and(|condition| text(condition, "status") == "True")
}

/// Accepts the names that no other definition of the group has, and says so in the status: `NamesAccepted`, and
/// `Established` if that is not true already. Returns whether every name was accepted.
pub fn accept<'a>(definition: &mut Value, others: impl IntoIterator<Item = &'a Value>, now: &str) -> bool {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let group = text(&definition["spec"], "group").to_owned();
    let name = object::name(definition).to_owned();
    for other in others {
        if text(&other["spec"], "group") != group || object::name(other) == name {
            continue;
        }
        let taken = &other["status"]["acceptedNames"];
        resources.extend([text(taken, "plural"), text(taken, "singular")]);
        resources.extend(strings(&taken["shortNames"]));
        kinds.extend([text(taken, "kind"), text(taken, "listKind")]);
    }
    let wanted = definition["spec"]["names"].clone();
    let mut accepted = definition["status"]["acceptedNames"].clone();
    object::as_map_mut(&mut accepted);
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut conflict = None;
    for (key, reason, taken) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ] {
        let had: Vec<String> = names_in(&accepted[key]).into_iter().map(str::to_owned).collect();
        let fresh = names_in(&wanted[key]).into_iter().filter(|name| !had.iter().any(|own| own == name));
        let clashes: Vec<String> = fresh.filter(|name| taken.contains(name)).map(in_use).collect();
        match clashes.as_slice() {
            [] => accepted[key] = wanted[key].clone(),
            [one] => conflict = Some((reason, one.clone())),
            many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
        }
    }
    accepted["categories"] = wanted["categories"].clone();
    let accepted = object::as_map_mut(&mut accepted);
    accepted.retain(|_, value| !value.is_null());
    // The type has no way to leave these two out.
    for key in ["kind", "plural"] {
        accepted.entry(key).or_insert_with(|| json!(""));
    }
    definition["status"]["acceptedNames"] = json!(accepted);

    let established = is_true(definition, "Established");
    let is_accepted = conflict.is_none();
    match conflict {
        None => set(definition, "NamesAccepted", true, "NoConflicts", "no conflicts found", now),
        Some((reason, message)) => set(definition, "NamesAccepted", false, reason, &message, now),
    }
    if !established {
        let (reason, message) = if is_accepted {
            ("Installing", "the initial names have been accepted")
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        set(definition, "Established", false, reason, message, now);
    }
    is_accepted
}

/// Declares the definition served.
pub fn establish(definition: &mut Value, now: &str) {
    let message = "the initial names have been accepted";
    set(definition, "Established", true, "InitialNamesAccepted", message, now);
}

/// Declares that the definition's objects are going.
pub fn terminate(definition: &mut Value, now: &str) {
    let message = "CustomResource deletion is in progress";
    set(definition, "Terminating", true, "InstanceDeletionInProgress", message, now);
}

fn names_in(value: &Value) -> Vec<&str> {
    match value {
        Value::String(name) => vec![name],
        list => strings(list),
    }
}

fn set(definition: &mut Value, kind: &str, status: bool, reason: &str, message: &str, now: &str) {
    let status = if status { "True" } else { "False" };
    let before = condition(definition, kind).filter(|before| text(before, "status") == status);
    let since = before.map_or(now, |before| text(before, "lastTransitionTime")).to_owned();
    let new = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|condition| text(condition, "type") == kind) {
            Some(known) => *known = new,
            None => list.push(new),
        }
    }
}
