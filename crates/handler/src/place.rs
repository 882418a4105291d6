//! Where a launcher pod is on this node: its private directory and its network namespace.
//!
//! The pod may write into its private directory, so nothing in there is believed: sockets are reached through an open
//! descriptor of the directory itself, and whoever is at the other end proves by its network namespace that it is of the pod.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cni::NamespaceId;
use rustix::fs::{Mode, OFlags};
use tokio::net::unix::UCred;

/// Of the volume that launcher and handler share, on the node.
const PRIVATE: &str = "volumes/kubernetes.io~empty-dir/private";
const PROCESSES: &str = "/proc";

/// Why a place cannot be found, or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A UID that would lead elsewhere.
    #[error("{uid:?} is not the UID of a pod")]
    Uid {
        /// What was given.
        uid: String,
    },
    /// The shared directory is not there.
    #[error("the private directory {} of the pod cannot be opened", path.display())]
    Private {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The pod's namespace is not there.
    #[error("the network namespace of pod {uid} is not in {}", directory.display())]
    Namespace {
        /// The pod.
        uid: String,
        /// Where namespaces are.
        directory: PathBuf,
    },
    /// Something in the shared directory is not what it should be.
    #[error("{name} in the private directory of the pod cannot be used")]
    Inside {
        /// What.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel does not say who is at the other end.
    #[error("the process at the other end cannot be seen: is this process in the node's process namespace?")]
    Invisible,
    /// Somebody else is at the other end.
    #[error("process {process} is not in the network namespace of the pod")]
    Stranger {
        /// Who.
        process: i32,
    },
}

/// The places of this node.
#[derive(Clone, Debug)]
pub struct Places {
    /// The kubelet's directory.
    pub kubelet: PathBuf,
    /// Where network namespaces of pods are bound.
    pub namespaces: PathBuf,
}

impl Places {
    /// Opens the private directory of a pod.
    pub fn private(&self, uid: &str) -> Result<Private, PlaceError> {
        let path = self.kubelet.join("pods").join(checked(uid)?).join(PRIVATE);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        opened.map(Private).map_err(|source| PlaceError::Private { path, source: source.into() })
    }

    /// The network namespace of a pod: the one of its UID, as the lab names it, or the one that its processes are in.
    pub fn namespace(&self, uid: &str) -> Result<PathBuf, PlaceError> {
        let own = self.namespaces.join(checked(uid)?);
        if own.exists() {
            return Ok(own);
        }
        let missing = || PlaceError::Namespace { uid: uid.to_owned(), directory: self.namespaces.clone() };
        let wanted = namespace_of_processes(Path::new(PROCESSES), uid).ok_or_else(missing)?;
        let bound = fs::read_dir(&self.namespaces).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| NamespaceId::of(path).is_ok_and(|found| found == wanted);
        bound.into_iter().find(is_it).ok_or_else(missing)
    }
}

/// UIDs become parts of paths.
fn checked(uid: &str) -> Result<&str, PlaceError> {
    let plain = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if plain { Ok(uid) } else { Err(PlaceError::Uid { uid: uid.to_owned() }) }
}

/// The network namespace of a process in a cgroup of the pod, which no process of the pod can leave.
fn namespace_of_processes(processes: &Path, uid: &str) -> Option<NamespaceId> {
    // The two spellings of kubelets: of cgroups by hand, and by systemd.
    let marks = [format!("pod{uid}"), format!("pod{}", uid.replace('-', "_"))];
    let of_pod = |process: &PathBuf| {
        let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        marks.iter().any(|mark| groups.contains(mark))
    };
    let all = fs::read_dir(processes).ok()?.flatten().map(|entry| entry.path());
    all.filter(of_pod).find_map(|process| NamespaceId::of(&process.join("ns/net")).ok())
}

/// The directory that a launcher and this handler share.
#[derive(Debug)]
pub struct Private(OwnedFd);

impl Private {
    /// A path that leads into this very directory, and is short: that of a socket has 107 bytes.
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }

    /// A directory in it, and no link to another.
    pub fn directory(&self, name: &str) -> Result<Self, PlaceError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.0, name, flags, Mode::empty());
        opened.map(Self).map_err(|source| PlaceError::Inside { name: name.to_owned(), source: source.into() })
    }

    /// Lets everyone use a socket in it. Only who is in the pod gets there; and no link is followed to a file elsewhere.
    pub fn open_to_pod(&self, socket: &str) -> Result<(), PlaceError> {
        let failed = |source: io::Error| PlaceError::Inside { name: socket.to_owned(), source };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.0, socket, flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed)
    }
}

/// The process at the other end of a socket, if it is in the pod's network namespace.
pub fn check_peer(peer: &UCred, pod: NamespaceId) -> Result<i32, PlaceError> {
    let process = peer.pid().filter(|process| *process > 0).ok_or(PlaceError::Invisible)?;
    let its = NamespaceId::of(&Path::new(PROCESSES).join(process.to_string()).join("ns/net"));
    if its.is_ok_and(|its| its == pod) { Ok(process) } else { Err(PlaceError::Stranger { process }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    #[test]
    fn a_uid_leads_nowhere_else() {
        let places = Places { kubelet: "/".into(), namespaces: "/".into() };
        for uid in ["", "..", "a/b", "../../etc", "a\0b", "."] {
            assert!(matches!(places.private(uid), Err(PlaceError::Uid { .. })), "{uid:?}");
            assert!(matches!(places.namespace(uid), Err(PlaceError::Uid { .. })), "{uid:?}");
        }
    }

    #[test]
    fn a_private_directory_that_is_a_link_is_refused() {
        let kubelet = tempfile::tempdir().unwrap();
        let volumes = kubelet.path().join("pods/a/volumes/kubernetes.io~empty-dir");
        fs::create_dir_all(&volumes).unwrap();
        std::os::unix::fs::symlink("/", volumes.join("private")).unwrap();
        let places = Places { kubelet: kubelet.path().to_owned(), namespaces: "/".into() };
        assert!(matches!(places.private("a"), Err(PlaceError::Private { .. })));
    }

    #[test]
    fn without_a_namespace_of_its_uid_a_pod_is_found_by_its_processes() {
        let node = tempfile::tempdir().unwrap();
        let uid = "0f4b3c1e-0000-4000-8000-000000000001";
        for (process, group) in
            [("1", "/init.scope"), ("7", "/kubepods/pod0f4b3c1e_0000_4000_8000_000000000001/x")]
        {
            let directory = node.path().join(process);
            fs::create_dir_all(directory.join("ns")).unwrap();
            fs::write(directory.join("cgroup"), format!("0::{group}\n")).unwrap();
            fs::write(directory.join("ns/net"), "").unwrap();
        }
        let found = namespace_of_processes(node.path(), uid);
        assert_eq!(found, NamespaceId::of(&node.path().join("7/ns/net")).ok());
        assert_eq!(namespace_of_processes(node.path(), "another"), None);
    }
}
