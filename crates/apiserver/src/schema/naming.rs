//! The naming rules that Kubernetes shares with DNS, in the words of the real server.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// Letters, digits and inner dashes, all lower case.
fn is_label(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

/// Why `name` is no RFC 1123 label; empty when it is one.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut breaches = too_long(name, 63);
    if !is_label(name) {
        breaches.push(if is_subdomain(name) {
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
    if !is_label(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
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
    if !is_subdomain(name) {
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
