//! What the API server asks of a node: logs, conversations with containers, and how it is. HTTPS; a caller needs a certificate of
//! the cluster's authority.
//!
//! It reads what the workers publish, and changes nothing of it. What it starts ends with the connection that it is for.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::board::Board;
use crate::error::chain;
use crate::runtime::{ContainerId, Runtime};
use logs::{LogOptions, Reader};
use streams::Asked;

mod channels;
mod conversation;
mod logs;
mod query;
mod streams;

/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(100);
/// How much of a log is its last words.
const LAST_WORDS: usize = 2048;
/// How long a caller may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Where and as whom the agent serves.
#[derive(Clone)]
pub struct Serving {
    pub address: SocketAddr,
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
    /// Who signs the certificates of callers; PEM.
    pub client_ca: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("nothing can listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("the {what} cannot be read")]
    Pem {
        what: &'static str,
        #[source]
        source: tokio_rustls::rustls::pki_types::pem::Error,
    },
    #[error("the agent's TLS set-up is not valid")]
    Tls(#[from] tokio_rustls::rustls::Error),
    #[error("the authority of callers cannot be used")]
    Verifier(#[from] tokio_rustls::rustls::client::VerifierBuilderError),
}

/// Listens, and does not answer yet.
pub struct Server {
    listener: TcpListener,
    tls: TlsAcceptor,
    pub port: u16,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Why something is not done: status and text.
type Refusal = (StatusCode, String);

/// What happens on a connection once it is no longer HTTP's.
type Next = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;

impl Server {
    pub async fn bind(serving: &Serving) -> Result<Self, Error> {
        let address = serving.address;
        let failed = |source| Error::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, tls: TlsAcceptor::from(Arc::new(tls(serving)?)), port })
    }

    /// Answers for as long as it is polled.
    pub async fn run(self, board: Board, runtime: Runtime) {
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(cause) => {
                        // Out of descriptors, most likely: some will be free soon.
                        tracing::warn!(cause = chain(&cause), "a connection cannot be accepted");
                        tokio::time::sleep(FOLLOW).await;
                        continue;
                    }
                },
                Some(_) = connections.join_next() => continue,
            };
            let (tls, board, runtime) = (self.tls.clone(), board.clone(), runtime.clone());
            connections.spawn(async move {
                let stream = match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(cause)) => return tracing::debug!(cause = chain(&cause), "a caller was refused"),
                    Err(_) => return tracing::debug!("a caller took too long to say who it is"),
                };
                let next = Next::default();
                let answer = hyper::service::service_fn(|request| {
                    let (board, runtime, next) = (&board, &runtime, &next);
                    async move { Ok::<_, Infallible>(answer(request, board, runtime, next).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .with_upgrades()
                    .await;
                if let Err(cause) = connection {
                    return tracing::debug!(cause = chain(&cause), "a caller went away");
                }
                let next = next.into_inner().unwrap_or_else(PoisonError::into_inner);
                if let Some(conversation) = next {
                    conversation.await;
                }
            });
        }
    }
}

fn tls(serving: &Serving) -> Result<ServerConfig, Error> {
    let bad = |what| move |source| Error::Pem { what, source };
    let certificates = CertificateDer::pem_slice_iter(serving.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(bad("agent's certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes()).map_err(bad("agent's key"))?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(serving.client_ca.as_bytes()) {
        roots.add(root.map_err(bad("authority of callers"))?)?;
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?)
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

async fn answer(
    mut request: Request<Incoming>,
    board: &Board,
    runtime: &Runtime,
    next: &Next,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if let [what @ ("exec" | "attach"), namespace, pod, container] = parts.as_slice() {
        let asked = (*what, *namespace, *pod, *container);
        return converse(&mut request, &query, board, runtime, asked, next)
            .await
            .unwrap_or_else(|(status, why)| text(status, why));
    }
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n");
    }
    match parts.as_slice() {
        ["healthz"] => text(StatusCode::OK, "ok"),
        ["pods"] => pods(board),
        ["containerLogs", namespace, pod, container] => match LogOptions::parse(&query, Timestamp::now()) {
            Ok(options) => log(board, runtime, (namespace, pod, container), options).await,
            Err(problem) => text(StatusCode::BAD_REQUEST, problem),
        },
        _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
    }
}

/// Begins a conversation with a container. All that can be said against it is said before the protocol changes, and in the same
/// order whatever the protocol: a client that then tries another one is told the same.
async fn converse(
    request: &mut Request<Incoming>,
    query: &str,
    board: &Board,
    runtime: &Runtime,
    (what, namespace, pod, container): (&str, &str, &str, &str),
    next: &Next,
) -> Result<Response<Body>, Refusal> {
    let id = find(board, (namespace, pod, container), false)?;
    let asked = Asked::parse(query).map_err(|problem| (StatusCode::BAD_REQUEST, problem))?;
    let not_running = |cause: crate::runtime::Error| (StatusCode::BAD_REQUEST, chain(&cause));
    runtime.must_run(&id).await.map_err(not_running)?;
    let (response, connection) = conversation::accept(request)?;
    let talk = if what == "exec" { asked.exec(runtime, &id).await } else { asked.attach(runtime, &id).await };
    let conversation = conversation::run(connection, talk?);
    *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(conversation));
    Ok(response)
}

fn pods(board: &Board) -> Response<Body> {
    let pods: Vec<_> = board.all().into_iter().map(|published| published.pod).collect();
    let items: Vec<_> = pods.iter().map(AsRef::as_ref).collect();
    let list = serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    text(StatusCode::OK, list.to_string())
}

/// The latest attempt of a container, or the one before it.
fn find(
    board: &Board,
    (namespace, pod, container): (&str, &str, &str),
    previous: bool,
) -> Result<ContainerId, Refusal> {
    let Some(published) = board.find(namespace, pod) else {
        return Err((StatusCode::NOT_FOUND, format!("pod {namespace}/{pod} is not on this node")));
    };
    if !crate::pod::has_container(&published.pod, container) {
        return Err((StatusCode::NOT_FOUND, format!("pod {pod} has no container {container}")));
    }
    let attempt = published.attempts.get(container).copied();
    let attempt = if previous { attempt.and_then(|attempt| attempt.checked_sub(1)) } else { attempt };
    let Some(attempt) = attempt else {
        let what = if previous { "has not run before" } else { "is waiting to start" };
        return Err((StatusCode::BAD_REQUEST, format!("container {container:?} in pod {pod:?} {what}")));
    };
    let uid = published.pod.metadata.uid.clone().unwrap_or_default();
    Ok(ContainerId { pod: uid, container: container.to_owned(), attempt })
}

async fn log(
    board: &Board,
    runtime: &Runtime,
    (namespace, pod, container): (&str, &str, &str),
    options: LogOptions,
) -> Response<Body> {
    let id = match find(board, (namespace, pod, container), options.previous) {
        Ok(id) => id,
        Err((status, why)) => return text(status, why),
    };
    match LogFile::open(&runtime.log(&id)).await {
        Ok(file) => {
            let (send, mut receive) = mpsc::channel(16);
            tokio::spawn(send_log(file, runtime.clone(), id, options, send));
            let stream = futures::stream::poll_fn(move |context| receive.poll_recv(context));
            let frames = stream.map(|bytes: Bytes| Ok(Frame::data(bytes)));
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        Err(cause) => {
            let problem =
                format!("the log of container {container:?} in pod {pod:?} cannot be read: {cause}");
            text(StatusCode::NOT_FOUND, problem)
        }
    }
}

/// A log that grows, and goes on in a new file when it has grown too much.
struct LogFile {
    path: PathBuf,
    file: tokio::fs::File,
    inode: u64,
    /// What the file before this one holds.
    before: Vec<u8>,
}

impl LogFile {
    async fn open(path: &Path) -> std::io::Result<Self> {
        let mut older = path.as_os_str().to_owned();
        older.push(".1");
        let file = tokio::fs::File::open(path).await?;
        let inode = file.metadata().await?.ino();
        let before = tokio::fs::read(older).await.unwrap_or_default();
        Ok(Self { path: path.to_owned(), file, inode, before })
    }

    /// What came since the last time.
    async fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut content = std::mem::take(&mut self.before);
        // Looked at first: what is written to a file after it was replaced is nothing.
        let replaced = tokio::fs::metadata(&self.path).await.is_ok_and(|now| now.ino() != self.inode);
        self.file.read_to_end(&mut content).await?;
        if replaced {
            self.file = tokio::fs::File::open(&self.path).await?;
            self.inode = self.file.metadata().await?.ino();
            self.file.read_to_end(&mut content).await?;
        }
        Ok(content)
    }
}

/// Sends a log until it ends: at its last byte, or if it is followed, when its container has ended too.
async fn send_log(
    mut file: LogFile,
    runtime: Runtime,
    id: ContainerId,
    options: LogOptions,
    send: mpsc::Sender<Bytes>,
) {
    let mut is_over = !options.follow || options.previous;
    let mut reader = Reader::new(options);
    let mut ended = std::pin::pin!(runtime.wait(&id));
    let mut first = true;
    loop {
        let content = match file.read().await {
            Ok(content) => content,
            Err(cause) => return tracing::warn!(%id, cause = chain(&cause), "a log cannot be read"),
        };
        let given = if std::mem::take(&mut first) { reader.first(&content) } else { reader.next(&content) };
        if !given.is_empty() && send.send(given.into()).await.is_err() {
            return;
        }
        if is_over || reader.is_full() {
            return;
        }
        tokio::select! {
            // Whatever it wrote before its end is still to be read.
            _ = &mut ended => is_over = true,
            () = send.closed() => return,
            () = tokio::time::sleep(FOLLOW) => {}
        }
    }
}

/// The last lines of a log, for one who asks why a container failed.
pub(crate) fn last_words(path: &Path) -> Vec<u8> {
    let content = std::fs::read(path).unwrap_or_default();
    let from = content.len().saturating_sub(LAST_WORDS);
    let options = LogOptions { tail_lines: Some(80), ..LogOptions::default() };
    Reader::new(options).first(content.get(from..).unwrap_or_default())
}
