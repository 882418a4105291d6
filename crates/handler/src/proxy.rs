//! The CNI proxy: a launcher has its vNICs attached by us, and can ask for nothing else.
//!
//! ```text
//!  launcher ──cni.sock──► is it of the pod? ──► is it a request? ──► its turn ──► attachments
//!               │ no: closed                │ no: an answer, closed
//! ```
//!
//! A socket belongs to one pod. Who connects must be in that pod's network namespace, which is looked at for every
//! connection. A request names a vNIC; which network, which plugin, which namespace and which interface follows from
//! the pod and the instance. One request at a time for a pod; a request that began runs to its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cni::NamespaceId;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;
use wire::{LINE_LIMIT, ProxyRequest, ProxyResponse};

use crate::attachments::{self, Attachments, PodName};
use crate::error::chain;
use crate::place::{PlaceError, Places, Private, check_peer};
use crate::pods::View;
use crate::vnics::{self, PlanError};

/// Connections of one pod at a time. A launcher needs one.
const CONNECTIONS: usize = 8;
/// How long a request may take to arrive once it has begun, and an answer to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the proxy of a pod cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Its namespace.
    #[error("the network namespace {} of the pod", path.display())]
    Namespace {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its socket.
    #[error("listening on the pod's {}", wire::CNI_SOCKET)]
    Listen(#[source] io::Error),
}

/// Why a request is not obeyed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the instance of this pod is not known yet; try again")]
    NoInstance,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Attachments(#[from] attachments::Error),
}

/// What was turned away, over all pods.
#[derive(Debug, Default)]
pub struct Turned {
    /// Connections of processes that are not of the pod.
    pub strangers: AtomicU64,
    /// Connections beyond the number that a pod may have.
    pub crowd: AtomicU64,
    /// Lines that are no request.
    pub malformed: AtomicU64,
}

/// The proxy of one pod.
#[derive(Debug)]
pub struct Proxy {
    pod: PodName,
    namespace: PathBuf,
    id: NamespaceId,
    attachments: Attachments,
    view: watch::Receiver<View>,
    turned: Arc<Turned>,
    connections: Arc<Semaphore>,
    turn: Mutex<()>,
}

impl Proxy {
    /// Listens for the launcher of a pod. What an earlier handler left at that place is removed.
    pub fn open(
        places: &Places,
        pod: &PodName,
        attachments: &Attachments,
        view: watch::Receiver<View>,
        turned: &Arc<Turned>,
    ) -> Result<(Arc<Self>, UnixListener), OpenError> {
        let namespace = places.namespace(&pod.uid)?;
        let id = NamespaceId::of(&namespace)
            .map_err(|source| OpenError::Namespace { path: namespace.clone(), source })?;
        let listener = listen(&places.private(&pod.uid)?).map_err(OpenError::Listen)?;
        let proxy = Self {
            pod: pod.clone(),
            namespace,
            id,
            attachments: attachments.clone(),
            view,
            turned: Arc::clone(turned),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            turn: Mutex::new(()),
        };
        Ok((Arc::new(proxy), listener))
    }

    /// Serves until it is dropped. Requests that began go on.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            let (stream, _) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(cause) => {
                    // Too many open files, or a connection that was gone before we came.
                    tracing::warn!(pod = self.pod.name, %cause, "a connection to the CNI proxy failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let peer = stream.peer_cred().map_err(|_| PlaceError::Invisible);
            if let Err(cause) = peer.and_then(|peer| check_peer(&peer, self.id)) {
                self.turned.strangers.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    pod = self.pod.name,
                    cause = chain(&cause),
                    "a stranger asked the CNI proxy and was turned away"
                );
                let error = format!("refused: {}", chain(&cause));
                tokio::spawn(async move { say(stream, &ProxyResponse::Failed { error }).await });
                continue;
            }
            let Ok(place) = Arc::clone(&self.connections).try_acquire_owned() else {
                self.turned.crowd.fetch_add(1, Ordering::Relaxed);
                let error = format!("refused: the pod has {CONNECTIONS} connections already");
                tokio::spawn(async move { say(stream, &ProxyResponse::Failed { error }).await });
                continue;
            };
            let proxy = Arc::clone(&self);
            tokio::spawn(async move {
                proxy.converse(stream).await;
                drop(place);
            });
        }
    }

    /// Answers requests until the other side goes, or sends what is none.
    async fn converse(&self, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let request = match next(&mut stream).await {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(error) => {
                    self.turned.malformed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(pod = self.pod.name, error, "the CNI proxy was sent what is no request");
                    say(stream.into_inner(), &ProxyResponse::Failed { error }).await;
                    return;
                }
            };
            let response = {
                let _turn = self.turn.lock().await;
                self.answer(&request).await.unwrap_or_else(|refusal| {
                    let error = chain(&refusal);
                    tracing::warn!(pod = self.pod.name, ?request, error, "a request to the CNI proxy failed");
                    ProxyResponse::Failed { error }
                })
            };
            if !tell(stream.get_mut(), &response).await {
                return;
            }
        }
    }

    async fn answer(&self, request: &ProxyRequest) -> Result<ProxyResponse, Refusal> {
        let plan = |vnic| {
            let instance = self.view.borrow().instance.clone().ok_or(Refusal::NoInstance)?;
            Ok::<_, Refusal>(vnics::planned(&instance, vnic)?)
        };
        Ok(match request {
            ProxyRequest::Add { vnic } => {
                let vnic = self.attachments.add(&self.pod, &self.namespace, &plan(vnic)?).await?;
                tracing::info!(pod = self.pod.name, vnic = %vnic.name, interface = %vnic.interface, "vNIC attached");
                ProxyResponse::Added { vnic: Box::new(vnic) }
            }
            ProxyRequest::Check { vnic } => {
                self.attachments.check(&self.pod, &self.namespace, &plan(vnic)?).await?;
                ProxyResponse::Checked { vnic: vnic.clone() }
            }
            ProxyRequest::Del { vnic } => {
                // By the journal alone: an instance that is gone still has to give back what it had.
                self.attachments.del(&self.pod.uid, vnic).await?;
                tracing::info!(pod = self.pod.name, %vnic, "vNIC detached");
                ProxyResponse::Deleted { vnic: vnic.clone() }
            }
            ProxyRequest::List {} => ProxyResponse::Listed { vnics: self.attachments.list(&self.pod.uid)? },
        })
    }
}

