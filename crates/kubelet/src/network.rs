//! The network of pods: one namespace each, attached to the node's own network and to those that the pod names.
//!
//! It owns the order in which things are made and undone. What a network looks like is its plugins' business, what is
//! attached is in the CNI journal, and which namespaces are ours is in the records. It never decides when a pod needs a
//! network.
//!
//! Invariant: whatever was made for a pod is undone by [`Network::release`], knowing nothing but the pod's UID, also after
//! a death between any two steps.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::multus::{NetworkAttachmentDefinition, NetworkStatus, SelectionError, format_network_status};
use cni::{Attachment, AttachmentRequest, Entry, Journal, Processes, SearchPath};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client};
use net::{Handle, Namespace, Namespaces};
use tokio::sync::watch;

use crate::error::chain;
use plan::{Wanted, attachments};
use record::{Record, Records};

mod definitions;
mod plan;
mod record;
mod routes;

pub use record::Made;

/// Where the networks of a node are.
#[derive(Debug, Clone)]
pub struct CniOptions {
    /// Configurations; the first of them is the pod network.
    pub conf_dir: PathBuf,
    pub plugin_dirs: Vec<PathBuf>,
    /// What is attached: a directory that survives a restart of the node.
    pub journal: PathBuf,
    /// Network namespaces of pods: a directory that does not.
    pub netns_dir: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the CNI journal cannot be opened")]
    Journal(#[source] cni::JournalError),
    #[error("the directories of CNI plugins cannot be used")]
    Plugins(#[source] cni::SearchPathError),
    #[error("the annotations do not say which networks")]
    Selection(#[source] SelectionError),
    #[error("network {definition}: its NetworkAttachmentDefinition cannot be read")]
    Definition {
        definition: String,
        #[source]
        source: kube::Error,
    },
    #[error("network {network}")]
    Configuration {
        network: String,
        #[source]
        source: cni::LoadError,
    },
    #[error("network {network}")]
    Attach {
        network: String,
        #[source]
        source: cni::Error,
    },
    #[error("detaching its networks failed: {}", failures.iter().map(|failure| chain(failure)).collect::<Vec<_>>().join("; "))]
    Detach { failures: Vec<cni::Error> },
    #[error("its network namespace")]
    Namespace(#[source] net::Error),
    #[error("the default route by network {network}")]
    Route {
        network: String,
        #[source]
        source: Box<net::Error>,
    },
    #[error("its record in {}", directory.display())]
    Record {
        directory: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("its network-status annotation cannot be written")]
    Status(#[source] api::multus::NetworkStatusError),
    #[error("the agent is ending")]
    Interrupted(#[source] tokio::task::JoinError),
}

/// The networks of this node's pods. Cheap to clone.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    cni: cni::Runtime,
    conf_dir: PathBuf,
    namespaces: Namespaces,
    records: Records,
    host: Vec<IpAddr>,
    definitions: definitions::Changes,
}

impl Network {
    /// Opens the journal and the records. `run` is a directory that does not survive a restart of the node.
    pub fn open(options: &CniOptions, run: &Path, host: Vec<IpAddr>, client: Client) -> Result<Self, Error> {
        let opened = Journal::open(&options.journal).map_err(Error::Journal)?;
        for aside in &opened.set_aside {
            tracing::warn!(path = %aside.path.display(), cause = aside.cause, "a CNI journal entry cannot be read");
        }
        let path = SearchPath::new(&options.plugin_dirs).map_err(Error::Plugins)?;
        let directory = run.join("sandboxes");
        let records = Records::at(directory.clone());
        let inner = Inner {
            definitions: definitions::Changes::new(client.clone()),
            client,
            cni: cni::Runtime::new(Processes::here(), path, opened.journal),
            conf_dir: options.conf_dir.clone(),
            namespaces: Namespaces::at(&options.netns_dir),
            records: records.map_err(|source| Error::Record { directory, source })?,
            host,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Why no pod can get a network now, for a person; none: all is well.
    pub async fn problem(&self) -> Option<String> {
        let directory = self.inner.conf_dir.clone();
        let loaded = tokio::task::spawn_blocking(move || cni::default_network(&directory)).await;
        match loaded {
            Ok(Ok(_)) => None,
            Ok(Err(cause)) => Some(chain(&cause)),
            Err(cause) => Some(chain(&cause)),
        }
    }

    /// Changes whenever a NetworkAttachmentDefinition does. Nothing is watched before the first call.
    pub fn definitions(&self) -> watch::Receiver<u64> {
        self.inner.definitions.subscribe()
    }

    /// Where a pod's network namespace is; none: it has the node's.
    pub fn namespace(&self, pod: &Pod) -> Option<PathBuf> {
        (!is_on_host(pod)).then(|| self.inner.namespaces.directory().join(uid(pod)))
    }

    /// The sandbox that an earlier life of the agent made, if it is whole, and since when it is there.
    pub async fn find(&self, pod: &Pod) -> Result<Option<(Timestamp, Made)>, Error> {
        let (inner, uid, on_host) = (self.inner.clone(), uid(pod), is_on_host(pod));
        blocking(move || {
            let Some(Record { created, made: Some(made), .. }) = inner.records.read(&uid) else {
                return Ok(None);
            };
            let there = on_host || inner.namespaces.open(&uid).is_ok();
            Ok(there.then_some((created, made)))
        })
        .await
    }

    /// Makes the sandbox, whole or not at all.
    pub async fn make(&self, pod: &Pod) -> Result<(Timestamp, Made), Error> {
        let uid = uid(pod);
        self.release(&uid).await?;
        let wanted = if is_on_host(pod) { Vec::new() } else { attachments(pod).map_err(Error::Selection)? };
        let interfaces = wanted.iter().map(|wanted| wanted.interface.clone()).collect();
        let mut record = Record { created: Timestamp::now(), interfaces, made: None };
        self.write(&uid, &record).await?;
        let made = if wanted.is_empty() {
            Ok(Made { addresses: self.inner.host.clone(), network_status: None })
        } else {
            self.attach_all(pod, &uid, &wanted).await
        };
        let finished = match made {
            Ok(made) => {
                record.made = Some(made.clone());
                self.write(&uid, &record).await.map(|()| (record.created, made))
            }
            Err(failure) => Err(failure),
        };
        if finished.is_err()
            && let Err(left) = self.release(&uid).await
        {
            tracing::warn!(uid, cause = chain(&left), "a half-made sandbox is left for later");
        }
        finished
    }

    async fn attach_all(&self, pod: &Pod, uid: &str, wanted: &[Wanted]) -> Result<Made, Error> {
        let (inner, name) = (self.inner.clone(), uid.to_owned());
        let namespace = blocking(move || inner.namespaces.ensure(&name).map_err(Error::Namespace)).await?;
        let handle = Handle::open(&namespace).map_err(Error::Namespace)?;
        handle.set_up("lo").await.map_err(Error::Namespace)?;
        let mut statuses: Vec<NetworkStatus> = Vec::new();
        let mut addresses = Vec::new();
        for (position, wanted) in wanted.iter().enumerate() {
            let (network, attachment) = self.attach(pod, uid, &namespace, wanted).await?;
            if position == 0 {
                addresses = pod_addresses(&attachment, &wanted.interface);
            }
            statuses.extend(attachment.network_status(&network, &wanted.interface, position == 0));
        }
        routes::settle(&handle, wanted).await?;
        let text = format_network_status(&statuses).map_err(Error::Status)?;
        Ok(Made { addresses, network_status: Some(text) })
    }

    /// Attaches one network; tells what it is called in the status.
    async fn attach(
        &self,
        pod: &Pod,
        uid: &str,
        namespace: &Namespace,
        wanted: &Wanted,
    ) -> Result<(String, Attachment), Error> {
        let (called, network) = self.network(wanted).await?;
        let metadata = &pod.metadata;
        let request = AttachmentRequest::new(uid, namespace.path(), &wanted.interface)
            .with_selection(&wanted.selection)
            .with_arg("IgnoreUnknown", "1")
            .with_arg("K8S_POD_NAMESPACE", metadata.namespace.as_deref().unwrap_or_default())
            .with_arg("K8S_POD_NAME", metadata.name.as_deref().unwrap_or_default())
            .with_arg("K8S_POD_INFRA_CONTAINER_ID", uid)
            .with_arg("K8S_POD_UID", uid);
        let request = AttachmentRequest { interface: wanted.interface.clone(), ..request };
        let attached = self.inner.cni.add(&network, &request).await;
        let attachment = attached.map_err(|source| Error::Attach { network: called.clone(), source })?;
        Ok((called, attachment))
    }

    /// The network that is meant, and its name in the status.
    async fn network(&self, wanted: &Wanted) -> Result<(String, cni::Network), Error> {
        let directory = self.inner.conf_dir.clone();
        let Some((namespace, name)) = &wanted.definition else {
            let failed = |source| Error::Configuration { network: "of the node's pods".to_owned(), source };
            let network = blocking(move || cni::default_network(&directory).map_err(failed)).await?.network;
            return Ok((network.name().to_owned(), network));
        };
        let called = format!("{namespace}/{name}");
        let definitions: Api<NetworkAttachmentDefinition> =
            Api::namespaced(self.inner.client.clone(), namespace);
        let definition = definitions.get(name).await;
        let definition =
            definition.map_err(|source| Error::Definition { definition: called.clone(), source })?;
        let network = called.clone();
        let loaded = blocking(move || {
            cni::network_of_definition(&definition, &directory)
                .map_err(|source| Error::Configuration { network, source })
        });
        Ok((called, loaded.await?))
    }

    /// Undoes everything that was made for the pod of this UID, the last first. Nothing there: nothing to do.
    pub async fn release(&self, uid: &str) -> Result<(), Error> {
        let order = self.inner.records.read(uid).map(|record| record.interfaces).unwrap_or_default();
        let mut entries: Vec<Arc<Entry>> =
            self.inner.cni.list().into_iter().filter(|entry| entry.request.container_id == uid).collect();
        entries.sort_by_key(|entry| order.iter().position(|name| *name == entry.request.interface));
        let mut failures = Vec::new();
        for entry in entries.iter().rev() {
            if let Err(failure) = self.inner.cni.del_journalled(&entry.key()).await {
                failures.push(failure);
            }
        }
        if !failures.is_empty() {
            return Err(Error::Detach { failures });
        }
        let (inner, uid) = (self.inner.clone(), uid.to_owned());
        blocking(move || {
            // Without a record the namespace, if there is one, is not ours.
            if inner.records.has(&uid) {
                inner.namespaces.delete_if_exists(&uid).map_err(Error::Namespace)?;
                inner.records.remove(&uid).map_err(|source| inner.record_error(source))?;
            }
            Ok(())
        })
        .await
    }

    /// UIDs of pods of which there is anything here.
    pub async fn traces(&self) -> Result<BTreeSet<String>, Error> {
        let inner = self.inner.clone();
        blocking(move || {
            let mut uids: BTreeSet<String> =
                inner.records.list().map_err(|source| inner.record_error(source))?.into_iter().collect();
            uids.extend(inner.cni.list().iter().map(|entry| entry.request.container_id.clone()));
            Ok(uids)
        })
        .await
    }

    async fn write(&self, uid: &str, record: &Record) -> Result<(), Error> {
        let (inner, uid, record) = (self.inner.clone(), uid.to_owned(), record.clone());
        blocking(move || inner.records.write(&uid, &record).map_err(|source| inner.record_error(source)))
            .await
    }
}

impl Inner {
    fn record_error(&self, source: std::io::Error) -> Error {
        Error::Record { directory: self.records.directory().to_owned(), source }
    }
}

/// Does what may wait for the kernel or a disk where that is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(Error::Interrupted)?
}

/// The first address of each family on the pod's own interface.
fn pod_addresses(attachment: &Attachment, interface: &str) -> Vec<IpAddr> {
    let statuses = attachment.network_status("", interface, true);
    let on_it = statuses.iter().filter(|status| status.interface.as_deref() == Some(interface));
    let all: Vec<IpAddr> = on_it.flat_map(|status| &status.ips).filter_map(|ip| ip.parse().ok()).collect();
    let first = |v4: bool| all.iter().copied().find(|ip| ip.is_ipv4() == v4);
    let leading = all.first().is_none_or(IpAddr::is_ipv4);
    [first(leading), first(!leading)].into_iter().flatten().collect()
}

fn is_on_host(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default()
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}
