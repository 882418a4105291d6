//! Which names a kind accepts, and what is said of those that it does not.
//!
//! The sentences are the real server's: clients and tests compare them.

use std::sync::LazyLock;

use regex::Regex;

use super::Kind;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// Dot-separated DNS labels, 253 characters at most.
    Subdomain,
    /// One DNS label, 63 characters at most.
    Label,
    /// Anything that can be a part of a URL's path.
    PathSegment,
}

pub fn name_rule(kind: &Kind) -> NameRule {
    if kind.custom.is_some() {
        return NameRule::Subdomain;
    }
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces" | "services") => NameRule::Label,
        ("", "events") | ("policy" | "rbac.authorization.k8s.io" | "certificates.k8s.io", _) => {
            NameRule::PathSegment
        }
        _ => NameRule::Subdomain,
    }
}

impl NameRule {
    /// What is wrong with the name. A `prefix` (`generateName`) may end in a dash: more will follow.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        if self == Self::PathSegment {
            return path_segment(name, prefix);
        }
        let completed;
        let name = match name.strip_suffix('-') {
            Some(rest) if prefix && !rest.is_empty() => {
                completed = format!("{rest}a");
                &completed
            }
            _ => name,
        };
        let (longest, complaint) = match self {
            Self::Label => (63, label(name)),
            _ => (253, subdomain(name)),
        };
        let mut wrong = Vec::new();
        if name.len() > longest {
            wrong.push(format!("must be no more than {longest} characters"));
        }
        wrong.extend(complaint);
        wrong
    }
}

fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].into_iter().filter(|&c| name.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// What is wrong with a DNS label, its length aside.
pub fn label(name: &str) -> Option<String> {
    if matches(&LABEL_REGEX, name) {
        return None;
    }
    if matches(&SUBDOMAIN_REGEX, name) {
        return Some("must not contain dots".into());
    }
    Some(format!(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
    ))
}

fn subdomain(name: &str) -> Option<String> {
    (!matches(&SUBDOMAIN_REGEX, name)).then(|| {
        format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
        )
    })
}

static LABEL_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^{LABEL}$")).ok());
static SUBDOMAIN_REGEX: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("^{SUBDOMAIN}$")).ok());

/// The patterns are constants: that they compile is tested.
fn matches(regex: &LazyLock<Option<Regex>>, name: &str) -> bool {
    regex.as_ref().is_some_and(|regex| regex.is_match(name))
}
