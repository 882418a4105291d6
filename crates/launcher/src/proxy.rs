//! The launcher's side of the CNI proxy: one request, one answer, one connection each.
//!
//! A handler that is being replaced is away for a moment: a connection that is refused is tried again until the deadline. A
//! request that was sent is not repeated here; all requests may be repeated by whoever asked.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};
use wire::{DecodeError, EncodeError, Lines, ProxyRequest, ProxyResponse, Vnic, VnicName};

const RETRY: Duration = Duration::from_millis(200);

/// The handler did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("talking to the handler at {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the handler at {} does not answer within {} s", path.display(), after.as_secs())]
    Deadline { path: PathBuf, after: Duration },
    #[error("the handler's answer cannot be read")]
    Answer(#[source] DecodeError),
    #[error("the request cannot be sent")]
    Request(#[source] EncodeError),
    #[error("the handler refused: {error}")]
    Refused { error: String },
    #[error("the handler's answer does not fit the question about vNIC {vnic}")]
    Unfitting { vnic: VnicName },
}

/// The handler, as a launcher reaches it.
#[derive(Clone, Debug)]
pub struct Proxy {
    path: PathBuf,
}

impl Proxy {
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Attaches a vNIC to its network.
    pub async fn add(&self, vnic: &VnicName, within: Duration) -> Result<Vnic, ProxyError> {
        match self.ask(&ProxyRequest::Add { vnic: vnic.clone() }, within).await? {
            ProxyResponse::Added { vnic: added } if added.name == *vnic => Ok(*added),
            _ => Err(ProxyError::Unfitting { vnic: vnic.clone() }),
        }
    }

    /// Detaches a vNIC.
    pub async fn del(&self, vnic: &VnicName, within: Duration) -> Result<(), ProxyError> {
        match self.ask(&ProxyRequest::Del { vnic: vnic.clone() }, within).await? {
            ProxyResponse::Deleted { vnic: deleted } if deleted == *vnic => Ok(()),
            _ => Err(ProxyError::Unfitting { vnic: vnic.clone() }),
        }
    }

    async fn ask(&self, request: &ProxyRequest, within: Duration) -> Result<ProxyResponse, ProxyError> {
        let line = wire::encode(request).map_err(ProxyError::Request)?;
        let deadline = Instant::now() + within;
        let late = || ProxyError::Deadline { path: self.path.clone(), after: within };
        let mut stream = timeout_at(deadline, self.connect()).await.map_err(|_| late())??;
        match timeout_at(deadline, self.exchange(&mut stream, &line)).await.map_err(|_| late())?? {
            ProxyResponse::Failed { error } => Err(ProxyError::Refused { error }),
            response => Ok(response),
        }
    }

    async fn connect(&self) -> Result<UnixStream, ProxyError> {
        loop {
            match UnixStream::connect(&self.path).await {
                Ok(stream) => return Ok(stream),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
                {
                    sleep(RETRY).await;
                }
                Err(source) => return Err(self.failed(source)),
            }
        }
    }

    async fn exchange(&self, stream: &mut UnixStream, line: &[u8]) -> Result<ProxyResponse, ProxyError> {
        stream.write_all(line).await.map_err(|source| self.failed(source))?;
        let (mut lines, mut buffer) = (Lines::new(), vec![0; 8192]);
        loop {
            if let Some(response) = lines.next() {
                return response.map_err(ProxyError::Answer);
            }
            match stream.read(&mut buffer).await.map_err(|source| self.failed(source))? {
                0 => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                count => lines.push(&buffer[..count]),
            }
        }
    }

    fn failed(&self, source: io::Error) -> ProxyError {
        ProxyError::Io { path: self.path.clone(), source }
    }
}
