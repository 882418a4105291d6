//! The vNICs that are attached on this node, and what each attachment gave.
//!
//! Two makers, one answer. On the node's own network we attach: one more interface for the pod, through the CNI runtime and
//! its journal. On a secondary network the pod has its interface already: what it was given is read off it once and kept on disk,
//! because the launcher takes the addresses away.
//!
//! It never touches an interface that it did not make, and its attachments are called `<pod UID>-vnic`, so that nobody who
//! tidies up after the pod's own sandbox takes them for his, nor we his.
//!
//! Invariant: what an answer says is on disk before the answer is given, and the same question has the same answer until the
//! vNIC is detached.

mod answer;
mod secondary;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni::{AttachmentRequest, Collected, Entry, GcMark, Journal, NamespaceId, Processes, SearchPath};
use net::{Handle, Namespace};
use wire::{Vnic, VnicName};

use crate::vnics::{Maker, Planned};
use secondary::Facts;
pub use secondary::FactsError;

/// What our containers are called after the UID of their pod.
const SUFFIX: &str = "-vnic";
/// The argument of an attachment that names its vNIC.
const VNIC: &str = "GODWIT_VNIC";

/// A launcher pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    /// Its UID.
    pub uid: String,
    /// Its namespace in the API.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Where the networks of a node are.
#[derive(Clone, Debug)]
pub struct Networks {
    /// Configurations; the first of them is the pod network.
    pub configurations: PathBuf,
    /// Directories of plugins.
    pub plugins: Vec<PathBuf>,
    /// Where plugins run.
    pub processes: Processes,
    /// What is attached: a directory that survives everything but the node.
    pub state: PathBuf,
}

