//! Calling a webhook over HTTPS.
//!
//! Owns where a hook is and whether to believe it: the server must show a certificate of the hook's own
//! `caBundle` for the name in its URL, or for `<service>.<namespace>.svc`. Each call is one connection, which is
//! gone with the call, also when the time is up; TLS sessions are resumed. Must never follow a redirect.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{ServiceRef, ServiceResolver, trust};

const MAX_ANSWER: usize = 3 * 1024 * 1024;
/// Trust settings that are kept; more hooks than this take turns.
const MAX_KEPT: usize = 64;

/// Why a hook gave no answer, worded as the real server words it.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{0}")]
    Configuration(String),
    #[error("Post {url:?}: {cause}")]
    Exchange { url: String, cause: String },
    #[error("{}", describe(*.0))]
    Status(StatusCode),
    #[error("couldn't get version/kind; json parse error: {0}")]
    Answer(#[source] serde_json::Error),
}

fn describe(status: StatusCode) -> String {
    match status {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".into(),
        status if status.is_server_error() => {
            "an error on the server (\"unknown\") has prevented the request from succeeding".into()
        }
        status => format!("the server responded with the status code {}", status.as_u16()),
    }
}

/// Where to connect, and what to call it.
struct Destination {
    address: Address,
    server_name: ServerName<'static>,
    uri: Uri,
}

enum Address {
    Host(String, u16),
    Resolved(SocketAddr),
    /// The service is not known; its name.
    Missing(String),
}

/// Posts reviews to hooks.
#[derive(Clone)]
pub struct Client {
    resolver: Arc<ServiceResolver>,
    /// By `caBundle`: a session can be resumed only under the settings that began it.
    trust: Arc<Mutex<HashMap<String, Arc<ClientConfig>>>>,
}

impl Client {
    pub fn new(resolver: Arc<ServiceResolver>) -> Self {
        Self { resolver, trust: Arc::default() }
    }

    /// Sends the review to where `client_config` says, and returns what came back.
    pub async fn post(
        &self,
        client_config: &Value,
        timeout: Duration,
        review: &Value,
    ) -> Result<Value, CallError> {
        let destination = self.destination(client_config, timeout).map_err(CallError::Configuration)?;
        let trust = self
            .trust(client_config["caBundle"].as_str().unwrap_or_default())
            .map_err(CallError::Configuration)?;
        let url = destination.uri.to_string();
        let exchange = exchange(destination, trust, review.to_string().into());
        let (status, body) = match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => return Err(CallError::Exchange { url, cause }),
            Err(_) => {
                let cause = "context deadline exceeded".into();
                return Err(CallError::Exchange { url, cause });
            }
        };
        if !status.is_success() {
            return Err(CallError::Status(status));
        }
        serde_json::from_slice(&body).map_err(CallError::Answer)
    }

    fn destination(&self, client_config: &Value, timeout: Duration) -> Result<Destination, String> {
        let query = format!("?timeout={}s", timeout.as_secs());
        let (text, resolved) = if let Some(url) = client_config["url"].as_str() {
            (url.to_owned(), None)
        } else {
            let service = &client_config["service"];
            let text = |key: &str| service[key].as_str().unwrap_or_default();
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            let (namespace, name, port) = (text("namespace"), text("name"), port.unwrap_or(443));
            let address = (self.resolver)(&ServiceRef { namespace, name, port });
            let url =
                format!("https://{name}.{namespace}.svc:{port}/{}", text("path").trim_start_matches('/'));
            let missing = || Address::Missing(name.to_owned());
            (url, Some(address.map_or_else(missing, Address::Resolved)))
        };
        let uri: Uri = format!("{text}{query}")
            .parse()
            .map_err(|error| format!("invalid webhook URL {text:?}: {error}"))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if uri.scheme_str() != Some("https") || host.is_empty() {
            return Err(format!("invalid webhook URL {text:?}: not https://HOST"));
        }
        let server_name = ServerName::try_from(host.clone())
            .map_err(|error| format!("invalid webhook URL {text:?}: {error}"))?;
        let port = uri.port_u16().unwrap_or(443);
        Ok(Destination { address: resolved.unwrap_or(Address::Host(host, port)), server_name, uri })
    }

    fn trust(&self, ca_bundle: &str) -> Result<Arc<ClientConfig>, String> {
        let mut kept = self.trust.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = kept.get(ca_bundle) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(trust::only(ca_bundle)?);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(ca_bundle.to_owned(), Arc::clone(&config));
        Ok(config)
    }
}

/// One request on a connection of its own.
async fn exchange(
    destination: Destination,
    trust: Arc<ClientConfig>,
    body: Bytes,
) -> Result<(StatusCode, Bytes), String> {
    let stream = match &destination.address {
        Address::Host(host, port) => TcpStream::connect((host.as_str(), *port)).await,
        Address::Resolved(address) => TcpStream::connect(address).await,
        Address::Missing(service) => return Err(format!("service {service:?} not found")),
    };
    let stream = stream.map_err(|error| format!("dial tcp: connect: {error}"))?;
    let stream = TlsConnector::from(trust)
        .connect(destination.server_name, stream)
        .await
        .map_err(|error| format!("tls: {error}"))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Ends the connection when this call is over or given up.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let host = destination.uri.authority().map(ToString::to_string);
    let path = destination.uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(header::HOST, host.unwrap_or_default())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
}
