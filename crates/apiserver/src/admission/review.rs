//! `AdmissionReview` v1: what a hook is told, and what its answer says.
//!
//! Owns the wire form. An answer is taken only whole: one that breaks a rule of the protocol counts as a failed
//! call, not as a denial.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Review;
use crate::discovery::{ForeignKind, subresources};
use crate::kinds::Kind;
use crate::object::strings;
use crate::status::{ApiError, ApiResult, Cause, Details};

pub const API_VERSION: &str = "admission.k8s.io/v1";

/// Reasons that an error may carry; a hook's own inventions stay in the message.
const REASONS: [&str; 18] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
];

const CAUSES: [&str; 7] = [
    "FieldValueNotFound",
    "FieldValueRequired",
    "FieldValueDuplicate",
    "FieldValueInvalid",
    "FieldValueNotSupported",
    "FieldValueForbidden",
    "FieldValueTooLong",
];

/// The request as a hook that knows `kind` is told it, without the objects: this much also match conditions see.
pub fn request(review: &Review<'_>, kind: &Kind) -> Value {
    let spoken = foreign(review);
    let gvk = |kind: &Kind| match spoken {
        Some(f) => json!({"group": f.group, "version": f.version, "kind": f.kind}),
        None => json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
    };
    let gvr = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    let mut request = json!({
        "kind": gvk(kind), "resource": gvr(kind),
        "requestKind": gvk(review.kind), "requestResource": gvr(review.kind),
        "operation": review.operation, "userInfo": review.user,
        "dryRun": review.dry_run, "options": review.options,
    });
    let optional = [
        ("subResource", review.subresource),
        ("requestSubResource", review.subresource),
        ("name", review.name),
        ("namespace", review.shown_namespace()),
    ];
    for (key, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
        request[key] = json!(text);
    }
    request
}

/// The kind that the request's subresource speaks, if it is another.
pub fn foreign(review: &Review<'_>) -> Option<ForeignKind> {
    subresources(review.kind).into_iter().find(|subresource| subresource.name == review.subresource)?.speaks
}

/// A hook's answer.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub warnings: Vec<String>,
    /// A JSON patch with at least one operation.
    pub patch: Option<Value>,
    /// The `status` of a refusal.
    denied: Option<Value>,
}

impl Answer {
    /// Reads the `AdmissionReview` that came back. The error says which rule of the protocol it breaks.
    pub fn read(review: &Value, uid: &str, mutating: bool) -> Result<Self, String> {
        let invalid = |cause: String| Err(format!("received invalid webhook response: {cause}"));
        let response = &review["response"];
        if response.is_null() {
            return invalid("webhook response was absent".into());
        }
        let echoed = response["uid"].as_str().unwrap_or_default();
        if echoed != uid {
            return invalid(format!("expected response.uid={uid:?}, got {echoed:?}"));
        }
        let (version, kind) = (&review["apiVersion"], &review["kind"]);
        if version != API_VERSION || kind != "AdmissionReview" {
            let got = [version, kind].map(|text| text.as_str().unwrap_or_default());
            return invalid(format!(
                "expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {}, Kind={}",
                got[0], got[1]
            ));
        }
        let patch = response["patch"].as_str().unwrap_or_default();
        let patch_type = response["patchType"].as_str();
        match (patch, patch_type) {
            ("", None) => {}
            (_, None) if mutating => {
                return invalid("webhook returned response.patch but not response.patchType".into());
            }
            ("", Some(_)) if mutating => {
                return invalid("webhook returned response.patchType but not response.patch".into());
            }
            (_, Some("JSONPatch")) if mutating => {}
            (_, Some(other)) if mutating => return Err(format!("unsupported patch type {other:?}")),
            ("", _) => return invalid("validating webhook may not return response.patchType".into()),
            _ => return invalid("validating webhook may not return response.patch".into()),
        }
        Ok(Self {
            warnings: strings(&response["warnings"]).into_iter().map(str::to_owned).collect(),
            patch: decode_patch(patch)?,
            denied: (response["allowed"] != true).then(|| response["status"].clone()),
        })
    }

    /// The answer if it allows the request, else the error that the client gets.
    pub fn or_denial(self, webhook: &str) -> ApiResult<Self> {
        match &self.denied {
            None => Ok(self),
            Some(status) => Err(denial(webhook, status)),
        }
    }
}

fn decode_patch(text: &str) -> Result<Option<Value>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let undecodable =
        |error: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {error}");
    let bytes = STANDARD.decode(text).map_err(|error| undecodable(&error))?;
    let patch: Vec<Value> = serde_json::from_slice(&bytes).map_err(|error| undecodable(&error))?;
    Ok((!patch.is_empty()).then_some(Value::Array(patch)))
}

/// A refusal is always an error, whatever code and status the hook gave it.
fn denial(webhook: &str, status: &Value) -> ApiError {
    let text = |key: &str| status[key].as_str().unwrap_or_default();
    let explanation = match (text("message"), text("reason")) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let mut error = ApiError::new(
        code.filter(|code| (400..600).contains(code)).unwrap_or(400),
        known(&REASONS, text("reason")),
        format!("admission webhook {webhook:?} denied the request{explanation}"),
    );
    let details = &status["details"];
    if details.is_object() {
        let text = |key: &str| details[key].as_str().unwrap_or_default().to_owned();
        error.details = Some(Box::new(Details {
            name: text("name"),
            group: text("group"),
            kind: text("kind"),
            uid: text("uid"),
            causes: details["causes"].as_array().into_iter().flatten().map(cause).collect(),
            retry_after_seconds: details["retryAfterSeconds"]
                .as_u64()
                .and_then(|seconds| u32::try_from(seconds).ok())
                .unwrap_or_default(),
        }));
    }
    error
}

fn cause(cause: &Value) -> Cause {
    let text = |key: &str| cause[key].as_str().unwrap_or_default();
    Cause {
        reason: known(&CAUSES, text("reason")),
        message: text("message").to_owned(),
        field: text("field").to_owned(),
    }
}

fn known(all: &[&'static str], text: &str) -> &'static str {
    all.iter().find(|known| **known == text).copied().unwrap_or("")
}