/// Why attachments cannot be made or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal.
    #[error("the journal of attachments cannot be opened")]
    Journal(#[source] Box<cni::JournalError>),
    /// The plugins.
    #[error("the directories of CNI plugins cannot be used")]
    Plugins(#[source] cni::SearchPathError),
    /// The node has no network for pods.
    #[error("the node has no pod network")]
    Network(#[source] Box<cni::LoadError>),
    /// A plugin, or the journal around it.
    #[error("vNIC {vnic}")]
    Cni {
        /// Which.
        vnic: VnicName,
        /// Why.
        #[source]
        source: Box<cni::Error>,
    },
    /// What was attached cannot be put into words.
    #[error("vNIC {vnic}: the answer of the network")]
    Answer {
        /// Which.
        vnic: VnicName,
        /// Why.
        #[source]
        source: wire::NameError,
    },
    /// The kernel.
    #[error("vNIC {vnic}: its interface in the pod")]
    Kernel {
        /// Which.
        vnic: VnicName,
        /// Why.
        #[source]
        source: Box<net::Error>,
    },
    /// A secondary network.
    #[error("vNIC {vnic}")]
    Facts {
        /// Which.
        vnic: VnicName,
        /// Why.
        #[source]
        source: Box<FactsError>,
    },
    /// It is not attached.
    #[error("vNIC {vnic} is not attached")]
    NotAttached {
        /// Which.
        vnic: VnicName,
    },
    /// What a pod had could not all be detached.
    #[error("pod {uid}: {}", failures.iter().map(|failure| crate::error::chain(failure)).collect::<Vec<_>>().join("; "))]
    Release {
        /// The pod.
        uid: String,
        /// Everything that failed; it is tried again.
        failures: Vec<cni::Error>,
    },
    /// The process is ending.
    #[error("the handler is ending")]
    Interrupted(#[source] tokio::task::JoinError),
}

/// A moment: what came later is not garbage.
#[derive(Debug)]
pub struct Mark {
    cni: GcMark,
    facts: Vec<String>,
}

/// What is attached on this node. Clones share everything.
#[derive(Clone, Debug)]
pub struct Attachments {
    cni: cni::Runtime,
    configurations: PathBuf,
    facts: Facts,
}

impl Attachments {
    /// Opens the journal. Call it where waiting for a disk is allowed.
    pub fn open(networks: &Networks) -> Result<Self, Error> {
        let opened = Journal::open(&networks.state.join("attachments"))
            .map_err(|source| Error::Journal(Box::new(source)))?;
        for aside in &opened.set_aside {
            tracing::warn!(path = %aside.path.display(), cause = aside.cause, "a journal entry cannot be read; its attachment may be left behind");
        }
        let path = SearchPath::new(&networks.plugins).map_err(Error::Plugins)?;
        if let Ok(loaded) = cni::default_network(&networks.configurations)
            && loaded.network.can_gc()
        {
            tracing::warn!(
                network = loaded.network.name(),
                file = %loaded.path.display(),
                "the pod network has garbage collection: a container runtime that uses it would take away vNICs, which it does not know; set disableGC in the file"
            );
        }
        Ok(Self {
            cni: cni::Runtime::new(networks.processes.clone(), path, opened.journal),
            configurations: networks.configurations.clone(),
            facts: Facts::at(networks.state.join("secondary")),
        })
    }

    /// Attaches the vNIC; one that is attached stays as it is.
    pub async fn add(&self, pod: &PodName, namespace: &Path, vnic: &Planned) -> Result<Vnic, Error> {
        match vnic.maker {
            Maker::Node => {
                let failed = |source| Error::Facts { vnic: vnic.name.clone(), source: Box::new(source) };
                self.facts.of(&pod.uid, namespace, vnic).await.map_err(failed)
            }
            Maker::Handler => self.attach(pod, namespace, vnic).await,
        }
    }

    async fn attach(&self, pod: &PodName, namespace: &Path, vnic: &Planned) -> Result<Vnic, Error> {
        let container = container(&pod.uid);
        let known = self.cni.find(&container, vnic.interface.as_str());
        // The launcher has taken the addresses off, so a plugin would find it broken: what was given counts.
        if let Some(entry) = known.filter(|entry| is_in(entry, namespace))
            && let Some(answer) = answered(&entry)
        {
            return answer;
        }
        let directory = self.configurations.clone();
        let loaded = blocking(move || {
            cni::default_network(&directory).map_err(|source| Error::Network(Box::new(source)))
        })
        .await?;
        let request = AttachmentRequest::new(&container, namespace, vnic.interface.as_str())
            .with_arg("IgnoreUnknown", "1")
            .with_arg("K8S_POD_NAMESPACE", &pod.namespace)
            .with_arg("K8S_POD_NAME", &pod.name)
            .with_arg("K8S_POD_INFRA_CONTAINER_ID", &container)
            .with_arg("K8S_POD_UID", &pod.uid)
            .with_arg(VNIC, vnic.name.as_str());
        let attached = self.cni.add(&loaded.network, &request).await;
        let attachment =
            attached.map_err(|source| Error::Cni { vnic: vnic.name.clone(), source: Box::new(source) })?;
        answer::vnic(&vnic.name, vnic.interface.as_str(), &attachment)
            .map_err(|source| Error::Answer { vnic: vnic.name.clone(), source })
    }

    /// Whether the vNIC is attached, and its interface still there. Its addresses are not looked for: the guest has them.
    pub async fn check(&self, pod: &PodName, namespace: &Path, vnic: &Planned) -> Result<(), Error> {
        let missing = || Error::NotAttached { vnic: vnic.name.clone() };
        if vnic.maker == Maker::Handler {
            let known = self.cni.find(&container(&pod.uid), vnic.interface.as_str());
            known
                .filter(|entry| is_in(entry, namespace) && entry.attachment().is_some())
                .ok_or_else(missing)?;
        }
        let failed = |source| Error::Kernel { vnic: vnic.name.clone(), source: Box::new(source) };
        let handle =
            Namespace::open(namespace).and_then(|namespace| Handle::open(&namespace)).map_err(failed)?;
        let link = handle.find_link(vnic.interface.as_str()).await.map_err(failed)?;
        link.map(drop).ok_or_else(missing)
    }

    /// Detaches a vNIC that we attached. One that we did not is not ours to detach, and that is well.
    pub async fn del(&self, uid: &str, vnic: &VnicName) -> Result<(), Error> {
        for entry in self.of_pod(uid).filter(|entry| vnic_of(entry).as_ref() == Some(vnic)) {
            let deleted = self.cni.del_journalled(&entry.key()).await;
            deleted.map_err(|source| Error::Cni { vnic: vnic.clone(), source: Box::new(source) })?;
        }
        Ok(())
    }

    /// What is attached for a pod, by the names of its interfaces.
    pub fn list(&self, uid: &str) -> Result<Vec<Vnic>, Error> {
        let mut vnics = self.facts.list(uid);
        for entry in self.of_pod(uid) {
            vnics.extend(answered(&entry).transpose()?);
        }
        vnics.sort_by(|a, b| a.interface.cmp(&b.interface));
        Ok(vnics)
    }

    /// Whether anything is attached for a pod.
    pub fn any(&self, uid: &str) -> bool {
        self.of_pod(uid).next().is_some()
    }

    /// Detaches everything of a pod that has ended.
    pub async fn release(&self, uid: &str) -> Result<(), Error> {
        self.facts.forget(uid);
        let mut failures = Vec::new();
        for entry in self.of_pod(uid) {
            if let Err(failure) = self.cni.del_journalled(&entry.key()).await {
                failures.push(failure);
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Error::Release { uid: uid.to_owned(), failures }) }
    }

    /// Take it before looking which pods there are.
    pub fn mark(&self) -> Mark {
        Mark { cni: self.cni.gc_mark(), facts: self.facts.pods() }
    }

    /// Detaches everything of pods that are not among these. Plugins are not asked to collect garbage of their own: that
    /// takes a list of all attachments to a network, and those of the pods' own sandboxes are not ours to know.
    pub async fn collect(&self, alive: &BTreeSet<String>, mark: Mark) -> Collected {
        for uid in mark.facts.iter().filter(|uid| !alive.contains(*uid)) {
            self.facts.forget(uid);
        }
        let lives = |entry: &Arc<Entry>| pod_of(entry).is_none_or(|uid| alive.contains(uid));
        let valid = self.cni.list().iter().filter(|entry| lives(entry)).map(|entry| entry.id()).collect();
        self.cni.collect(&valid, mark.cni).await
    }

    fn of_pod(&self, uid: &str) -> impl Iterator<Item = Arc<Entry>> {
        let container = container(uid);
        self.cni.list().into_iter().filter(move |entry| entry.request.container_id == container)
    }
}

fn container(uid: &str) -> String {
    format!("{uid}{SUFFIX}")
}

fn pod_of(entry: &Entry) -> Option<&str> {
    entry.request.container_id.strip_suffix(SUFFIX)
}

fn vnic_of(entry: &Entry) -> Option<VnicName> {
    let named = entry.request.args.iter().find(|(key, _)| key == VNIC);
    named.and_then(|(_, name)| name.parse().ok())
}

/// Whether it is in the namespace that is at this path now.
fn is_in(entry: &Entry, namespace: &Path) -> bool {
    !entry.namespace_is_gone() && NamespaceId::of(namespace).is_ok_and(|now| now == entry.namespace)
}

/// What an entry of the journal says of its vNIC; none: it is not attached, or not ours.
fn answered(entry: &Entry) -> Option<Result<Vnic, Error>> {
    let (vnic, attachment) = (vnic_of(entry)?, entry.attachment()?);
    let answer = answer::vnic(&vnic, &entry.request.interface, attachment);
    Some(answer.map_err(|source| Error::Answer { vnic, source }))
}

/// Does what may wait for a disk where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::Interrupted)?
}
