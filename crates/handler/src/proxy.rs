//! The CNI proxy: a launcher has its vNICs attached by us, and can ask for nothing else.
//!
//! ```text
//!  launcher ──cni.sock──► is it of the pod? ──► is it a request? ──► its turn ──► attachments
//!               │ no: closed                │ no: an answer, closed
//! ```
//!
//! A socket belongs to one pod. Who connects must be in that pod's network namespace, which is looked at for every
//! connection. A request names a vNIC; which network, which plugin, which namespace and which interface follows from
//! the pod and the instance. One request at a time for a pod; a request that began runs to its end. What is said on a
//! connection is in [`dialogue`].

pub mod dialogue;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::kubevirt::VirtualMachineInstance;
use cni::NamespaceId;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use wire::{ProxyResponse, Vnic, VnicName};

use crate::attachments::{self, Attachments, PodName};
use crate::error::chain;
use crate::place::{PlaceError, Places, Private, check_peer};
use crate::pods::View;
use crate::vnics::Planned;
use dialogue::{Desk, converse, tell};

/// Connections of one pod at a time. A launcher needs one.
const CONNECTIONS: usize = 8;

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
                proxy.attend(stream).await;
                drop(place);
            });
        }
    }

    /// Answers requests until the other side goes, or sends what is none.
    async fn attend(&self, mut stream: UnixStream) {
        if let Err(error) = converse(&mut stream, self).await {
            self.turned.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(pod = self.pod.name, error, "the CNI proxy was sent what is no request");
        }
    }
}

impl Desk for Proxy {
    fn instance(&self) -> Option<Arc<VirtualMachineInstance>> {
        self.view.borrow().instance.clone()
    }

    fn turn(&self) -> &Mutex<()> {
        &self.turn
    }

    async fn add(&self, vnic: &Planned) -> Result<Vnic, attachments::Error> {
        let vnic = self.attachments.add(&self.pod, &self.namespace, vnic).await?;
        tracing::info!(pod = self.pod.name, vnic = %vnic.name, interface = %vnic.interface, "vNIC attached");
        Ok(vnic)
    }

    async fn check(&self, vnic: &Planned) -> Result<(), attachments::Error> {
        self.attachments.check(&self.pod, &self.namespace, vnic).await
    }

    async fn del(&self, vnic: &VnicName) -> Result<(), attachments::Error> {
        self.attachments.del(&self.pod.uid, vnic).await?;
        tracing::info!(pod = self.pod.name, %vnic, "vNIC detached");
        Ok(())
    }

    fn list(&self) -> Result<Vec<Vnic>, attachments::Error> {
        self.attachments.list(&self.pod.uid)
    }

    fn refused(&self, request: &wire::ProxyRequest, why: &str) {
        tracing::warn!(pod = self.pod.name, ?request, why, "a request to the CNI proxy failed");
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

async fn say(mut stream: UnixStream, response: &ProxyResponse) {
    tell(&mut stream, response).await;
}
