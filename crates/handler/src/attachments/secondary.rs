//! vNICs on secondary networks: what the pod's interface was given by whoever made the pod.
//!
//! The kernel is the truth, once: addresses are read off the interface when a vNIC is first asked for, together with what routes
//! lead through it, and kept in a file, because the launcher then takes them away for the guest. Files of pods that are gone go too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use net::{Handle, Namespace};
use wire::{Vnic, VnicAddress, VnicRoute};

use crate::vnics::Planned;

/// Why nothing can be said of an interface.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// There is no such interface.
    #[error("the pod has no interface {interface}: is its network in the annotation, and was it attached?")]
    Missing {
        /// Which.
        interface: String,
    },
    /// The kernel.
    #[error("reading interface {interface} of the pod failed")]
    Kernel {
        /// Which.
        interface: String,
        /// Why.
        #[source]
        source: net::Error,
    },
    /// The file.
    #[error("the file {} of what the interface was given", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What interfaces were given, on disk: `<pod UID>/<vNIC>.json`.
#[derive(Clone, Debug)]
pub struct Facts {
    directory: PathBuf,
}

impl Facts {
    pub fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// What the interface of a vNIC was given.
    pub async fn of(&self, uid: &str, namespace: &Path, vnic: &Planned) -> Result<Vnic, FactsError> {
        let path = self.directory.join(uid).join(format!("{}.json", vnic.name));
        if let Some(known) = read(&path) {
            return Ok(known);
        }
        let found = look(namespace, vnic).await?;
        let failed = |source| FactsError::File { path: path.clone(), source };
        let text = serde_json::to_vec_pretty(&found).map_err(|cause| failed(cause.into()))?;
        let (file, interrupted) = (path.clone(), |cause| Err(io::Error::other(cause)));
        let written = tokio::task::spawn_blocking(move || write(&file, &text)).await;
        written.unwrap_or_else(interrupted).map_err(failed)?;
        Ok(found)
    }

    pub fn list(&self, uid: &str) -> Vec<Vnic> {
        let files = fs::read_dir(self.directory.join(uid)).into_iter().flatten().flatten();
        files.filter_map(|file| read(&file.path())).collect()
    }

    /// What cannot be removed now is removed with the next look at what pods there are.
    pub fn forget(&self, uid: &str) {
        let path = self.directory.join(uid);
        match fs::remove_dir_all(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %cause, "a file of a pod that is gone cannot be removed");
            }
            _ => {}
        }
    }

    /// The pods of which anything is known.
    pub fn pods(&self) -> Vec<String> {
        let known = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        known.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// One that is not whole was never told to anybody.
fn read(path: &Path) -> Option<Vnic> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// On disk, whole, when it returns.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let partial = path.with_extension("partial");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(directory)?.sync_all()?;
    directory.parent().map_or(Ok(()), |above| File::open(above)?.sync_all())
}

async fn look(namespace: &Path, vnic: &Planned) -> Result<Vnic, FactsError> {
    let interface = vnic.interface.as_str();
    let failed = |source| FactsError::Kernel { interface: interface.to_owned(), source };
    let handle = Namespace::open(namespace).and_then(|namespace| Handle::open(&namespace)).map_err(failed)?;
    let found = handle.find_link(interface).await.map_err(failed)?;
    let link = found.ok_or_else(|| FactsError::Missing { interface: interface.to_owned() })?;
    let routes = handle.routes().await.map_err(failed)?;
    let through: Vec<_> = routes
        .into_iter()
        .filter(|route| route.link == Some(link.index) && route.gateway.is_some())
        .collect();
    let default = |v4: bool| {
        let leads = |route: &&net::Route| {
            route.destination.prefix_len() == 0 && route.destination.addr().is_ipv4() == v4
        };
        through.iter().find(leads).and_then(|route| route.gateway)
    };
    let on_it = handle.addresses(interface).await.map_err(failed)?;
    let lasting = on_it.iter().filter(|address| address.permanent && !address.link_local);
    let addresses = lasting.map(|address| VnicAddress {
        address: address.network,
        gateway: default(address.network.addr().is_ipv4()),
    });
    Ok(Vnic {
        name: vnic.name.clone(),
        interface: vnic.interface.clone(),
        mac: link.mac.map(|mac| api::mac::MacAddress(mac.0)),
        addresses: addresses.collect(),
        routes: through
            .iter()
            .map(|route| VnicRoute { destination: route.destination, gateway: route.gateway })
            .collect(),
        dns: wire::Dns::default(),
        mtu: Some(link.mtu),
    })
}
