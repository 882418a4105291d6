//! How parts ended, and the file that remembers it: a line of JSON a part, written as soon as the part has ended.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::output::NotRun;

/// A part that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub part: String,
    pub row: String,
    pub seconds: f64,
    pub succeeded: bool,
    /// Tests; `None`: the part is none.
    pub counts: Option<(u64, u64)>,
    pub not_run: Vec<NotRun>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Seed { seed: u64 },
    Done(Done),
}

/// What is known of earlier runs, and where this one is written down.
pub struct Record {
    seed: u64,
    before: Vec<Done>,
    file: Option<File>,
}

impl Record {
    /// Continues the record in a file, or begins it; without a file, nothing is remembered.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self { seed: seed_asked_for()?.unwrap_or(1), before: Vec::new(), file: None });
        };
        let text = if path.exists() { std::fs::read_to_string(path) } else { Ok(String::new()) };
        let text = text.with_context(|| format!("reading {}", path.display()))?;
        let (mut seed, mut before) = (None, Vec::new());
        // A run that was killed may have left the last line unfinished.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for (number, line) in whole.lines().enumerate() {
            let place = || format!("{}:{}: not a line of a record", path.display(), number + 1);
            match serde_json::from_str(line).with_context(place)? {
                Line::Seed { seed: recorded } => seed = Some(recorded),
                Line::Done(done) => before.push(done),
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("writing {}", path.display()))?;
        file.set_len(if whole.is_empty() { 0 } else { whole.len() as u64 + 1 })
            .with_context(|| format!("writing {}", path.display()))?;
        let mut record = Self { seed: seed.or(seed_asked_for()?).unwrap_or(1), before, file: Some(file) };
        if seed.is_none() {
            record.write(&Line::Seed { seed: record.seed })?;
        }
        Ok(record)
    }

    /// What trials are drawn with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How a part ended in an earlier run, if it passed there.
    pub fn passed(&self, part: &str) -> Option<&Done> {
        self.before.iter().find(|done| done.part == part && done.succeeded)
    }

    pub fn add(&mut self, done: &Done) -> Result<()> {
        self.write(&Line::Done(done.clone()))
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let text = serde_json::to_string(line)? + "\n";
        file.write_all(text.as_bytes()).context("writing the record")
    }
}

fn seed_asked_for() -> Result<Option<u64>> {
    let Ok(text) = std::env::var("GODWIT_SEED") else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("GODWIT_SEED={text:?} is not a number"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;

    fn done(part: &str, succeeded: bool) -> Done {
        let (part, row) = (part.to_owned(), part.to_owned());
        Done { part, row, seconds: 1.5, succeeded, counts: Some((1, 0)), not_run: Vec::new() }
    }

    #[test]
    fn a_record_is_continued_with_its_seed_and_without_what_passed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let mut record = Record::open(Some(&path)).unwrap();
        record.seed = 7;
        std::fs::write(&path, "{\"seed\":7}\n").unwrap();
        record.add(&done("good", true)).unwrap();
        record.add(&done("bad", false)).unwrap();
        record.file.as_mut().unwrap().write_all(b"{\"part\":\"half").unwrap();

        let mut record = Record::open(Some(&path)).unwrap();
        assert_eq!(record.seed(), 7);
        assert_eq!(record.passed("good"), Some(&done("good", true)));
        assert_eq!((record.passed("bad"), record.passed("half")), (None, None));
        record.add(&done("bad", true)).unwrap();
        let record = Record::open(Some(&path)).unwrap();
        assert!(record.passed("bad").is_some(), "the unfinished line is gone");
    }

    #[test]
    fn what_is_no_record_is_refused_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        std::fs::write(&path, "{\"seed\":7}\nhello\n").unwrap();
        let error = Record::open(Some(&path)).err().unwrap();
        assert!(error.to_string().ends_with("record:2: not a line of a record"), "{error:#}");
    }
}
