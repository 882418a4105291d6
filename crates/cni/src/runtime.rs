//! Attaching and detaching: the order of plugins, the journal around them, and who waits for whom.
//!
//! ```text
//!            begin                 all plugins done
//!  nothing ────────► Adding ───────────────────────► Attached
//!     ▲                │ a plugin failed, or we died     │ DEL
//!     │                ▼                                 ▼
//!     └─── plugins undone, in reverse order ◄─────── Detaching
//! ```
//!
//! Never two operations on one interface of one container at once. An operation that began runs to its end, also when
//! nobody waits for its answer any more.

mod chain;
mod gc;

pub use gc::{AttachmentId, Collected, GcMark};

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use tokio::sync::{Mutex, OwnedMutexGuard, RwLock};

use crate::{
    Attachment, AttachmentRequest, CallFailure, Entry, Error, Exec, Journal, JournalError, Key, NamespaceId,
    Network, Operation, Processes, SearchPath,
    call::{Caller, failed},
    config::Extras,
    keyed::Keyed,
};
use chain::AddFailed;

/// How long one call of one plugin may take, unless told otherwise. DHCP servers are slow.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Attaches containers to networks. Clones share everything.
#[derive(Debug)]
pub struct Runtime<E = Processes> {
    inner: Arc<Inner<E>>,
}

impl<E> Clone for Runtime<E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

#[derive(Debug)]
struct Inner<E> {
    caller: Caller<E>,
    journal: Arc<Journal>,
    /// By container and interface.
    attachments: Keyed<(String, String), Mutex<()>>,
    /// By name: read while attaching, written while plugins collect garbage.
    networks: Keyed<String, RwLock<()>>,
}

impl<E: Exec> Runtime<E> {
    /// A runtime with these plugins and this journal.
    pub fn new(exec: E, path: SearchPath, journal: Journal) -> Self {
        Self::with_timeout(exec, path, journal, TIMEOUT)
    }

    /// The same, with this long for one call of one plugin.
    pub fn with_timeout(exec: E, path: SearchPath, journal: Journal, timeout: Duration) -> Self {
        let inner = Inner {
            caller: Caller { exec, path, timeout },
            journal: Arc::new(journal),
            attachments: Keyed::default(),
            networks: Keyed::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What is attached, or is to be undone.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.inner.journal.list()
    }

    /// What is known of this interface of this container.
    pub fn find(&self, container_id: &str, interface: &str) -> Option<Arc<Entry>> {
        self.inner.journal.find(container_id, interface)
    }

    /// Attaches. What is attached already is checked, and its result given again; if it is no longer whole, that is
    /// [`Error::Broken`], and [`Runtime::find`] still has the result.
    pub async fn add(&self, network: &Network, request: &AttachmentRequest) -> Result<Attachment, Error> {
        request.validate()?;
        let (inner, network, request) = (Arc::clone(&self.inner), network.clone(), request.clone());
        to_its_end(async move { inner.add(network, request).await }).await
    }

    /// Detaches what was attached, with the configuration of then. What the journal does not know is detached with the one
    /// that is given: it may be of an earlier life.
    pub async fn del(&self, network: &Network, request: &AttachmentRequest) -> Result<(), Error> {
        request.validate()?;
        let (inner, network, request) = (Arc::clone(&self.inner), network.clone(), request.clone());
        to_its_end(async move { inner.del(&network, &request).await }).await
    }

    /// Detaches what the journal has under this key.
    pub async fn del_journalled(&self, key: &Key) -> Result<(), Error> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        to_its_end(async move {
            let _alone = inner.alone(&key.container_id, &key.interface).await;
            inner.del_entry(&*inner.entry(&key)?).await
        })
        .await
    }

    /// Whether an attachment is still whole, as far as its plugins can tell.
    pub async fn check(&self, key: &Key) -> Result<(), Error> {
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        to_its_end(async move {
            let _alone = inner.alone(&key.container_id, &key.interface).await;
            inner.check(&*inner.entry(&key)?).await
        })
        .await
    }

    /// Whether the network can be attached to: every plugin is there and speaks its version, and says so itself if it can.
    pub async fn status(&self, network: &Network) -> Result<(), Error> {
        let caller = &self.inner.caller;
        let not_ready = |source| Error::Status { network: network.name().to_owned(), source };
        for plugin in network.plugins() {
            let spoken = caller.versions(network, plugin).await.map_err(not_ready)?;
            let wanted = network.version();
            if !spoken.iter().any(|version| version == wanted.as_str()) {
                let failure = CallFailure::Unspoken { spoken: spoken.join(", "), wanted };
                return Err(not_ready(failed(plugin.name(), Operation::Version)(failure)));
            }
            if wanted.has_gc_and_status() {
                let asked = caller.network(Operation::Status, (network, plugin), Extras::default()).await;
                asked.map_err(not_ready)?;
            }
        }
        Ok(())
    }
}

/// Lets it run to its end even if the caller goes away: half a chain of plugins helps nobody.
async fn to_its_end<T: Send + 'static>(
    operation: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(operation).await.unwrap_or_else(|source| Err(Error::Interrupted { source }))
}

impl<E: Exec> Inner<E> {
    async fn alone(&self, container_id: &str, interface: &str) -> OwnedMutexGuard<()> {
        self.attachments.get((container_id.to_owned(), interface.to_owned())).lock_owned().await
    }

