//! The string formats that the real server checks; a format that it does not know means nothing.
//!
//! Its leniency is copied as well: addresses with leading zeros, durations as Scala writes them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// Whether `text` is in the format; `None` when the format is not known.
pub fn matches(format: &str, text: &str) -> Option<bool> {
    let matched = match format.replace('-', "").as_str() {
        "password" => true,
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "ipv4" => text.contains('.') && is_address(text),
        "ipv6" => text.contains(':') && is_ipv6(text, false),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "hostname" => is_hostname(text),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "ssn" => text.len() == 11 && EXPRESSIONS.is_match("ssn", text),
        "k8sshortname" => text.len() <= 63 && EXPRESSIONS.is_match("k8sshortname", text),
        "k8slongname" => text.len() <= 253 && EXPRESSIONS.is_match("k8slongname", text),
        name @ ("uuid" | "uuid3" | "uuid4" | "uuid5" | "hexcolor" | "rgbcolor" | "byte") => {
            EXPRESSIONS.is_match(name, text)
        }
        _ => return None,
    };
    Some(matched)
}

/// The formats that one expression describes.
struct Expressions(Vec<(&'static str, Regex)>);

impl Expressions {
    fn is_match(&self, name: &str, text: &str) -> bool {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.is_some_and(|(_, expression)| expression.is_match(text))
    }
}

static EXPRESSIONS: LazyLock<Expressions> = LazyLock::new(|| {
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let shade = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    let table = [
        ("uuid", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$".to_owned()),
        ("uuid3", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$".to_owned()),
        ("uuid4", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$".to_owned()),
        ("uuid5", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$".to_owned()),
        ("hexcolor", r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$".to_owned()),
        ("rgbcolor", format!(r"^rgb\({shade},{shade},{shade}\)$")),
        ("ssn", r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$".to_owned()),
        ("byte", r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$".to_owned()),
        ("k8sshortname", format!("^{label}$")),
        ("k8slongname", format!(r"^{label}(\.{label})*$")),
        ("time", r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$".to_owned()),
        ("goduration", r"^[-+]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$".to_owned()),
        (
            "hostname",
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
                .to_owned(),
        ),
        (
            "creditcard",
            r"^(4[0-9]{12}([0-9]{3})?|5[1-5][0-9]{14}|6(011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(0[0-5]|[68][0-9])[0-9]{11}|(2131|1800|35\d{3})\d{11})$"
                .to_owned(),
        ),
    ];
    let compiled = table.into_iter().filter_map(|(name, text)| Some((name, Regex::new(&text).ok()?)));
    Expressions(compiled.collect())
});

fn is_date(text: &str) -> bool {
    let well_formed = text.len() == 10 && text.is_ascii();
    well_formed && jiff::civil::Date::strptime("%Y-%m-%d", text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let Some((date, time)) = text.split_once('t') else {
        return false;
    };
    let time = time.split('t').next().unwrap_or_default();
    is_date(date)
        && EXPRESSIONS.is_match("time", time)
        && time.get(..2) <= Some("23")
        && time.get(3..5) <= Some("59")
        && time.get(6..8) <= Some("59")
}

/// As Go writes durations (`1h30m`), or as Scala does (`3 days`): any number followed by a known unit will do.
fn is_duration(text: &str) -> bool {
    const SHORT: &[&str] = &["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const STEMS: &[&str] = &["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    if EXPRESSIONS.is_match("goduration", text) {
        return true;
    }
    let after_number =
        text.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| text[at + 1..].trim_start());
    after_number.into_iter().any(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(rest.len());
        let unit = rest[..end].to_lowercase();
        SHORT.contains(&unit.as_str()) || STEMS.iter().any(|stem| unit.starts_with(stem))
    })
}

/// An address with leading zeros allowed in its decimal parts.
fn is_address(text: &str) -> bool {
    if text.contains(':') { is_ipv6(text, true) } else { is_ipv4(text, true) }
}

fn is_ipv4(text: &str, sloppy: bool) -> bool {
    if !sloppy {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    let parts: Vec<&str> = text.split('.').collect();
    let is_octet = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && part.parse::<u16>().is_ok_and(|n| n < 256)
    };
    parts.len() == 4 && parts.iter().all(is_octet)
}

fn is_ipv6(text: &str, sloppy: bool) -> bool {
    if let Some((head, tail)) = text.rsplit_once(':')
        && tail.contains('.')
    {
        return is_ipv4(tail, sloppy) && format!("{head}:0:0").parse::<Ipv6Addr>().is_ok();
    }
    text.parse::<Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most: u8 = if address.contains(':') { 128 } else { 32 };
    let is_length = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    is_address(address) && is_length && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let (separator, digits) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let groups: Vec<&str> = text.split(separator).collect();
    let is_group = |group: &&str| group.len() == digits && group.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(groups.len() * digits / 2, 6 | 8 | 20) && groups.iter().all(is_group)
}

fn is_hostname(text: &str) -> bool {
    EXPRESSIONS.is_match("hostname", text)
        && text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
}

/// What Go accepts as the target of a request: an absolute URI, an absolute path, or `*`.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let has_scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    let rest = match has_scheme {
        Some((_, rest)) if !rest.starts_with('/') => return true,
        Some((_, rest)) => rest,
        None if text.starts_with('/') => text,
        None => return false,
    };
    let rest = rest.split('?').next().unwrap_or_default();
    let (authority, path) = match rest.strip_prefix("//").filter(|_| has_scheme.is_some()) {
        Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
        None => ("", rest),
    };
    is_authority(authority) && escapes_are_whole(path)
}

fn is_authority(authority: &str) -> bool {
    let host_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host_port.rfind(']') {
        Some(end) => host_port.split_at(end + 1),
        None => host_port.split_at(host_port.find(':').unwrap_or(host_port.len())),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    let is_host = if host.starts_with('[') {
        host.ends_with(']')
    } else {
        !host.contains(['[', ' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
    };
    is_port && is_host && escapes_are_whole(host)
}

fn escapes_are_whole(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(named) => match named.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom = |part: &str| {
        let legal = |c: char| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c);
        !part.is_empty() && part.chars().all(legal)
    };
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || local.split('.').all(is_atom)) && (is_literal || domain.split('.').all(is_atom))
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits_of(text);
    let value = |(at, c): (u32, char)| match c {
        'X' if at == 10 => Some(10 * at),
        _ => Some(c.to_digit(10)? * at),
    };
    let sum: Option<u32> = (1..).zip(text.chars()).map(value).sum();
    text.len() == 10 && sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let text = digits_of(text);
    let value = |(at, c): (usize, char)| Some(c.to_digit(10)? * if at % 2 == 0 { 1 } else { 3 });
    let sum: Option<u32> = text.chars().enumerate().map(value).sum();
    text.len() == 13 && sum.is_some_and(|sum| sum % 10 == 0)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let value = |(at, c): (usize, char)| {
        let digit = c.to_digit(10).unwrap_or_default();
        let doubled = if at % 2 == 1 { 2 * digit } else { digit };
        if doubled >= 10 { doubled - 9 } else { doubled }
    };
    let sum: u32 = digits.chars().rev().enumerate().map(value).sum();
    EXPRESSIONS.is_match("creditcard", &digits) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_expressions_compile() {
        assert_eq!(EXPRESSIONS.0.len(), 14);
    }

    #[test]
    fn formats() {
        let cases = [
            ("date", "2024-02-29", true),
            ("date", "2023-02-29", false),
            ("date-time", "2024-01-02T03:04:05Z", true),
            ("date-time", "2024-01-02t03:04:05.123+01:00", true),
            ("date-time", "2024-01-02 03:04:05Z", false),
            ("date-time", "2024-01-02T24:04:05Z", false),
            ("duration", "1h30m", true),
            ("duration", "-1.5h", true),
            ("duration", "3 days", true),
            ("duration", "3 parsecs", false),
            ("duration", "soon", false),
            ("ipv4", "010.0.0.1", true),
            ("ipv4", "10.0.0.256", false),
            ("ipv4", "::1", false),
            ("ipv6", "::1", true),
            ("ipv6", "::ffff:1.2.3.4", true),
            ("ipv6", "1.2.3.4", false),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("cidr", "fd00::/64", true),
            ("cidr", "10.0.0.0", false),
            ("mac", "02:00:00:00:00:01", true),
            ("mac", "0200.0000.0001", true),
            ("mac", "02:00:00:00:00", false),
            ("hostname", "a.example.com", true),
            ("hostname", "-a", false),
            ("uri", "https://example.com/a?b", true),
            ("uri", "/a/b", true),
            ("uri", "a/b", false),
            ("uri", "http://a b/", false),
            ("uri", "http://a/%zz", false),
            ("email", "a@b.c", true),
            ("email", "A <a@b.c>", true),
            ("email", "a.b.c", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", false),
            ("byte", "aGk=", true),
            ("byte", "", false),
            ("byte", "a", false),
            ("isbn", "0-321-75104-3", true),
            ("isbn13", "978-0321751041", true),
            ("isbn10", "0321751044", false),
            ("creditcard", "4111 1111 1111 1111", true),
            ("creditcard", "4111111111111112", false),
            ("hexcolor", "#fff", true),
            ("rgbcolor", "rgb(1, 2, 255)", true),
            ("ssn", "111-11-1111", true),
            ("k8s-short-name", "a-b", true),
            ("k8s-short-name", "A", false),
            ("k8s-long-name", "a.b", true),
            ("password", "", true),
            ("bsonobjectid", "507f1f77bcf86cd799439011", true),
        ];
        for (format, text, expected) in cases {
            assert_eq!(matches(format, text), Some(expected), "{format} {text}");
        }
        assert_eq!(matches("no-such", "x"), None);
    }
}
