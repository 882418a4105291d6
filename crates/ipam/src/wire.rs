//! One connection to the API server, for a process that lives for a few milliseconds.
//!
//! A client that pools, retries and watches would cost more to build than the one request that it is for. It is opened when
//! the first request is made, and every request has a deadline. It never retries: whoever asks knows what a lost answer means.

mod access;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use access::Access;
pub use access::AccessError;

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(10);
/// A page of 500 addresses is a few hundred kilobytes.
const ANSWER_MAX: usize = 16 << 20;

/// Why the API server gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The kubeconfig does not say how to reach it.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Access {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: AccessError,
    },
    /// It cannot be reached.
    #[error("the API server at {server} cannot be reached")]
    Connect {
        /// Where it should be.
        server: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It took too long.
    #[error("the API server at {server} has not answered for {} s", after.as_secs())]
    Late {
        /// Where it is.
        server: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke.
    #[error("the connection to the API server at {server} broke")]
    Broken {
        /// Where it is.
        server: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// An answer of the API server.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Reply {
    /// What the server says went wrong.
    pub(crate) fn message(&self) -> String {
        #[derive(Deserialize)]
        struct Status {
            message: String,
        }
        serde_json::from_slice(&self.body).map_or_else(
            |_| String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned(),
            |status: Status| status.message,
        )
    }
}

/// The API server.
pub(crate) struct Wire {
    access: Access,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Wire {
    /// The server of a kubeconfig; it is not asked anything yet.
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self, WireError> {
        let failed = |source| WireError::Access { path: kubeconfig.to_owned(), source };
        Ok(Self { access: Access::read(kubeconfig).map_err(failed)?, sender: None })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Reply, WireError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Reply, WireError> {
        self.send(Method::POST, path, body.to_string().into()).await
    }

    pub(crate) async fn put(&mut self, path: &str, body: &Value) -> Result<Reply, WireError> {
        self.send(Method::PUT, path, body.to_string().into()).await
    }

    pub(crate) async fn delete(&mut self, path: &str, options: &Value) -> Result<Reply, WireError> {
        self.send(Method::DELETE, path, options.to_string().into()).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Reply, WireError> {
        let server = self.access.authority.clone();
        if let Ok(answer) = timeout(ANSWER, self.exchange(method, path, body)).await {
            return answer;
        }
        // The answer may still come; nobody may take it for that of the next request.
        self.sender = None;
        Err(WireError::Late { server, after: ANSWER })
    }

    async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<Reply, WireError> {
        let server = self.access.authority.clone();
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| WireError::Broken {
            server: server.clone(),
            source,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.access.prefix))
            .header("host", &server)
            .header("accept", "application/json")
            .header("user-agent", "godwit-ipam");
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = &self.access.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|cause| broken(cause.into()))?;
        let mut sender = match self.sender.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await.map_err(|cause| broken(cause.into()))?;
        let response = sender.send_request(request).await.map_err(|cause| broken(cause.into()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(broken)?;
        self.sender = Some(sender);
        Ok(Reply { status, body: body.to_bytes() })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, WireError> {
        let server = self.access.authority.clone();
        let failed = |source| WireError::Connect { server: server.clone(), source };
        let connecting = async {
            let tcp = TcpStream::connect(&server).await.map_err(failed)?;
            tcp.set_nodelay(true).map_err(failed)?;
            self.access.tls.connect(self.access.name.clone(), tcp).await.map_err(failed)
        };
        let late = |_| WireError::Late { server: server.clone(), after: CONNECT };
        let stream = timeout(CONNECT, connecting).await.map_err(late)??;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, driver) =
            shaken.map_err(|cause| WireError::Broken { server: server.clone(), source: cause.into() })?;
        // It ends with the runtime; what breaks it, the request is told.
        tokio::spawn(driver);
        Ok(sender)
    }
}
