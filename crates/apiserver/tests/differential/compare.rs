//! Finds where answers differ from the recording, and holds that against the list of known differences.

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// One place of one answer.
#[derive(Debug)]
pub struct Difference {
    /// `theme/scenario`.
    scenario: String,
    /// Which answer of the scenario, from 1, and to what request.
    nth: usize,
    request: String,
    pointer: String,
    recorded: Option<Value>,
    answered: Option<Value>,
}

/// Every difference between two answers to a theme.
pub fn theme(name: &str, recorded: &Value, answered: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    let none = Value::Null;
    let mut scenarios: Vec<&String> =
        [recorded, answered].iter().filter_map(|v| v.as_object()).flat_map(|v| v.keys()).collect();
    scenarios.sort();
    scenarios.dedup();
    for scenario in scenarios {
        let (recorded, answered) = (&recorded[scenario], &answered[scenario]);
        let count = |value: &Value| value.as_array().map_or(0, Vec::len);
        for nth in 0..count(recorded).max(count(answered)) {
            let (recorded, answered) = (recorded.get(nth), answered.get(nth));
            let request = recorded.or(answered).unwrap_or(&none)["request"].as_str().unwrap_or_default();
            let mut places = Vec::new();
            walk(recorded, answered, &mut String::new(), &mut places);
            found.extend(places.into_iter().map(|(pointer, recorded, answered)| Difference {
                scenario: format!("{name}/{scenario}"),
                nth: nth + 1,
                request: request.to_owned(),
                pointer,
                recorded,
                answered,
            }));
        }
    }
    found
}

type Place = (String, Option<Value>, Option<Value>);

fn walk(recorded: Option<&Value>, answered: Option<&Value>, at: &mut String, found: &mut Vec<Place>) {
    let mut descend =
        |segment: &str, recorded: Option<&Value>, answered: Option<&Value>, found: &mut Vec<Place>| {
            let before = at.len();
            let _ = write!(at, "/{}", segment.replace('~', "~0").replace('/', "~1"));
            walk(recorded, answered, at, found);
            at.truncate(before);
        };
    match (recorded, answered) {
        (recorded, answered) if recorded == answered => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                descend(key, old.get(key), new.get(key), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                descend(&index.to_string(), old.get(index), new.get(index), found);
            }
        }
        _ => found.push((at.clone(), recorded.cloned(), answered.cloned())),
    }
}

/// Where we differ from Kubernetes on purpose.
#[derive(Debug, Default)]
pub struct KnownDifferences(Vec<Known>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// `theme/scenario`, the text of a request, and a JSON pointer into its answer; `*` stands for anything.
    scenario: String,
    #[serde(default = "anything")]
    request: String,
    pointer: String,
    reason: String,
}

fn anything() -> String {
    "*".into()
}

impl Known {
    fn covers(&self, difference: &Difference) -> bool {
        matches(&self.scenario, &difference.scenario)
            && matches(&self.request, &difference.request)
            && matches(&self.pointer, &difference.pointer)
    }
}

/// Whether `pattern`, in which `*` stands for any text, is all of `text`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| matches(rest, &text[at..]))
        }),
    }
}

impl KnownDifferences {
    pub fn load(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the list of known differences");
        let known: Vec<Known> = serde_saphyr::from_str(&text).expect("a list of differences with reasons");
        assert!(known.iter().all(|known| !known.reason.trim().is_empty()), "a difference needs a reason");
        Self(known)
    }

    /// What is wrong: nothing, when the differences are the known ones. A part of the corpus (`whole` is false) proves no absence.
    pub fn judge(&self, differences: &[Difference], whole: bool) -> String {
        let mut report = String::new();
        let mut heading = String::new();
        let mut unknown = 0;
        for difference in differences {
            if self.0.iter().any(|known| known.covers(difference)) {
                continue;
            }
            unknown += 1;
            let title = format!("\n{} #{}: {}\n", difference.scenario, difference.nth, difference.request);
            if title != heading {
                report.push_str(&title);
                heading = title;
            }
            let _ = writeln!(
                report,
                "  {}\n    Kubernetes: {}\n    this one:   {}",
                difference.pointer,
                show(difference.recorded.as_ref()),
                show(difference.answered.as_ref())
            );
        }
        if unknown > 0 {
            let _ = writeln!(report, "\n{unknown} differences that are not in known-differences.yaml");
        }
        let gone = |known: &&Known| whole && !differences.iter().any(|difference| known.covers(difference));
        for known in self.0.iter().filter(gone) {
            let Known { scenario, request, pointer, .. } = known;
            let _ =
                writeln!(report, "known difference that no longer occurs: {scenario}: {request}: {pointer}");
        }
        report
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "<absent>".into(), Value::to_string)
}
