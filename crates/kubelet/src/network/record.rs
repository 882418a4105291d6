//! What is written down of a sandbox, where a restart of the node wipes it: as long as the file is there, so may be the
//! namespace. It is written before anything is made, and removed after everything is undone.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub created: Timestamp,
    /// The interfaces that are attached, in that order.
    pub interfaces: Vec<String>,
    /// What was made; none: it is not whole.
    pub made: Option<Made>,
}

/// What a pod got of its networks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Addresses of the pod: one a family at most.
    pub addresses: Vec<IpAddr>,
    /// The annotation `network-status`; none for a pod in the node's network.
    pub network_status: Option<String>,
}

/// The directory of records, one file a pod.
#[derive(Debug, Clone)]
pub struct Records(PathBuf);

impl Records {
    pub fn at(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    /// None: there is none, or it was cut off half-way, and then nothing was made yet or all of it is in the CNI journal.
    pub fn read(&self, uid: &str) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.path(uid)).ok()?).ok()
    }

    /// Whether there is one, readable or not.
    pub fn has(&self, uid: &str) -> bool {
        self.path(uid).exists()
    }

    pub fn write(&self, uid: &str, record: &Record) -> io::Result<()> {
        let (path, partial) = (self.path(uid), self.0.join(format!("{uid}.partial")));
        fs::write(&partial, serde_json::to_vec(record)?)?;
        fs::rename(partial, path)
    }

    pub fn remove(&self, uid: &str) -> io::Result<()> {
        match fs::remove_file(self.path(uid)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
            _ => Ok(()),
        }
    }

    /// Pods that have one.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().into_string().unwrap_or_default()));
        let uid = |name: io::Result<String>| {
            name.map(|name| name.strip_suffix(".json").map(str::to_owned)).transpose()
        };
        names.filter_map(uid).collect()
    }

    pub fn directory(&self) -> &Path {
        &self.0
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.0.join(format!("{uid}.json"))
    }
}
