//! What a container is given besides its image: environment, volumes, and the files that every pod has.
//!
//! ```text
//!   STATE/pods/<UID>      volumes; gone when the pod is done
//!   STATE/files/<UID>     /etc/hosts and its like, termination logs; gone when the pod is
//! ```
//!
//! It puts together what others make, and owns only those files. It never decides when.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::downward::Allocatable;
use crate::environment::{self, environment};
use crate::etc::{self, ClusterDns};
use crate::images::Images;
use crate::node::Capacity;
use crate::runtime::{ContainerId, Mount, Propagation};
use crate::volumes::{self, ApiSource, Published, Volumes, mounts};

/// Where a container leaves its last words unless it says otherwise.
const TERMINATION_LOG: &str = "/dev/termination-log";
/// What names in the cluster end with.
const DOMAIN: &str = "cluster.local";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Volumes(#[from] volumes::Error),
    #[error(transparent)]
    Environment(#[from] environment::Error),
    #[error("{operation} {} failed", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(crate) struct Provisions {
    node: String,
    volumes: Volumes,
    source: ApiSource,
    files: PathBuf,
    /// Where pods find the API server.
    api_server: (String, u16),
    dns: Option<ClusterDns>,
}

impl Provisions {
    pub fn new(options: &crate::Options) -> Self {
        let Capacity { cores, memory, .. } = options.capacity;
        let allocatable = Allocatable { cpu_milli: u64::from(cores) * 1000, memory };
        let dns =
            |server: IpAddr| ClusterDns { servers: vec![server.to_string()], domain: DOMAIN.to_owned() };
        Self {
            node: options.name.clone(),
            volumes: Volumes::new(options.state.join("pods"), Images::at(&options.runtime.images)),
            source: ApiSource { client: options.client.clone(), allocatable },
            files: options.state.join("files"),
            api_server: options.api_server.clone(),
            dns: options.cluster_dns.map(dns),
        }
    }

    /// Makes the volumes of a pod, or has them show what is true now. One at a time for one pod.
    pub async fn publish(&self, pod: &Pod) -> Result<Published, Error> {
        Ok(self.volumes.publish(pod, &self.source).await?)
    }

    /// Removes the volumes of a pod.
    pub async fn release(&self, uid: &str) -> Result<(), Error> {
        let (volumes, uid) = (self.volumes.clone(), uid.to_owned());
        let released = tokio::task::spawn_blocking(move || volumes.teardown(&uid)).await;
        match released {
            Ok(outcome) => Ok(outcome?),
            Err(cause) => Err(failed("removing volumes below", &self.files)(io::Error::other(cause))),
        }
    }

    /// Removes the files of a pod.
    pub fn remove(&self, uid: &str) -> Result<(), Error> {
        let directory = self.files.join(uid);
        match fs::remove_dir_all(&directory) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(failed("removing", &directory)(cause))
            }
            _ => Ok(()),
        }
    }

    /// UIDs of pods of which there is anything here.
    pub fn traces(&self) -> Result<Vec<String>, Error> {
        let mut uids = self.volumes.list()?;
        match fs::read_dir(&self.files) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(failed("listing", &self.files)(cause)),
            Ok(entries) => {
                uids.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
            }
        }
        Ok(uids)
    }

    /// The variables of a container; the API server is where every client looks for it.
    pub async fn environment(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<Vec<(String, String)>, Error> {
        let own = environment(pod, container, &self.source).await?;
        let (host, port) = (&self.api_server.0, self.api_server.1.to_string());
        let usual = [
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", &port),
            ("KUBERNETES_SERVICE_PORT_HTTPS", &port),
        ];
        let usual = usual.into_iter().filter(|(name, _)| !own.iter().any(|(known, _)| known == name));
        let mut all: Vec<(String, String)> =
            usual.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        all.extend(own);
        Ok(all)
    }

    /// Everything that a container has mounted.
    pub fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
        published: &Published,
        environment: &[(String, String)],
    ) -> Result<Vec<Mount>, Error> {
        let mut all = mounts(pod, container, published, environment)?;
        for (source, destination) in self.files(pod, container, id)? {
            // Whoever mounts something of its own there knows why.
            if !all.iter().any(|mount| mount.destination == destination) {
                all.push(Mount { source, destination, read_only: false, propagation: Propagation::Private });
            }
        }
        Ok(all)
    }

    pub fn hostname(&self, pod: &Pod) -> String {
        etc::hostname(pod, &self.node)
    }

    pub fn termination_log(&self, id: &ContainerId) -> PathBuf {
        self.files.join(&id.pod).join(format!("termination-{}-{}", id.container, id.attempt))
    }

    /// The files that every container has, and where it has them.
    fn files(
        &self,
        pod: &Pod,
        container: &Container,
        id: &ContainerId,
    ) -> Result<Vec<(PathBuf, PathBuf)>, Error> {
        let directory = self.files.join(&id.pod);
        fs::create_dir_all(&directory).map_err(failed("making", &directory))?;
        let node = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let dns = self.dns.as_ref();
        let contents = [
            ("hosts", etc::hosts(pod, &node("/etc/hosts"), dns)),
            ("hostname", format!("{}\n", self.hostname(pod))),
            ("resolv.conf", etc::resolv_conf(pod, &node("/etc/resolv.conf"), dns)),
        ];
        let mut files = Vec::new();
        for (name, content) in contents {
            let path = directory.join(name);
            // In place: containers of the pod that run have this very file.
            fs::write(&path, content).map_err(failed("writing", &path))?;
            files.push((path, Path::new("/etc").join(name)));
        }
        let log = self.termination_log(id);
        fs::write(&log, "").map_err(failed("writing", &log))?;
        files.push((log, container.termination_message_path.as_deref().unwrap_or(TERMINATION_LOG).into()));
        Ok(files)
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { operation, path, source }
}
