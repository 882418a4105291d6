//! Targets for made-up input, and what they share: JSON documents made from the fuzzer's bytes.
//!
//! A target is one short file in `src/targets/` and a line in `targets.rs`; its seeds are in `corpus/<target>/`.
//! Targets call the product's public functions only, and fail by panicking. `tests/corpus.rs` runs every target on its seeds
//! and on inputs made from them; `tools/fuzz` searches with libFuzzer.

pub mod targets;

use arbitrary::{Arbitrary, Result, Unstructured};
use serde_json::{Map, Value};

/// A JSON value that nests only so deep, with keys and strings that the code under test gives a meaning.
#[derive(Debug)]
pub struct Json(pub Value);

const MAX_DEPTH: usize = 6;
const WORDS: [&str; 20] = [
    "a",
    "b",
    "name",
    "metadata",
    "spec",
    "list",
    "set",
    "$patch",
    "replace",
    "delete",
    "merge",
    "$retainKeys",
    "$setElementOrder/list",
    "$deleteFromPrimitiveList/set",
    "op",
    "path",
    "from",
    "value",
    "/list/0",
    "/a/-",
];

impl<'a> Arbitrary<'a> for Json {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        value(u, MAX_DEPTH).map(Self)
    }
}

fn value(u: &mut Unstructured, depth: usize) -> Result<Value> {
    let kinds = if depth == 0 { 4 } else { 7 };
    Ok(match u.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => bool::arbitrary(u)?.into(),
        2 => i16::arbitrary(u)?.into(),
        3 | 4 => word(u)?.into(),
        5 => (0..u.int_in_range(0..=4)?).map(|_| value(u, depth - 1)).collect::<Result<Vec<_>>>()?.into(),
        _ => {
            let length = u.int_in_range(0..=4)?;
            let fields = (0..length).map(|_| Ok((word(u)?, value(u, depth - 1)?)));
            Value::Object(fields.collect::<Result<Map<_, _>>>()?)
        }
    })
}

fn word(u: &mut Unstructured) -> Result<String> {
    if u.ratio(1, 8)? {
        return String::arbitrary(u);
    }
    Ok((*u.choose(&WORDS)?).to_owned())
}

/// Documents by name: seeds give them as a JSON object, the fuzzer mostly as bytes to make them from.
pub fn documents<const N: usize>(data: &[u8], names: [&str; N]) -> Option<[Value; N]> {
    if let Ok(Value::Object(mut given)) = serde_json::from_slice(data) {
        return Some(names.map(|name| given.remove(name).unwrap_or_default()));
    }
    let mut u = Unstructured::new(data);
    let made: Vec<Value> = names.iter().map(|_| value(&mut u, MAX_DEPTH)).collect::<Result<_>>().ok()?;
    made.try_into().ok()
}

/// The text at the beginning of an input: all of it, or up to the first byte that is no UTF-8.
pub fn text(data: &[u8]) -> &str {
    let end = std::str::from_utf8(data).map_or_else(|error| error.valid_up_to(), str::len);
    std::str::from_utf8(&data[..end]).unwrap_or_default()
}