fn listen(private: &Private) -> io::Result<UnixListener> {
    let path = private.path(wire::CNI_SOCKET);
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
        _ => {}
    }
    UnixListener::bind(&path)
}

/// The next request; none: the other side has gone. The error is for the other side.
async fn next(stream: &mut BufReader<UnixStream>) -> Result<Option<ProxyRequest>, String> {
    // It may take as long as it likes to begin one.
    match stream.fill_buf().await {
        Ok([]) | Err(_) => return Ok(None),
        Ok(_) => {}
    }
    let mut line = Vec::new();
    let limit = LINE_LIMIT as u64 + 1;
    let read = timeout(PATIENCE, (&mut *stream).take(limit).read_until(b'\n', &mut line)).await;
    match read {
        Err(_) => return Err(format!("a request must be whole within {} s", PATIENCE.as_secs())),
        Ok(Err(_)) => return Ok(None),
        Ok(Ok(_)) if line.last() != Some(&b'\n') && line.len() <= LINE_LIMIT => {
            return Err("the request ends before its line does".to_owned());
        }
        Ok(Ok(_)) => {}
    }
    wire::decode(&line).map(Some).map_err(|cause| chain(&cause))
}

async fn say(mut stream: UnixStream, response: &ProxyResponse) {
    tell(&mut stream, response).await;
}

/// Says whether it could be told. A launcher that does not listen finds out by asking again.
async fn tell(stream: &mut UnixStream, response: &ProxyResponse) -> bool {
    let failed = |cause: wire::EncodeError| wire::encode(&ProxyResponse::Failed { error: chain(&cause) });
    let Ok(line) = wire::encode(response).or_else(failed) else { return false };
    timeout(PATIENCE, stream.write_all(&line)).await.is_ok_and(|written| written.is_ok())
}
