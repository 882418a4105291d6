//! Regular expressions as the real server reads them (RE2), run by the `regex` crate.
//!
//! The two dialects agree but for a few points, which [`translate`] rewrites: RE2's `\d`, `\w`, `\s`, `\b` are ASCII,
//! a `[` or `&&` inside a class is literal, a `{` that opens no repetition is literal, and `\Q…\E` quotes.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;

/// Expressions that were read before. A definition is read again whenever it is written, its status too, and most of its patterns are
/// the same few: reading them is what definitions cost.
static READ: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
/// How many are kept. Beyond that all are forgotten: they are read again, and nobody can fill the memory with them.
const KEPT: usize = 1000;

/// A `pattern` with the text that the schema's author wrote, which messages quote.
#[derive(Debug, Clone)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    pub fn new(source: &str) -> Result<Self, regex::Error> {
        Ok(Self { source: source.to_owned(), regex: read(source)? })
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    pub fn as_str(&self) -> &str {
        &self.source
    }
}

fn read(source: &str) -> Result<Regex, regex::Error> {
    let lock = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = lock().get(source) {
        return Ok(regex.clone());
    }
    let regex = Regex::new(&translate(source))?;
    let mut known = lock();
    if known.len() >= KEPT {
        known.clear();
    }
    known.insert(source.to_owned(), regex.clone());
    Ok(regex)
}

fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut rest = source;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let (taken, written) = match c {
            '\\' => escape(rest, in_class),
            '[' if in_class && rest.starts_with("[:") => match rest.find(":]") {
                Some(end) => (end + 2, rest[..end + 2].to_owned()),
                None => (1, "\\[".to_owned()),
            },
            '[' if in_class => (1, "\\[".to_owned()),
            '[' => {
                in_class = true;
                let negated = rest[1..].starts_with('^');
                let start = 1 + usize::from(negated);
                // A `]` that comes first belongs to the class.
                if rest[start..].starts_with(']') {
                    (start + 1, format!("{}\\]", &rest[..start]))
                } else {
                    (start, rest[..start].to_owned())
                }
            }
            ']' if in_class => {
                in_class = false;
                (1, "]".to_owned())
            }
            '&' | '~' if in_class => (1, format!("\\{c}")),
            '{' if !in_class && !opens_repetition(rest) => (1, "\\{".to_owned()),
            _ => (c.len_utf8(), c.to_string()),
        };
        out.push_str(&written);
        rest = &rest[taken..];
    }
    out
}

/// How much of `text`, which begins with a backslash, is one escape, and what it becomes.
fn escape(text: &str, in_class: bool) -> (usize, String) {
    let wrap = |set: &str| {
        if in_class { set.to_owned() } else { format!("[{set}]") }
    };
    let Some(c) = text[1..].chars().next() else {
        return (1, "\\".to_owned());
    };
    let written = match c {
        'd' => wrap("0-9"),
        'D' => "[^0-9]".to_owned(),
        'w' => wrap("0-9A-Za-z_"),
        'W' => "[^0-9A-Za-z_]".to_owned(),
        's' => wrap(r"\t\n\f\r "),
        'S' => r"[^\t\n\f\r ]".to_owned(),
        'b' if !in_class => r"(?-u:\b)".to_owned(),
        'Q' => {
            let quoted = &text[2..];
            let end = quoted.find("\\E").unwrap_or(quoted.len());
            let taken = (2 + end + 2).min(text.len());
            return (taken, regex::escape(&quoted[..end]));
        }
        other => format!("\\{other}"),
    };
    (1 + c.len_utf8(), written)
}

fn opens_repetition(text: &str) -> bool {
    let Some(end) = text.find('}') else { return false };
    let inner = &text[1..end];
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match inner.split_once(',') {
        None => digits(inner),
        Some((low, high)) => digits(low) && (high.is_empty() || digits(high)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_patterns_as_re2_does() {
        let cases = [
            (r"^\d+$", "١٢", false),
            (r"^\d+$", "12", true),
            (r"^[\w-]+$", "a_b-c", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "&", true),
            (r"^{a}$", "{a}", true),
            (r"^a{2}$", "aa", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"\bfoo\b", "a foo b", true),
        ];
        for (pattern, text, matches) in cases {
            assert_eq!(Pattern::new(pattern).unwrap().is_match(text), matches, "{pattern} on {text}");
        }
        assert!(Pattern::new("a(").is_err());
    }
}
