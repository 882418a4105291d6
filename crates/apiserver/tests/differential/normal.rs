//! Makes answers of different servers and runs comparable, and loses as little as possible.
//!
//! - A resourceVersion of an object becomes `rv1`, `rv2` … in numeric order over the scenario: equality and order survive. One of
//!   a list or bookmark becomes `rv2+`: not before `rv2`, before `rv3`. Other writes to the server move it within that gap.
//! - A uid becomes `uid-1` …, a generated name keeps its prefix and gets `~1` …, both by first appearance.
//! - Times of now become `<time>`, ages `<age>`; times before 2020 come from the corpus and stay.
//! - `fieldsV1` becomes one line of text, for the reader's sake; `managedFields` are sorted by manager, since the server sorts them by
//!   time, and two writes may or may not fall into one second.
//! - Several causes of one refusal are sorted, and the message that repeats them is cut short: the server has no order either.
//! - A message that quotes a whole object, in the order of its Go struct, loses the quotation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| pattern("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(?P<micros>\.\d+)?(Z|[+-]\d\d:\d\d)"));
static AGE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d+(s|m|m\d+s)$"));
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| pattern(r"127\.0\.0\.1:\d+"));
static HASH: LazyLock<Regex> = LazyLock::new(|| pattern(r"hash=[0-9A-F]+"));
/// Numbers that are versions, by what stands before them in a message.
static VERSION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)((?:resource ?version|current)[^0-9,]{1,20}|\()(\d+)\b(-?)"));
static QUOTED_OBJECT: LazyLock<Regex> = LazyLock::new(|| pattern(r#""\{\\"apiVersion\\":.*\}""#));

#[derive(Default)]
struct Tokens {
    versions: BTreeSet<u64>,
    uids: BTreeMap<String, String>,
    /// What the scenario's own names are called.
    names: BTreeMap<String, String>,
    /// Names that the server made of a `generateName`, and what they are called.
    generated: BTreeMap<String, String>,
    generating: Vec<Regex>,
}

/// The answers of one scenario with its variables' names in place of their values.
pub fn scenario(answers: Vec<Value>, variables: &BTreeMap<String, String>, generate_names: &[&str]) -> Value {
    let answers = Value::Array(answers);
    let mut tokens = Tokens::default();
    for prefix in generate_names {
        let prefix = regex::escape(prefix);
        tokens.generating.push(pattern(&format!(r"\b({prefix})[bcdfghjklmnpqrstvwxz2456789]{{5}}")));
    }
    for name in ["ns", "group", "reversed"] {
        tokens.names.insert(variables[name].clone(), format!("<{name}>"));
    }
    tokens.collect(&answers);
    tokens.rewrite(&answers, &mut Vec::new())
}

impl Tokens {
    /// Learns the versions of every object.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                if let Some(Value::Object(metadata)) = fields.get("metadata") {
                    self.learn(metadata);
                }
                sorted(fields).for_each(|(_, value)| self.collect(value));
            }
            _ => {}
        }
    }

    fn learn(&mut self, metadata: &Map<String, Value>) {
        let field = |name: &str| metadata.get(name).and_then(Value::as_str);
        if field("uid").is_some() {
            self.versions.extend(field("resourceVersion").and_then(|version| version.parse::<u64>().ok()));
        }
    }

    fn rewrite(&mut self, value: &Value, path: &mut Vec<String>) -> Value {
        match value {
            Value::String(text) => self.text(text, path).into(),
            Value::Array(items) => items.iter().map(|item| self.rewrite(item, path)).collect(),
            Value::Object(fields) => {
                let of_list = fields.get("metadata").is_some_and(|metadata| metadata["uid"].is_null());
                let mut rewritten = Map::new();
                for (key, value) in sorted(fields) {
                    path.push(if key == "metadata" && of_list { "list".into() } else { key.clone() });
                    let value = match key.as_str() {
                        "fieldsV1" => self.text(&value.to_string(), path).into(),
                        "managedFields" => by_manager(self.rewrite(value, path)),
                        _ => self.rewrite(value, path),
                    };
                    path.pop();
                    rewritten.insert(self.text(key, &["key".into()]), value);
                }
                unordered_causes(&mut rewritten);
                Value::Object(rewritten)
            }
            other => other.clone(),
        }
    }

    fn text(&mut self, text: &str, path: &[String]) -> String {
        let place: Vec<&str> = path.iter().rev().take(2).map(String::as_str).collect();
        match place[..] {
            ["resourceVersion", "list"] => return self.version(text, "+"),
            ["resourceVersion", ..] => return self.version(text, ""),
            ["storageVersionHash", ..] => return "<hash>".into(),
            ["continue", ..] if !text.is_empty() => return "<continue>".into(),
            _ => {}
        }
        let mut text = QUOTED_OBJECT.replace_all(text, "<object>").into_owned();
        for (name, token) in &self.names {
            text = text.replace(name, token);
        }
        for prefix in &self.generating {
            let name = |name: &Captures| {
                let next = format!("{}~{}", &name[1], self.generated.len() + 1);
                self.generated.entry(name[0].to_owned()).or_insert(next).clone()
            };
            text = prefix.replace_all(&text, name).into_owned();
        }
        if place[0] == "message" {
            text = VERSION
                .replace_all(&text, |found: &Captures| match &found[3] {
                    "" => format!("{}{}", &found[1], self.mentioned(&found[2])),
                    // A uid may begin with digits alone.
                    _ => found[0].to_owned(),
                })
                .into_owned();
        }
        let text = UID.replace_all(&text, |uid: &Captures| {
            let next = format!("uid-{}", self.uids.len() + 1);
            self.uids.entry(uid[0].to_owned()).or_insert(next).clone()
        });
        let text = TIME.replace_all(&text, |time: &Captures| match time.name("micros") {
            Some(micros) => format!("<time.{}>", micros.len() - 1),
            None => "<time>".into(),
        });
        let text = ADDRESS.replace_all(&text, "<server>");
        let text = HASH.replace_all(&text, "hash=<hash>");
        AGE.replace_all(&text, "<age>").into_owned()
    }

    /// The token of a version: the last one of an object that is not after it, exact or (`+`) of a list.
    fn version(&self, text: &str, suffix: &str) -> String {
        match text.parse::<u64>() {
            Ok(0) | Err(_) => text.to_owned(),
            Ok(version) => format!("rv{}{suffix}", self.versions.range(..=version).count()),
        }
    }

    /// A number in a message about versions.
    fn mentioned(&self, number: &str) -> String {
        let known = number.parse().is_ok_and(|version| self.versions.contains(&version));
        if known { self.version(number, "") } else { "<rv>".into() }
    }
}

/// In the same order whatever order the server chose.
fn sorted(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.iter().collect::<BTreeMap<_, _>>().into_iter()
}

/// Several causes come in the order of a Go map, that is in none; the message repeats them.
fn unordered_causes(status: &mut Map<String, Value>) {
    let causes = status.get_mut("details").and_then(|details| details.get_mut("causes"));
    let Some(Value::Array(causes)) = causes else {
        return;
    };
    if causes.len() > 1 {
        causes.sort_by_key(Value::to_string);
        if let Some(Value::String(message)) = status.get_mut("message")
            && let Some(list) = message.find(": [")
        {
            message.truncate(list);
            message.push_str(": [<causes>]");
        }
    }
}

fn by_manager(mut entries: Value) -> Value {
    if let Value::Array(entries) = &mut entries {
        entries
            .sort_by_key(|entry| ["manager", "operation", "subresource"].map(|key| entry[key].to_string()));
    }
    entries
}
