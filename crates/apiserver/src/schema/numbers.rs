//! Numbers as Go sees them: what counts as an integer, which type a number fits in, and how it is printed.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::Type;
use crate::status::show;

/// Written as an integer, or a fraction that is a whole number and exact.
pub fn is_integral(number: &Number) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    number.is_i64() || number.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() <= EXACT)
}

/// How the type is called that the number does not fit in.
pub fn out_of_range(kind: Type, format: Option<&str>, number: &Number) -> Option<String> {
    let fits = match (kind, format) {
        (Type::Integer, Some("int32")) => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        // Beyond 64 bits, or a fraction.
        (Type::Integer, _) => {
            number.is_i64() || number.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() < 9.2e18)
        }
        (Type::Number, Some("float")) => number.as_f64().is_some_and(|n| n.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    let named = || format.map_or("(default format)".to_owned(), |format| format!("with format {format}"));
    (!fits).then(named)
}

#[allow(clippy::cast_possible_truncation, reason = "checked to be a whole number in range")]
pub fn compare(number: &Number, bound: f64) -> Option<Ordering> {
    match number.as_i64() {
        Some(n) if bound.fract() == 0.0 && bound.abs() < 9.2e18 => Some(n.cmp(&(bound as i64))),
        _ => number.as_f64()?.partial_cmp(&bound),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "checked to be a whole number in range")]
pub fn is_multiple(number: &Number, factor: f64) -> bool {
    match number.as_i64() {
        Some(n) if factor.fract() == 0.0 && factor < 9.2e18 => n % (factor as i64) == 0,
        _ => number.as_f64().is_some_and(|n| {
            let times = if factor < 1.0 { 1.0 / factor * n } else { n / factor };
            (times - times.round()).abs() < 1e-9
        }),
    }
}

/// A value in a message: a fraction as Go prints it.
pub fn show_number(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => number.as_f64().map(go_float).unwrap_or_default(),
        other => show(other),
    }
}

/// A float as Go's `%v` prints it: an exponent below 1e-4 and from 1e21 on.
pub fn go_float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    number.to_string()
}
