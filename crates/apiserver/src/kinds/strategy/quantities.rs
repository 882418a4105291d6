//! Quantities (`500m`, `1Gi`): one spelling each.
//!
//! Clients may write `0.5`, `"0.5"` or `500m`; the store and every reader see `500m`, or else the same object
//! would look changed. What cannot be read as a quantity is left as it is.

use serde_json::Value;

use crate::kinds::definitions::QUANTITY;
use crate::schema::Node;

const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Rewrites every quantity below `value`, as the schema knows them.
pub fn normalize(node: &Node, value: &mut Value) {
    if matches!(node, Node::Named(name) if name.split('#').next() == Some(QUANTITY)) {
        let text = match &*value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return,
        };
        if let Some(canonical) = canonical(&text) {
            *value = Value::String(canonical);
        }
        return;
    }
    let schema = node.get();
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if let Some(node) = schema.properties.get(key).or(schema.additional.as_deref()) {
                    normalize(node, child);
                }
            }
        }
        Value::Array(elements) => {
            if let Some(node) = schema.items.as_deref() {
                for element in elements {
                    normalize(node, element);
                }
            }
        }
        _ => {}
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Decimal,
    Binary,
    Exponent,
}

/// Whether the text can be read as a quantity, however large.
pub fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, suffix) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let exponent = |digits: &str| digits.parse::<i64>().is_ok();
    number.contains(|c: char| c.is_ascii_digit())
        && number.matches('.').count() <= 1
        && (BINARY.contains(&suffix)
            || DECIMAL.iter().any(|(known, _)| *known == suffix)
            || suffix.strip_prefix(['e', 'E']).is_some_and(exponent))
}

/// The quantity in billionths.
pub fn nanos(text: &str) -> Option<i128> {
    parse(text).map(|(nanos, _)| nanos)
}

fn parse(text: &str) -> Option<(i128, Style)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // The suffix moves the point: 10^power in billionths, or a power of 1024.
    let (power, factor, style) = if let Some(index) = BINARY.iter().position(|b| *b == suffix) {
        (9, 1024_i128.checked_pow(u32::try_from(index).ok()? + 1)?, Style::Binary)
    } else if let Some((_, power)) = DECIMAL.iter().find(|(d, _)| *d == suffix) {
        (i64::from(*power), 1, Style::Decimal)
    } else {
        let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        (exponent + 9, 1, Style::Exponent)
    };
    let mut nanos: i128 = 0;
    let mut places = 0;
    for digit in whole.chars().chain(fraction.chars()) {
        nanos = nanos.checked_mul(10)?.checked_add(i128::from(digit.to_digit(10)?))?;
    }
    places -= i64::try_from(fraction.len()).ok()?;
    nanos = nanos.checked_mul(factor)?;
    let shift = u32::try_from((power + places).unsigned_abs()).ok()?;
    let scale = 10_i128.checked_pow(shift)?;
    nanos = if power + places >= 0 {
        nanos.checked_mul(scale)?
    } else {
        // Less than a billionth counts as one.
        nanos / scale + i128::from(nanos % scale != 0)
    };
    Some((if negative { -nanos } else { nanos }, style))
}

/// The one spelling: the largest suffix that needs no fraction.
pub fn canonical(text: &str) -> Option<String> {
    let (mut value, style) = parse(text)?;
    if value == 0 {
        return Some("0".into());
    }
    let whole = value % NANO == 0;
    if style == Style::Binary && whole && (value / NANO).abs() >= 1024 {
        value /= NANO;
        let mut suffix = "";
        for next in BINARY {
            if value % 1024 != 0 {
                break;
            }
            value /= 1024;
            suffix = next;
        }
        return Some(format!("{value}{suffix}"));
    }
    let mut step = 0;
    while value % 1000 == 0 && step + 1 < DECIMAL.len() {
        value /= 1000;
        step += 1;
    }
    let (suffix, power) = DECIMAL[step];
    Some(match (style, i64::from(power) - 9) {
        (Style::Exponent, 0) => value.to_string(),
        (Style::Exponent, exponent) => format!("{value}e{exponent}"),
        _ => format!("{value}{suffix}"),
    })
}
