//! Errors as the API speaks them: one `ApiError` becomes one `Status` object on the wire.
//!
//! Messages, reasons and codes are those of the real server, because clients match on them. A schema or
//! metadata violation is a [`FieldError`]; many of them make one `422 Invalid` that names every field.

use std::fmt::{self, Write as _};

use serde_json::{Value, json};

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Box<Details>>,
}

/// What the error is about: the `details` of a `Status`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

/// One cause within `details`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            ..Details::default()
        }));
        self
    }

    fn with_cause(mut self, reason: &'static str, message: impl Into<String>, field: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.causes.push(Cause { reason, message: message.into(), field: field.into() });
        self
    }

    /// Asks the client to come back after some seconds; also sent as the `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} not found", qualified(plural, group));
        Self::new(404, "NotFound", message).about(group, plural, name)
    }

    /// The URL names no group and version that is served here. The one error that is plain text on the wire: clients then say
    /// themselves what they were looking for.
    pub fn no_such_resource() -> Self {
        Self::new(404, "", "404 page not found")
    }

    /// The group and version are built in, and have no such resource.
    pub fn not_served() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).about("", "", "")
    }

    /// The resource is there, and cannot do this.
    pub fn method_not_supported(group: &str, plural: &str, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind {:?}", qualified(plural, group));
        Self::new(405, "MethodNotAllowed", message).about(group, plural, "")
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).about("", "", "")
    }

    /// The client reads none of the formats in which objects are written.
    pub fn no_such_representation() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        Self::new(406, "NotAcceptable", message).about("", "", "")
    }

    /// The client reads the format, but wants something else in it.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Self::new(406, "NotAcceptable", message)
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", qualified(plural, group));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: impl fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(plural, group));
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    /// The object changed since the client read it.
    pub fn stale(group: &str, plural: &str, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    /// Server-side apply met fields of other managers; `conflicts` holds (manager text, field path).
    pub fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let single = conflicts.len() == 1;
        let plural = if single { "" } else { "s" };
        // One manager is named once with its only field inline, or followed by a list of its fields.
        let mut by_manager: Vec<(&str, Vec<&str>)> = Vec::new();
        for (manager, field) in conflicts {
            match by_manager.iter_mut().find(|(known, _)| known == manager) {
                Some((_, fields)) => fields.push(field),
                None => by_manager.push((manager, vec![field])),
            }
        }
        let blocks: Vec<String> = by_manager
            .iter()
            .map(|(manager, fields)| {
                if single {
                    format!("{manager}: {}", fields[0])
                } else {
                    fields.iter().fold(
                        format!("conflicts {}:", manager.trim_start_matches("conflict ")),
                        |mut text, field| {
                            let _ = write!(text, "\n- {field}");
                            text
                        },
                    )
                }
            })
            .collect();
        let message =
            format!("Apply failed with {} conflict{plural}: {}", conflicts.len(), blocks.join("\n"));
        conflicts.iter().fold(Self::new(409, "Conflict", message), |error, (manager, field)| {
            error.with_cause("FieldManagerConflict", manager.clone(), field)
        })
    }

    /// The requested history is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_large() -> Self {
        Self::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    }

    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} {name:?} is forbidden: {why}", qualified(plural, group));
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// Creating in a namespace that is going away.
    pub fn namespace_terminating(group: &str, plural: &str, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Self::forbidden(group, plural, name, why).with_cause(
            "NamespaceTerminating",
            format!("namespace {namespace} is being terminated"),
            "metadata.namespace",
        )
    }

    pub fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let mut message = format!("{} {name:?} is invalid: ", qualified(kind, group));
        // Each is said once, however many checks came upon it.
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for text in errors.iter().map(FieldError::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if let [text] = texts.as_slice() {
            message.push_str(text);
        } else {
            let _ = write!(message, "[{}]", texts.join(", "));
        }
        if errors.is_empty() {
            message = format!("{} {name:?} is invalid", qualified(kind, group));
        }
        let mut error = Self::new(422, "Invalid", message).about(group, kind, name);
        for e in errors {
            error = error.with_cause(e.kind.reason(), e.body(), &e.field);
        }
        error
    }

    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(seconds)
    }

    pub fn internal(cause: impl fmt::Display) -> Self {
        let message = format!("Internal error occurred: {cause}");
        Self::new(500, "InternalError", message).with_cause("", cause.to_string(), "")
    }

    /// A resourceVersion from the future: the client has seen another server's history.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).retry_after(1);
        error = error.with_cause("ResourceVersionTooLarge", "Too large resource version", "");
        error
    }

    /// The `Status` object of this error.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }
}

impl Details {
    pub fn to_value(&self) -> Value {
        let mut out = serde_json::Map::new();
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            out.insert("retryAfterSeconds".into(), json!(self.retry_after_seconds));
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, text) in [("reason", self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        Value::Object(out)
    }
}

/// `plural.group`, or `plural` alone for the core group.
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// One field of an object that breaks a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub field: String,
    /// The offending value as the message shows it (already formatted); empty where none is shown.
    pub value: String,
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
    NotFound,
}

impl FieldErrorKind {
    /// The cause's reason in a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

impl FieldError {
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::of(FieldErrorKind::Required, field, String::new(), detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::of(FieldErrorKind::Invalid, field, show(value), detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::of(FieldErrorKind::Forbidden, field, String::new(), detail)
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::of(FieldErrorKind::Duplicate, field, show(value), "")
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        Self::of(FieldErrorKind::NotSupported, field, show(value), detail)
    }

    pub fn of(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: String,
        detail: impl Into<String>,
    ) -> Self {
        Self { kind, field: field.into(), value, detail: detail.into() }
    }

    /// The message without the field.
    fn body(&self) -> String {
        let head = match self.kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::NotFound => "Not found",
        };
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong
        );
        let value = if shows_value { self.value.as_str() } else { "" };
        [head, value, &self.detail].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A value as the real server prints it inside a message.
pub fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}
