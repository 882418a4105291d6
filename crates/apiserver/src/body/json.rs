//! JSON to a value in one pass that also finds keys given twice.
//!
//! The visitor serves any self-describing format: YAML is read through it as well. The last of several values wins.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{Decoded, MAX_DEPTH};

/// Reads the whole body; the error is worded as Go's decoder would.
pub(super) fn decode(body: &[u8]) -> Result<Decoded, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let decoded = Decoded::deserialize(&mut deserializer);
    let decoded = decoded.and_then(|decoded| deserializer.end().map(|()| decoded));
    decoded.map_err(|error| explain(body, &error))
}

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duplicates = RefCell::default();
        let place = Place { step: Step::Root, depth: 0, duplicates: &duplicates };
        let value = place.deserialize(deserializer)?;
        Ok(Self { value, duplicates: duplicates.into_inner() })
    }
}

/// Where in the document the reader is; spelt out only when a duplicate is found.
#[derive(Clone, Copy)]
struct Place<'a> {
    step: Step<'a>,
    depth: usize,
    duplicates: &'a RefCell<Vec<String>>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a Step<'a>, &'a str),
    Index(&'a Step<'a>, usize),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Place<'_> {
    fn duplicate(&self, key: &str) {
        let path = Step::Key(&self.step, key).to_string();
        let mut duplicates = self.duplicates.borrow_mut();
        if !duplicates.contains(&path) && duplicates.len() < MAX_DUPLICATES {
            duplicates.push(path);
        }
    }

    /// The place is about to be a container.
    fn enter<E: de::Error>(&self) -> Result<usize, E> {
        if self.depth < MAX_DEPTH { Ok(self.depth + 1) } else { Err(E::custom(TOO_DEEP)) }
    }
}

const TOO_DEEP: &str = "exceeded max depth";

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        // Whole numbers that a float holds exactly: Go writes them without a fraction.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() < EXACT {
            #[allow(clippy::cast_possible_truncation, reason = "whole and within range")]
            return Ok((value as i64).into());
        }
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a number that JSON can hold"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let depth = self.enter()?;
        let mut out = Vec::new();
        let element = |index| Place { step: Step::Index(&self.step, index), depth, ..self };
        while let Some(value) = list.next_element_seed(element(out.len()))? {
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.enter()?;
        let mut out = Map::new();
        while let Some(Key(key)) = map.next_key()? {
            let step = Step::Key(&self.step, &key);
            let value = map.next_value_seed(Place { step, depth, ..self })?;
            match out.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    self.duplicate(entry.key());
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(out))
    }
}

/// Enough to tell an author what is wrong.
const MAX_DUPLICATES: usize = 100;

/// A map's key. YAML's may be any scalar; as in the real server, `y: 1` has the key `true`.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, number or boolean as key")
            }
            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(key.to_owned()))
            }
            fn visit_string<E>(self, key: String) -> Result<Key, E> {
                Ok(Key(key))
            }
            fn visit_bool<E>(self, key: bool) -> Result<Key, E> {
                Ok(Key(key.to_string()))
            }
            fn visit_i64<E>(self, key: i64) -> Result<Key, E> {
                Ok(Key(key.to_string()))
            }
            fn visit_u64<E>(self, key: u64) -> Result<Key, E> {
                Ok(Key(key.to_string()))
            }
            fn visit_f64<E>(self, key: f64) -> Result<Key, E> {
                Ok(Key(key.to_string()))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

/// The error in Go's words, where they are known: people search for them.
fn explain(body: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line").map_or(text.as_str(), |(message, _)| message);
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let mut lines = body.split(|&byte| byte == b'\n');
    let line = lines.nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(error.column().saturating_sub(1)).copied();
    let place = match text {
        "trailing characters" => "after top-level value",
        "key must be a string" => "looking for beginning of object key string",
        "trailing comma" if found == Some(b'}') => "looking for beginning of object key string",
        "expected value" | "invalid number" | "trailing comma" => "looking for beginning of value",
        "expected `:`" => "after object key",
        "expected `,` or `}`" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "invalid escape" => "in string escape code",
        "recursion limit exceeded" | TOO_DEEP => TOO_DEEP,
        _ if text.starts_with("control character") => "in string literal",
        other => return other.to_owned(),
    };
    let found = char::from(found.unwrap_or(b'?')).escape_debug().to_string();
    format!("invalid character '{found}' {place}")
}
