//! What the plugin tells besides its answer: to the file that the configuration names, else to standard error.
//!
//! It owns the levels of whereabouts. A log that cannot be written never fails an operation.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warning,
    Debug,
}

impl Level {
    /// The words of whereabouts; whoever has not said gets warnings.
    pub(crate) fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "panic" | "error" => Self::Error,
            "debug" | "verbose" => Self::Debug,
            _ => Self::Warning,
        }
    }
}

/// A place to tell things.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) file: Option<PathBuf>,
    pub(crate) level: Level,
    /// What every line begins with: which call it is about.
    pub(crate) about: String,
}

impl Log {
    pub(crate) fn tell(&self, level: Level, what: impl Display) {
        if level > self.level {
            return;
        }
        let line = format!("{} {level:?} {}: {what}\n", jiff::Timestamp::now(), self.about);
        let written = self
            .file
            .as_ref()
            .map(|path| OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes()));
        if !matches!(written, Some(Ok(()))) {
            eprint!("{line}");
        }
    }
}
