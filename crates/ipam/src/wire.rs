//! One connection to the API server, for a process that lives for a few milliseconds and does one thing at a time.
//!
//! A client that pools, retries and watches would cost more to build than the one request that it is for. Where the node has a keeper
//! it leads there, else to the API server, opened when the first request is made. Every request has a deadline. It never retries:
//! whoever asks knows what a lost answer means.

mod access;
mod http;

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use access::Access;
pub use access::AccessError;
use http::{Request, Stream};

use crate::keeper;

const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(10);

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
        source: io::Error,
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
        source: io::Error,
    },
}

/// An answer of the API server.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

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
    stream: Box<dyn Stream>,
    /// Who is there.
    server: String,
    /// How it is addressed.
    host: String,
    /// What comes before every path.
    prefix: String,
    token: Option<String>,
}

impl Wire {
    /// The keeper beside a kubeconfig, or else its server; neither is asked anything yet.
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self, WireError> {
        let keeper = kubeconfig.with_file_name(keeper::SOCKET);
        if let Ok(line) = through_keeper(&keeper) {
            return Ok(Self { way: Way::Keeper(keeper), line: Some(line) });
        }
        let failed = |source| WireError::Access { path: kubeconfig.to_owned(), source };
        let access = Access::read(kubeconfig).map_err(failed)?;
        Ok(Self { way: Way::Direct(Box::new(access)), line: None })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Reply, WireError> {
        self.send("GET", path, &[])
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Result<Reply, WireError> {
        self.send("POST", path, body.to_string().as_bytes())
    }

    pub(crate) fn put(&mut self, path: &str, body: &Value) -> Result<Reply, WireError> {
        self.send("PUT", path, body.to_string().as_bytes())
    }

    pub(crate) fn delete(&mut self, path: &str, options: &Value) -> Result<Reply, WireError> {
        self.send("DELETE", path, options.to_string().as_bytes())
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Reply, WireError> {
        let mut line = match self.line.take() {
            Some(line) => line,
            None => self.connect()?,
        };
        let path = format!("{}{path}", line.prefix);
        let request = Request { method, host: &line.host, path: &path, token: line.token.as_deref(), body };
        let answer = request.exchange(&mut *line.stream, Instant::now() + ANSWER);
        let answer = answer.map_err(|source| {
            let server = line.server.clone();
            if is_late(&source) {
                WireError::Late { server, after: ANSWER }
            } else {
                WireError::Broken { server, source }
            }
        })?;
        // Only now: an answer that is late must not be taken for that of the next request.
        self.line = Some(line).filter(|_| !answer.last);
        Ok(Reply { status: answer.status, body: answer.body })
    }

    fn connect(&self) -> Result<Line, WireError> {
        match &self.way {
            Way::Keeper(socket) => through_keeper(socket),
            Way::Direct(access) => straight(access),
        }
    }
}

fn through_keeper(socket: &Path) -> Result<Line, WireError> {
    let server = socket.display().to_string();
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Line {
            stream: Box::new(stream),
            server,
            host: "keeper".to_owned(),
            prefix: String::new(),
            token: None,
        }),
        Err(source) => Err(WireError::Connect { server, source }),
    }
}

fn straight(access: &Access) -> Result<Line, WireError> {
    let Access { authority: server, prefix, token, .. } = access;
    let stream = secured(access, Instant::now() + CONNECT).map_err(|source| {
        let server = server.clone();
        if is_late(&source) {
            WireError::Late { server, after: CONNECT }
        } else {
            WireError::Connect { server, source }
        }
    })?;
    Ok(Line {
        stream: Box::new(stream),
        server: server.clone(),
        host: server.clone(),
        prefix: prefix.clone(),
        token: token.clone(),
    })
}

/// Until the other side has shown who it is.
fn secured(access: &Access, deadline: Instant) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    for address in access.authority.to_socket_addrs()? {
        let mut tcp = match TcpStream::connect_timeout(&address, left()) {
            Ok(tcp) => tcp,
            Err(cause) => {
                failure = cause;
                continue;
            }
        };
        tcp.set_nodelay(true)?;
        tcp.wait_at_most(left())?;
        let tls = ClientConnection::new(Arc::clone(&access.tls), access.name.clone());
        let mut tls = tls.map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp)?;
        }
        return Ok(StreamOwned::new(tls, tcp));
    }
    Err(failure)
}

fn is_late(cause: &io::Error) -> bool {
    // The first is what a socket says whose time is over.
    matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Stream for UnixStream {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

impl Stream for TcpStream {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time)).and_then(|()| self.set_write_timeout(Some(time)))
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        self.sock.wait_at_most(time)
    }
}
