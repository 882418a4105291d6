//! The naming rules that Kubernetes shares with DNS, in the words of the real server.

use std::sync::LazyLock;

use regex::Regex;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

#[allow(
    clippy::expect_used,
    reason = "constant expressions, compiled by every test run"
)]
fn whole(expression: &str) -> Regex {
    Regex::new(&format!("^(?:{expression})$")).expect("a valid expression")
}

static IS_LABEL: LazyLock<Regex> = LazyLock::new(|| whole(LABEL));
static IS_LABEL_1035: LazyLock<Regex> = LazyLock::new(|| whole(LABEL_1035));
static IS_SUBDOMAIN: LazyLock<Regex> = LazyLock::new(|| whole(SUBDOMAIN));

/// Why `name` is no RFC 1123 label; empty when it is one.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut breaches = too_long(name, 63);
    if !IS_LABEL.is_match(name) {
        breaches.push(if IS_SUBDOMAIN.is_match(name) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{LABEL}')"
            )
        });
    }
    breaches
}

/// Why `name` is no RFC 1035 label; empty when it is one.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut breaches = too_long(name, 63);
    if !IS_LABEL_1035.is_match(name) {
        breaches.push(format!(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '{LABEL_1035}')"
        ));
    }
    breaches
}

/// Why `name` is no RFC 1123 subdomain; empty when it is one.
pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut breaches = too_long(name, 253);
    if !IS_SUBDOMAIN.is_match(name) {
        breaches.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        ));
    }
    breaches
}

fn too_long(name: &str, most: usize) -> Vec<String> {
    let breach = (name.len() > most).then(|| format!("must be no more than {most} bytes"));
    breach.into_iter().collect()
}
