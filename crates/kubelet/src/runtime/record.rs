//! The files by which agents and shims know of a container, and of each other.
//!
//! A file is written whole or not at all: a temporary name, flushed, then renamed.
//!
//! Invariant: whoever holds the lock of a container's directory is its shim, and the kernel lets go of the lock when
//! the shim ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::process::{Flock, FlockType, Pid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ContainerId;
use super::process::Identity;
use k8s_openapi::jiff::Timestamp;

/// What a shim has to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// What the OCI runtime calls the container.
    pub name: String,
    pub runtime: PathBuf,
    pub run: PathBuf,
    pub log: PathBuf,
    pub cgroup: String,
}

/// The container's first process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Started {
    pub process: Identity,
    pub started: Timestamp,
}

/// The directory of one container.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the shim is to do; written by the agent.
    pub fn task(&self) -> PathBuf {
        self.0.join("task.json")
    }

    /// Held by the shim as long as it lives.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Who the shim is; written by the shim before it runs anything.
    pub fn shim(&self) -> PathBuf {
        self.0.join("shim.json")
    }

    /// Who the container's first process is; written by the shim before that process runs the container's command.
    pub fn started(&self) -> PathBuf {
        self.0.join("pid.json")
    }

    /// How it ended.
    pub fn exit(&self) -> PathBuf {
        self.0.join("exit.json")
    }

    pub fn shim_log(&self) -> PathBuf {
        self.0.join("shim.log")
    }

    /// What the OCI runtime says when something fails.
    pub fn runtime_log(&self) -> PathBuf {
        self.0.join("runtime.log")
    }

    pub fn bundle(&self) -> PathBuf {
        self.0.join("bundle")
    }

    pub fn config(&self) -> PathBuf {
        self.bundle().join("config.json")
    }

    pub fn root(&self) -> PathBuf {
        self.bundle().join("rootfs")
    }

    pub fn upper(&self) -> PathBuf {
        self.0.join("upper")
    }

    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// The shim, if it lives.
    pub fn holder(&self) -> io::Result<Option<Pid>> {
        let file = match File::open(self.lock()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let wanted = Flock::from(FlockType::ReadLock);
        Ok(rustix::process::fcntl_getlk(&file, &wanted)?.and_then(|lock| lock.pid))
    }

    /// Takes the lock for this process, until it ends. It waits for a shim that an agent started just before it was killed:
    /// nobody tells that one to go, and it ends. The file must not be opened by it again: closing any of its
    /// descriptors would let go of the lock.
    pub fn hold(&self) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.lock())?;
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

/// What the OCI runtime calls the container, which is also the name of its directory. Names in Kubernetes hold no `_`.
pub fn name(id: &ContainerId) -> Option<String> {
    let allowed = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric())
            && part.chars().all(|character| character.is_ascii_alphanumeric() || "-.".contains(character))
    };
    (allowed(&id.pod) && allowed(&id.container))
        .then(|| format!("{}_{}_{}", id.pod, id.container, id.attempt))
}

/// The id of that name.
pub fn id(name: &str) -> Option<ContainerId> {
    let mut parts = name.split('_');
    let (pod, container, attempt) = (parts.next()?, parts.next()?, parts.next()?);
    let id = ContainerId { pod: pod.into(), container: container.into(), attempt: attempt.parse().ok()? };
    (self::name(&id).as_deref() == Some(name)).then_some(id)
}

/// Reads a record; none if it is not there.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a record: readers see the old content or the new, also after a power cut.
pub fn write(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = File::create(&partial)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use super::*;

    #[test]
    fn names_and_ids_are_the_same_thing() {
        let id = |pod: &str, container: &str| ContainerId {
            pod: pod.into(),
            container: container.into(),
            attempt: 7,
        };
        let good = id("0f4b3c1e-0000-4000-8000-000000000001", "virt-launcher");
        assert_eq!(name(&good).unwrap(), "0f4b3c1e-0000-4000-8000-000000000001_virt-launcher_7");
        assert_eq!(super::id(&name(&good).unwrap()), Some(good));
        for (pod, container) in [("", "a"), ("a", ""), ("..", "a"), ("a", "b/c"), ("a_b", "c"), ("a", "-b")] {
            assert_eq!(name(&id(pod, container)), None, "{pod} {container}");
        }
        for name in ["", "a", "a_b", "a_b_c", "a_b_1_2", "a_b_01", "._b_1"] {
            assert_eq!(super::id(name), None, "{name}");
        }
    }
}
