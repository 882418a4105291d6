//! One connection to the API server, for a process that lives for a few milliseconds.
//!
//! A client that pools, retries and watches would cost more to build than the one request that it is for. Where the node has a keeper
//! it leads there, else to the API server, opened when the first request is made. Every request has a deadline. It never retries:
//! whoever asks knows what a lost answer means.

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
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use access::Access;
pub use access::AccessError;

use crate::keeper;

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
    way: Way,
    line: Option<Line>,
}

enum Way {
    Keeper(PathBuf),
    Direct(Box<Access>),
}

/// An open connection, and what is said with every request.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// Who is there.
    server: String,
    /// What comes before every path.
    prefix: String,
    token: Option<String>,
}

impl Wire {
    /// The keeper beside a kubeconfig, or else its server; neither is asked anything yet.
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self, WireError> {
        let keeper = kubeconfig.with_file_name(keeper::SOCKET);
        if let Ok(line) = through_keeper(&keeper).await {
            return Ok(Self { way: Way::Keeper(keeper), line: Some(line) });
        }
        let failed = |source| WireError::Access { path: kubeconfig.to_owned(), source };
        let access = Access::read(kubeconfig).map_err(failed)?;
        Ok(Self { way: Way::Direct(Box::new(access)), line: None })
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
        let mut line = match self.line.take() {
            Some(line) => line,
            None => self.connect().await?,
        };
        let answer = timeout(ANSWER, line.exchange(method, path, body)).await;
        let late = |_| WireError::Late { server: line.server.clone(), after: ANSWER };
        let reply = answer.map_err(late)??;
        // Only now: an answer that is late must not be taken for that of the next request.
        self.line = Some(line);
        Ok(reply)
    }

    async fn connect(&self) -> Result<Line, WireError> {
        match &self.way {
            Way::Keeper(socket) => through_keeper(socket).await,
            Way::Direct(access) => straight(access).await,
        }
    }
}

async fn through_keeper(socket: &Path) -> Result<Line, WireError> {
    let server = socket.display().to_string();
    let failed = |source| WireError::Connect { server: server.clone(), source };
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    let sender = speak(stream, &server).await?;
    Ok(Line { sender, server, prefix: String::new(), token: None })
}

async fn straight(access: &Access) -> Result<Line, WireError> {
    let Access { authority: server, prefix, name, tls, token } = access;
    let failed = |source| WireError::Connect { server: server.clone(), source };
    let connecting = async {
        let tcp = TcpStream::connect(server).await.map_err(failed)?;
        tcp.set_nodelay(true).map_err(failed)?;
        tls.connect(name.clone(), tcp).await.map_err(failed)
    };
    let late = |_| WireError::Late { server: server.clone(), after: CONNECT };
    let stream = timeout(CONNECT, connecting).await.map_err(late)??;
    let sender = speak(stream, server).await?;
    Ok(Line { sender, server: server.clone(), prefix: prefix.clone(), token: token.clone() })
}

/// Begins HTTP on a stream.
async fn speak<S>(stream: S, server: &str) -> Result<SendRequest<Full<Bytes>>, WireError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let broken = |cause: hyper::Error| WireError::Broken { server: server.to_owned(), source: cause.into() };
    let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the runtime; what breaks it, the request is told.
    tokio::spawn(driver);
    Ok(sender)
}

impl Line {
    async fn exchange(&mut self, method: Method, path: &str, body: Bytes) -> Result<Reply, WireError> {
        let Self { sender, server, prefix, token } = self;
        let broken = |source: Box<dyn std::error::Error + Send + Sync>| WireError::Broken {
            server: server.clone(),
            source,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header("host", server.as_str())
            .header("accept", "application/json")
            .header("user-agent", "godwit-ipam");
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|cause| broken(cause.into()))?;
        sender.ready().await.map_err(|cause| broken(cause.into()))?;
        let response = sender.send_request(request).await.map_err(|cause| broken(cause.into()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(broken)?;
        Ok(Reply { status, body: body.to_bytes() })
    }
}