    fn entry(&self, key: &Key) -> Result<Arc<Entry>, Error> {
        let entry = self.journal.find(&key.container_id, &key.interface);
        entry
            .filter(|entry| entry.key() == *key)
            .ok_or_else(|| Error::NotAttached { key: Box::new(key.clone()) })
    }

    /// Does something to the journal where waiting for a disk is allowed.
    async fn on_disk<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, Error> {
        let journal = Arc::clone(&self.journal);
        let changed = tokio::task::spawn_blocking(move || change(&journal)).await;
        changed.map_err(|source| Error::Interrupted { source })?.map_err(Error::Journal)
    }

    async fn add(&self, network: Network, request: AttachmentRequest) -> Result<Attachment, Error> {
        let _no_collection = self.networks.get(network.name().to_owned()).read_owned().await;
        let _alone = self.alone(&request.container_id, &request.interface).await;
        let key = Box::new(Key::of(&network, &request));
        if let Some(entry) = self.journal.find(&key.container_id, &key.interface)
            && let Some(attachment) = self.repeat(&entry, &key, &request.namespace).await?
        {
            return Ok(attachment);
        }
        let nothing_done = |source| Error::Add { key: key.clone(), source, rollback: Vec::new() };
        self.caller.find_all(&network, Operation::Add).map_err(nothing_done)?;
        let namespace = namespace_at(&key, &request.namespace)?;
        let begun = Entry::adding(network, request, namespace);
        let entry = self.on_disk(move |journal| journal.begin(begun)).await?;
        match self.add_chain(&entry).await {
            Ok((result, attachment)) => {
                let attached = entry.attached(result.clone(), attachment.clone());
                match self.on_disk(move |journal| journal.replace(attached)).await {
                    Ok(_) => Ok(attachment),
                    Err(Error::Journal(source)) => {
                        let rollback =
                            self.roll_back(&entry, entry.network.plugins().len(), Some(&result)).await;
                        Err(Error::Record { key, source: Box::new(source), rollback })
                    }
                    Err(interrupted) => Err(interrupted),
                }
            }
            Err(AddFailed { source, ran, previous }) => {
                let rollback = self.roll_back(&entry, ran, previous.as_ref()).await;
                Err(Error::Add { key, source, rollback })
            }
        }
    }

    /// What an ADD of something known comes to: its result, or nothing, and it is to be attached anew.
    async fn repeat(&self, known: &Entry, wanted: &Key, at: &Path) -> Result<Option<Attachment>, Error> {
        let key = Box::new(known.key());
        if *key != *wanted {
            return Err(Error::Taken { wanted: Box::new(wanted.clone()), network: key.network });
        }
        match known.attachment() {
            Some(attachment) if !known.namespace_is_gone() => {
                if namespace_at(&key, at)? != known.namespace {
                    return Err(Error::Elsewhere { key, namespace: known.request.namespace.clone() });
                }
                self.check(known).await?;
                Ok(Some(attachment.clone()))
            }
            _ => {
                self.del_entry(known).await?;
                Ok(None)
            }
        }
    }

    async fn check(&self, entry: &Entry) -> Result<(), Error> {
        let key = Box::new(entry.key());
        let Some(result) = entry.result() else { return Err(Error::NotAttached { key }) };
        if entry.namespace_is_gone() {
            return Err(Error::Gone { key });
        }
        if entry.network.can_check() {
            self.check_chain(entry, result).await.map_err(|source| Error::Broken { key, source })?;
        }
        Ok(())
    }

    async fn del(&self, network: &Network, request: &AttachmentRequest) -> Result<(), Error> {
        let _alone = self.alone(&request.container_id, &request.interface).await;
        let key = Box::new(Key::of(network, request));
        match self.journal.find(&key.container_id, &key.interface) {
            Some(entry) if entry.key() == *key => return self.del_entry(&entry).await,
            Some(other) => {
                return Err(Error::Taken { wanted: key, network: other.network.name().to_owned() });
            }
            None => {}
        }
        let there = NamespaceId::of(&request.namespace).is_ok();
        let failures = self.del_chain(network, network.plugins().len(), request, there, None).await;
        if failures.is_empty() { Ok(()) } else { Err(Error::Del { key, failures }) }
    }

    /// Detaches a journalled attachment. It is forgotten once its plugins have undone it, or have said their last word on a
    /// namespace that is gone.
    async fn del_entry(&self, entry: &Entry) -> Result<(), Error> {
        let key = Box::new(entry.key());
        if entry.sequence == 0 {
            let (container, interface) = (key.container_id.clone(), key.interface.clone());
            let ended = self.caller.exec.end_orphans(container, interface).await;
            ended.map_err(|source| Error::Orphan { key: key.clone(), source })?;
        }
        // Whoever finds this entry must not take it for whole any more.
        let detaching = entry.detaching();
        self.on_disk(move |journal| journal.replace(detaching)).await?;
        let failures = self.undo(entry, entry.network.plugins().len(), entry.result()).await?;
        if failures.is_empty() { Ok(()) } else { Err(Error::Del { key, failures }) }
    }
}

fn namespace_at(key: &Key, path: &Path) -> Result<NamespaceId, Error> {
    NamespaceId::of(path)
        .map_err(|_| Error::Namespace { key: Box::new(key.clone()), namespace: path.to_owned() })
}
