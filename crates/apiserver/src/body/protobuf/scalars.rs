//! Kubernetes types whose JSON is not an object of their protobuf fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Fields, Wire};

pub(super) fn base64(bytes: &[u8]) -> Value {
    json!(STANDARD.encode(bytes))
}

/// The value of a type that is known by name; `None` for an ordinary message. Null: not set.
pub(super) fn special(name: &str, bytes: &[u8]) -> Result<Option<Value>, String> {
    Ok(Some(match name {
        "Quantity" => json!(texts(bytes)?.pop().unwrap_or_default()),
        // A list with a name of its own is a message that holds the list.
        "Strings" => json!(texts(bytes)?),
        "Time" => time(bytes, false)?,
        "MicroTime" => time(bytes, true)?,
        "Duration" => json!(duration(numbers(bytes)?[0])),
        "IntOrString" => int_or_string(bytes)?,
        "RawExtension" | "FieldsV1" => match field(bytes, 1)? {
            Some(Wire::Bytes(raw)) if !raw.is_empty() => super::super::json::decode(raw)?.value,
            _ => Value::Null,
        },
        _ => return Ok(None),
    }))
}

fn field(bytes: &[u8], wanted: u64) -> Result<Option<Wire<'_>>, String> {
    let mut found = None;
    for part in Fields(bytes) {
        let (number, wire) = part?;
        if number == wanted {
            found = Some(wire);
        }
    }
    Ok(found)
}

/// All that field 1 was given, as text.
fn texts(bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for part in Fields(bytes) {
        if let (1, Wire::Bytes(text)) = part? {
            out.push(String::from_utf8_lossy(text).into_owned());
        }
    }
    Ok(out)
}

/// Fields 1 and 2 as signed numbers.
fn numbers(bytes: &[u8]) -> Result<[i64; 2], String> {
    let mut out = [0; 2];
    for (number, slot) in (1..).zip(&mut out) {
        if let Some(Wire::Number(value)) = field(bytes, number)? {
            *slot = value.cast_signed();
        }
    }
    Ok(out)
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = numbers(bytes)?;
    let nanos = i32::try_from(nanos).unwrap_or_default();
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|_| "time out of range".to_owned())?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(json!(time.strftime(format).to_string()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    const STRING: i64 = 1;
    if numbers(bytes)?[0] != STRING {
        return Ok(json!(numbers(bytes)?[1]));
    }
    Ok(match field(bytes, 3)? {
        Some(Wire::Bytes(text)) => json!(String::from_utf8_lossy(text)),
        _ => json!(""),
    })
}

/// Nanoseconds as Go writes a duration: `1h2m3.5s`.
fn duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let fraction = |value: u64, unit: u64, name: &str| {
        let digits = unit.ilog10() as usize;
        let rest = format!("{:0digits$}", value % unit);
        let rest = rest.trim_end_matches('0');
        let point = if rest.is_empty() || unit == 1 { String::new() } else { format!(".{rest}") };
        format!("{}{point}{name}", value / unit)
    };
    let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
    let seconds = fraction(nanos % 60_000_000_000, 1_000_000_000, "s");
    let text = match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => fraction(nanos, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(nanos, 1_000_000, "ms"),
        _ if hours > 0 => format!("{hours}h{minutes}m{seconds}"),
        _ if minutes > 0 => format!("{minutes}m{seconds}"),
        _ => seconds,
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_read_as_in_go() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (-2_000_000, "-2ms"),
            (1_000_000_000, "1s"),
            (60_000_000_000, "1m0s"),
            (3_723_500_000_000, "1h2m3.5s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(duration(nanos), text);
        }
    }
}
