//! YAML, read as the real server reads it: version 1.1's booleans and octal numbers, the first document only.

use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{budget, options};

use super::Decoded;

/// How deep YAML may nest. Less than JSON: its reader takes some 20 KiB of stack for each level when not optimised.
const MAX_DEPTH: usize = 50;

pub(super) fn decode(body: &[u8]) -> Result<Decoded, String> {
    // JSON is the YAML that nearly every client sends, and reads far faster as what it is.
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok(decoded) = super::json::decode(body)
    {
        return Ok(decoded);
    }
    let options = options! {
        budget: budget! { max_depth: MAX_DEPTH },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let mut reader = body;
    let first = serde_saphyr::read_with_options(&mut reader, options).next();
    match first {
        Some(document) => document.map_err(|error: serde_saphyr::Error| format!("yaml: {error}")),
        None => Ok(Decoded { value: serde_json::Value::Null, duplicates: Vec::new() }),
    }
}
