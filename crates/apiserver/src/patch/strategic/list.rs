//! How a strategic merge patch merges and orders lists.
//!
//! Elements are told apart by the merge key, or by their value where there is none. Nothing here decides whether a
//! list merges at all: its caller does, from the schema.

use serde_json::Value;

use super::{
    Error, GO_LIST, GO_MAP, ORDER, PATCH, discard_nulls, go_list, go_type, list_name, merge_map, strategy,
};
use crate::object::JsonMap;
use crate::schema::Schema;

/// Merges two lists, or with `deleting` takes the patch's scalars out of the original.
pub(super) fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    element: Option<&Schema>,
    merge_key: Option<&str>,
    deleting: bool,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !same_type(&original, &patch)?.is_object() {
        if deleting {
            return Ok(original.into_iter().filter(|value| !patch.contains(value)).collect());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        for value in original.iter().chain(&patch) {
            if !merged.contains(value) {
                merged.push(value.clone());
            }
        }
        return Ok(ordered(merged, &patch, &original, None));
    }
    let Some(key) = merge_key else {
        return Err(Error::Other("cannot merge lists without merge key for struct".to_owned()));
    };
    let (original, patch) = apply_directives(original, patch, key)?;
    let mut merged = original.clone();
    for value in &patch {
        let Value::Object(new) = value else { continue };
        let identity = new.get(key).ok_or_else(|| Error::no_merge_key(new, key))?;
        let found = merged.iter_mut().find(|old| old.get(key) == Some(identity));
        if let Some(Value::Object(old)) = found {
            merge_map(old, new.clone(), element)?;
        } else {
            let mut value = value.clone();
            discard_nulls(&mut value);
            merged.push(value);
        }
    }
    all_have_key(&merged, key)?;
    Ok(ordered(merged, &patch, &original, Some(key)))
}

/// Elements with `$patch` act on the list and are no elements of it: what is left are the list and its patch.
fn apply_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for value in patch {
        let Some(directive) = value.get(PATCH) else {
            plain.push(value);
            continue;
        };
        let map = value.as_object().cloned().unwrap_or_default();
        match directive.as_str() {
            Some("delete") => {
                let identity = map.get(key).ok_or_else(|| Error::no_merge_key(&map, key))?;
                original.retain(|old| old.get(key) != Some(identity));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Error::Other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(Error::directive(directive, &map)),
        }
    }
    if replace {
        plain.iter_mut().for_each(discard_nulls);
        return Ok((plain, Vec::new()));
    }
    Ok((original, plain))
}

/// `$setElementOrder/<list>`: merges the list that it names, then puts the elements in the order that it gives.
pub(super) fn set_element_orders(
    original: &mut JsonMap,
    patch: &mut JsonMap,
    schema: Option<&Schema>,
) -> Result<(), Error> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(Error::wrong_type(GO_LIST, &other.unwrap_or_default())),
        };
        let name = list_name(&directive, ORDER)
            .ok_or(Error::BadRequest("invalid patch format of setElementOrder list"))?;
        let field = schema.and_then(|schema| schema.field(name));
        let strategy = strategy(field);
        let key = strategy.merge_key.as_deref();
        let live = list_of(original.get(name))?;
        let changes = list_of(patch.remove(name).as_ref())?;
        check_order(changes.as_deref().unwrap_or_default(), &order, key)?;

        let server_order = live.clone().unwrap_or_default();
        let merged = match (live, changes) {
            (None, None) => continue,
            (Some(live), None) => {
                same_type(&live, &[])?;
                live
            }
            (None, Some(changes)) => {
                same_type(&changes, &[])?;
                changes.into_iter().filter_map(super::without_directives).collect()
            }
            (Some(live), Some(changes)) => {
                same_type(&live, &changes)?;
                if strategy.merge {
                    merge_list(live, changes, field.and_then(Schema::element), key, false)?
                } else {
                    changes
                }
            }
        };
        if let Some(key) = key {
            all_have_key(&merged, key)?;
            all_have_key(&order, key)?;
        }
        original.insert(name.to_owned(), Value::Array(ordered(merged, &order, &server_order, key)));
    }
    Ok(())
}

fn list_of(value: Option<&Value>) -> Result<Option<Vec<Value>>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list.clone())),
        Some(other) => Err(Error::wrong_type(GO_LIST, other)),
    }
}

/// The patch's elements must appear in the given order, all of them.
fn check_order(changes: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some()
        && let Some(other) = changes.iter().find(|value| !value.is_object())
    {
        return Err(Error::wrong_type(GO_MAP, other));
    }
    let mut left = order.iter();
    for value in changes.iter().filter(|value| value.get(PATCH).is_none()) {
        let wanted = identity(value, key);
        if !left.any(|other| identity(other, key) == wanted) {
            let (changes, order) = (go_list(changes), go_list(order));
            let message =
                format!("The order in patch list:\n{changes}\n doesn't match {ORDER} list:\n{order}\n");
            return Err(Error::Other(message));
        }
    }
    Ok(())
}

/// What tells an element from the others of its list.
fn identity<'a>(element: &'a Value, key: Option<&str>) -> Option<&'a Value> {
    match key {
        Some(key) => element.get(key),
        None => Some(element),
    }
}

/// Elements that `patch_order` names come in that order, the rest in the server's; where the two meet, an element
/// of the server's that stood before one of the patch's stays before it.
fn ordered(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Vec<Value> {
    let rank = |order: &[Value], value: &Value| {
        let wanted = identity(value, key);
        order.iter().position(|other| identity(other, key) == wanted)
    };
    let (mut patched, mut server): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|value| rank(patch_order, value).is_some());
    patched.sort_by_cached_key(|value| rank(patch_order, value));
    server.sort_by_cached_key(|value| rank(server_order, value).unwrap_or(usize::MAX));

    let mut out = Vec::with_capacity(patched.len() + server.len());
    let mut server = server.into_iter().peekable();
    for value in patched {
        let place = rank(server_order, &value);
        let stands_before = |other: &Value| match (rank(server_order, other), place) {
            (Some(other), Some(place)) => other < place,
            _ => false,
        };
        while let Some(other) = server.next_if(stands_before) {
            out.push(other);
        }
        out.push(value);
    }
    out.extend(server);
    out
}

/// An element of the lists, which must all be of its type and no lists themselves.
fn same_type<'a>(original: &'a [Value], patch: &'a [Value]) -> Result<&'a Value, Error> {
    let mut values = original.iter().chain(patch);
    let Some(first) = values.next() else {
        return Err(Error::Other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(Error::ListOfLists);
    }
    if values.any(|value| go_type(value) != go_type(first)) {
        let lists = format!("[{} {}]", go_list(original), go_list(patch));
        return Err(Error::Other(format!("list element types are not identical: {lists}")));
    }
    Ok(first)
}

fn all_have_key(list: &[Value], key: &str) -> Result<(), Error> {
    list.iter().try_for_each(|value| match value {
        Value::Object(map) if map.contains_key(key) => Ok(()),
        Value::Object(map) => Err(Error::no_merge_key(map, key)),
        other => Err(Error::wrong_type(GO_MAP, other)),
    })
}
