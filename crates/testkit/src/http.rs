//! Raw requests: what goes over the wire and what comes back, with nothing decoded, retried or defaulted on the way.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// The fieldManager of a request that names none is the User-Agent up to the slash.
const USER_AGENT: &str = "testkit/1";

/// A client that sends requests as they are, with one identity.
#[derive(Clone)]
pub struct Http {
    client: Client,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Http {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<http::Response<Body>, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent")) {
            request = request.header("user-agent", USER_AGENT);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body)).expect("a well-formed request");
        self.client.send(request).await
    }

    /// Sends a request; an error is one of transport, never an HTTP status.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Reply, kube::Error> {
        let response = self.open(method, path, headers, body.into()).await?;
        let (head, body) = response.into_parts();
        Ok(Reply { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let shown = method.clone();
        self.try_send(method, path, headers, body)
            .await
            .unwrap_or_else(|error| panic!("{shown} {path} got no answer: {error}"))
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.json(Method::POST, path, "application/json", body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Reply {
        self.json(Method::PUT, path, "application/json", body).await
    }

    /// PATCH of a `merge`, `json`, `strategic` or `apply` kind.
    pub async fn patch(&self, kind: &str, path: &str, body: &Value) -> Reply {
        self.json(Method::PATCH, path, patch_type(kind), body).await
    }

    async fn json(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Reply {
        let headers = [("content-type", content_type)];
        self.send(method, path, &headers, body.to_string()).await
    }

    /// Opens a watch; returns when the headers of the answer are there.
    pub async fn watch(&self, path: &str) -> Watch {
        self.try_watch(path, &[]).await.unwrap_or_else(|error| panic!("watch {path} got no answer: {error}"))
    }

    pub async fn try_watch(&self, path: &str, headers: &[(&str, &str)]) -> Result<Watch, kube::Error> {
        let response = self.open(Method::GET, path, headers, Bytes::new()).await?;
        let (head, body) = response.into_parts();
        Ok(Watch {
            status: head.status,
            headers: head.headers,
            body: Box::pin(body),
            pending: BytesMut::new(),
        })
    }
}

/// The media type of a kind of patch.
fn patch_type(kind: &str) -> &str {
    match kind {
        "merge" => "application/merge-patch+json",
        "json" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        other => other,
    }
}

impl Reply {
    /// The body as JSON; other text becomes a string.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.body).into_owned()))
    }

    /// The JSON body of an answer that must be a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert!(self.status.is_success(), "{self}");
        self.json()
    }

    /// The `Status` of an answer that must be a refusal with this code and reason.
    #[track_caller]
    pub fn refused(&self, code: u16, reason: &str) -> Value {
        let body = self.json();
        assert_eq!(
            (self.status.as_u16(), body["reason"].as_str().unwrap_or_default()),
            (code, reason),
            "{self}"
        );
        body
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// An open watch: one JSON value a line.
pub struct Watch {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Pin<Box<Body>>,
    pending: BytesMut,
}

impl Watch {
    /// The next event, or `None` at the end of the stream, however it ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line = self.pending.split_to(end + 1);
                return Some(serde_json::from_slice(&line).expect("a watch sends one JSON value a line"));
            }
            let frame = futures::future::poll_fn(|cx| self.body.as_mut().poll_frame(cx)).await;
            match frame {
                Some(Ok(frame)) => self.pending.extend_from_slice(frame.data_ref()?),
                Some(Err(_)) => return None,
                // An answer that is no watch, such as a refusal, need not end its line.
                None if self.pending.is_empty() => return None,
                None => return serde_json::from_slice(&self.pending.split()).ok(),
            }
        }
    }

    /// The next event, which must come within ten seconds.
    #[track_caller]
    pub fn soon(&mut self) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            match tokio::time::timeout(Duration::from_secs(10), self.next()).await {
                Ok(Some(event)) => event,
                Ok(None) => panic!("{caller}: the watch ended"),
                Err(elapsed) => panic!("{caller}: no event within 10 s: {elapsed}"),
            }
        }
    }
}
