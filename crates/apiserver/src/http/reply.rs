//! Responses and their bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use serde_json::Value;

use crate::status::ApiError;

pub type ByteStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// A body that is there at once, or comes bit by bit.
pub enum Body {
    Full(Option<Bytes>),
    Stream(ByteStream),
}

impl Body {
    pub fn empty() -> Self {
        Self::Full(None)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|item| item.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Full(bytes) => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}

/// An answer before it is HTTP.
pub struct Reply {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Body,
    pub warnings: Vec<String>,
    pub etag: Option<String>,
    pub retry_after: Option<u32>,
    /// How the connection goes on, when that is in another protocol.
    pub switch: HeaderMap,
}

impl Reply {
    pub fn bytes(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type,
            body: Body::Full(Some(body.into())),
            warnings: Vec::new(),
            etag: None,
            retry_after: None,
            switch: HeaderMap::new(),
        }
    }

    /// A status alone.
    pub fn nothing(status: StatusCode) -> Self {
        Self { body: Body::empty(), ..Self::bytes(status, "", Bytes::new()) }
    }

    /// What follows on this connection is no longer HTTP.
    pub fn switching(headers: HeaderMap) -> Self {
        Self { switch: headers, ..Self::nothing(StatusCode::SWITCHING_PROTOCOLS) }
    }

    pub fn json(status: StatusCode, value: &Value) -> Self {
        Self::bytes(status, "application/json", value.to_string())
    }

    pub fn stream(content_type: &'static str, stream: ByteStream) -> Self {
        Self { body: Body::Stream(stream), ..Self::bytes(StatusCode::OK, content_type, Bytes::new()) }
    }

    pub fn error(error: &ApiError) -> Self {
        let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if *error == ApiError::no_such_resource() {
            return Self::bytes(status, "text/plain; charset=utf-8", format!("{}\n", error.message));
        }
        let mut reply = Self::json(status, &error.to_value());
        reply.retry_after =
            error.details.as_ref().map(|d| d.retry_after_seconds).filter(|seconds| *seconds > 0);
        reply
    }

    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.extend(self.switch);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for warning in &self.warnings {
            if let Ok(value) = HeaderValue::from_str(&warning_text(warning)) {
                headers.append(header::WARNING, value);
            }
        }
        if let Some(value) = self.etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok()) {
            headers.insert(header::ETAG, value);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// `299 - "text"`, with quotes and control characters made safe for a header.
fn warning_text(warning: &str) -> String {
    let mut text = String::from("299 - \"");
    for c in warning.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() || !c.is_ascii() => text.push(' '),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
