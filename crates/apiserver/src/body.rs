//! Request bodies: JSON, YAML or protobuf in, a JSON value out.
//!
//! Decoding knows no kind beyond what protobuf needs, and never judges an object: unknown fields stay in. Whatever
//! comes out nests at most [`MAX_DEPTH`] deep, so that code that walks a value may recurse. Numbers come out as Go
//! would print them: whole ones as integers.

use serde_json::{Map, Value};

use crate::patch::json_type;
use crate::status::{ApiError, ApiResult, Details};

mod json;
mod protobuf;
mod yaml;

/// How deep containers may nest. JSON readers stop at 128, and what is stored is also read back inside lists, watch
/// events and admission reviews.
pub const MAX_DEPTH: usize = 100;

/// A decoded body and the paths of keys that it gave twice (for field validation).
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// What a body is written in, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Protobuf,
    Patch(PatchType),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Format {
    /// The format that a `Content-Type` names; none at all is JSON. `None`: not one that we read.
    pub fn of(content_type: &str) -> Option<Self> {
        let mut parts = content_type.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        if parts.any(|parameter| !parameter.is_empty() && !parameter.contains('=')) {
            return None;
        }
        Some(match essence.as_str() {
            "" | "application/json" => Self::Json,
            "application/yaml" => Self::Yaml,
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            "application/json-patch+json" => Self::Patch(PatchType::Json),
            "application/merge-patch+json" => Self::Patch(PatchType::Merge),
            "application/strategic-merge-patch+json" => Self::Patch(PatchType::Strategic),
            "application/apply-patch+yaml" => Self::Patch(PatchType::Apply),
            _ => return None,
        })
    }
}

/// Decodes by content type; an unknown one is 415, a malformed body 400.
///
/// The error's text is the bare decoder's, as the real server gives it for `DeleteOptions`; see [`decode_object`].
pub fn decode(content_type: &str, body: &[u8]) -> ApiResult<Decoded> {
    match Format::of(content_type) {
        Some(Format::Patch(patch)) => decode_as_patch(patch, body),
        Some(format) => decode_as(format, body, "").map_err(ApiError::bad_request),
        None => Err(unsupported()),
    }
}

/// Decodes the body of a POST or PUT: an object that should be of this kind.
pub fn decode_object(kind: &str, content_type: &str, body: &[u8]) -> ApiResult<Decoded> {
    let format = match Format::of(content_type) {
        Some(Format::Patch(_)) | None => return Err(unsupported()),
        Some(format) => format,
    };
    decode_as(format, body, kind).map_err(|cause| {
        let shown = summary(body);
        let message =
            format!("the object provided is unrecognized (must be of type {kind}): {cause} ({shown})");
        ApiError::bad_request(message)
    })
}

/// Decodes the body of a PATCH.
pub fn decode_patch(content_type: &str, body: &[u8]) -> ApiResult<(PatchType, Decoded)> {
    let Some(Format::Patch(patch)) = Format::of(content_type) else {
        let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        error.details = Some(Box::new(Details::default()));
        return Err(error);
    };
    Ok((patch, decode_as_patch(patch, body)?))
}

fn unsupported() -> ApiError {
    ApiError::unsupported_media_type(
        "application/json, application/yaml, application/vnd.kubernetes.protobuf",
    )
}

/// An object, or the text of what is wrong. `kind` stands in where a protobuf body does not say what it is.
fn decode_as(format: Format, body: &[u8], kind: &str) -> Result<Decoded, String> {
    let mut decoded = match format {
        Format::Protobuf => {
            return Ok(Decoded { value: protobuf::decode(body, kind)?, duplicates: Vec::new() });
        }
        Format::Yaml => yaml::decode(body)?,
        _ => json::decode(body)
            .map_err(|cause| format!("couldn't get version/kind; json parse error: {cause}"))?,
    };
    let mismatch = |value: &Value, into: &str| {
        let found = json_type(value);
        Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into {into}"
        ))
    };
    match &decoded.value {
        Value::Null => decoded.value = Value::Object(Map::new()),
        Value::Object(object) => {
            for name in ["apiVersion", "kind"] {
                if let Some(value) = object.get(name).filter(|value| !value.is_string() && !value.is_null()) {
                    return mismatch(value, &format!("Go struct field .{name} of type string"));
                }
            }
        }
        other => {
            let target = r#"Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            return mismatch(other, target);
        }
    }
    Ok(decoded)
}

/// A JSON patch is checked where it is applied; the others must be objects.
fn decode_as_patch(patch: PatchType, body: &[u8]) -> ApiResult<Decoded> {
    let (decoded, prefix) = match patch {
        PatchType::Apply => (yaml::decode(body), "error decoding YAML: "),
        PatchType::Strategic => (json::decode(body), ""),
        PatchType::Json | PatchType::Merge => (json::decode(body), "error decoding patch: "),
    };
    let refuse = |cause: String| ApiError::bad_request(format!("{prefix}{cause}"));
    let decoded = decoded.map_err(refuse)?;
    match (&decoded.value, patch) {
        (_, PatchType::Json) | (Value::Object(_), _) | (Value::Null, PatchType::Strategic) => Ok(decoded),
        (Value::Null, PatchType::Merge) => Err(ApiError::bad_request("Invalid JSON Patch")),
        (Value::Null, PatchType::Apply) => Ok(Decoded { value: Value::Object(Map::new()), ..decoded }),
        (other, _) => {
            let found = json_type(other);
            Err(refuse(format!(
                "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

/// The beginning of a body, for messages: JSON as it is, anything else in hexadecimal.
fn summary(body: &[u8]) -> String {
    let start = &body[..body.len().min(30)];
    let text = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
    };
    let more = if body.len() > start.len() { " ..." } else { "" };
    text + more
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
