//! What this node may hold: a file for each interface of a container.
//!
//! An address is noted before it is asked for. A file grows by whole lines and the last whole one counts, so a process that is
//! killed leaves what it had noted. A file is locked while an operation works on it; its ending says whether its container has
//! it or has released it. Nothing is flushed to disk: a power cut ends the containers too, and what the journal then forgot is
//! in the runtime's own result, or found by the sweep.
//!
//! ```text
//!  open ──► held ──note──► held ──release──► released ──remove──► (gone)
//!            ▲ the same container asks again    │
//!            └──────────────────────────────────┘
//! ```

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use api::godwit::AddressOwner;
use cni::AttachmentId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::allocations::Held;

const HELD: &str = "held";
const RELEASED: &str = "released";

/// What is known of one interface of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) container: String,
    pub(crate) interface: String,
    /// The network's name in the CNI configuration: GC is about one.
    pub(crate) name: String,
    /// The network that the addresses are of.
    pub(crate) network: String,
    pub(crate) owner: AddressOwner,
    pub(crate) addresses: Vec<Held>,
    pub(crate) rest_seconds: u32,
}

impl Record {
    pub(crate) fn id(&self) -> AttachmentId {
        AttachmentId::new(&self.container, &self.interface)
    }
}

/// The journal of a node.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
}

/// One file, locked as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    file: File,
    path: PathBuf,
    /// None: nothing that can be read was noted.
    pub(crate) record: Option<Record>,
}

/// Whose file it is: the pod's interface, and the container that it is of now.
pub(crate) struct Whose<'a> {
    pub(crate) pod_uid: &'a str,
    pub(crate) container: &'a str,
    pub(crate) interface: &'a str,
}

impl Whose<'_> {
    fn file_stem(&self) -> String {
        format!("{}-{}", digest(&[self.pod_uid, self.interface]), self.attachment())
    }

    fn attachment(&self) -> String {
        digest(&[self.container, self.interface])
    }
}

impl Journal {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The file of an interface, made if it is not there. One that was about to be released is held again.
    pub(crate) fn open(&self, whose: &Whose<'_>) -> Result<Entry, Error> {
        loop {
            let stem = whose.file_stem();
            let held = self.directory.join(format!("{stem}.{HELD}"));
            let released = self.directory.join(format!("{stem}.{RELEASED}"));
            if let Some(mut entry) = Entry::lock(&released, false)? {
                entry.rename(&held)?;
                return Ok(entry);
            }
            match Entry::lock(&held, true) {
                Ok(Some(entry)) => return Ok(entry),
                Ok(None) => {}
                Err(Error::Journal { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
                    made.map_err(|source| failed(&self.directory, source))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The file of a container's interface, whichever pod it is of; none: there is none.
    pub(crate) fn find(&self, container: &str, interface: &str) -> Result<Option<Entry>, Error> {
        let attachment = Whose { pod_uid: "", container, interface }.attachment();
        for path in self.files()? {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if stem.ends_with(&attachment)
                && let Some(entry) = Entry::lock(&path, false)?
            {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// What other containers of the same pod's interface have noted: a sandbox that was restarted has its predecessor's.
    pub(crate) fn predecessors(&self, whose: &Whose<'_>) -> Result<Vec<Record>, Error> {
        let (own, pod) = (whose.file_stem(), digest(&[whose.pod_uid, whose.interface]));
        let others = self.files()?.into_iter().filter(|path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            stem.starts_with(&pod) && stem != own
        });
        // A file that goes meanwhile has nothing more to say.
        Ok(others.filter_map(|path| last_line(&fs::read(path).ok()?)).collect())
    }

    /// What was released and is not free yet.
    pub(crate) fn released(&self) -> Result<Vec<PathBuf>, Error> {
        let mut files = self.files()?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == RELEASED));
        Ok(files)
    }

    /// Every file, in the order of their names.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.directory) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let entries = entries.map_err(|source| failed(&self.directory, source))?;
        let mut names: Vec<OsString> = entries.iter().map(fs::DirEntry::file_name).collect();
        names.retain(|name| {
            Path::new(name).extension().is_some_and(|ending| ending == HELD || ending == RELEASED)
        });
        names.sort_unstable();
        Ok(names.iter().map(|name| self.directory.join(name)).collect())
    }
}

impl Entry {
    /// Locks a file. None: it is not there, or went or was renamed while its lock was waited for.
    pub(crate) fn lock(path: &Path, create: bool) -> Result<Option<Self>, Error> {
        let opened = OpenOptions::new().read(true).append(true).create(create).mode(0o600).open(path);
        let file = match opened {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            opened => opened.map_err(|source| failed(path, source))?,
        };
        file.lock().map_err(|source| failed(path, source))?;
        Self::locked(file, path)
    }

    /// The same, without waiting: who has the lock is at work on it.
    pub(crate) fn try_lock(path: &Path) -> Result<Option<Self>, Error> {
        let file = match OpenOptions::new().read(true).append(true).open(path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| failed(path, source))?,
        };
        match file.try_lock() {
            Ok(()) => Self::locked(file, path),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(path, source)),
        }
    }

    fn locked(mut file: File, path: &Path) -> Result<Option<Self>, Error> {
        let same =
            |there: fs::Metadata, ours: fs::Metadata| (there.dev(), there.ino()) == (ours.dev(), ours.ino());
        let ours = file.metadata().map_err(|source| failed(path, source))?;
        if !fs::metadata(path).is_ok_and(|there| same(there, ours)) {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|source| failed(path, source))?;
        if !text.is_empty() && !text.ends_with(b"\n") {
            // A half line of a killed process: the next must begin anew.
            let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
            file.set_len(end as u64).map_err(|source| failed(path, source))?;
            file.seek(io::SeekFrom::End(0)).map_err(|source| failed(path, source))?;
        }
        Ok(Some(Self { file, path: path.to_owned(), record: last_line(&text) }))
    }

    /// Notes what is or may be ours from now on.
    pub(crate) fn note(&mut self, record: Record) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&record)
            .map_err(|source| failed(&self.path, io::Error::new(io::ErrorKind::InvalidData, source)))?;
        line.push(b'\n');
        // One write: all of it is there or, if we are killed before, none.
        self.file.write_all(&line).map_err(|source| failed(&self.path, source))?;
        self.record = Some(record);
        Ok(())
    }

    /// The container has it no more; it is to be freed.
    pub(crate) fn release(&mut self) -> Result<(), Error> {
        let released = self.path.with_extension(RELEASED);
        if self.path == released { Ok(()) } else { self.rename(&released) }
    }

    /// Nothing is ours any more.
    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(|source| failed(&self.path, source))
    }

    fn rename(&mut self, to: &Path) -> Result<(), Error> {
        fs::rename(&self.path, to).map_err(|source| failed(&self.path, source))?;
        to.clone_into(&mut self.path);
        Ok(())
    }
}

fn last_line(text: &[u8]) -> Option<Record> {
    let whole = text.iter().rposition(|byte| *byte == b'\n')?;
    let line = text[..whole].rsplit(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

fn digest(words: &[&str]) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(u64::try_from(word.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(word);
    }
    let mut number = [0; 8];
    number.copy_from_slice(&hash.finalize()[..8]);
    format!("{:016x}", u64::from_be_bytes(number))
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Journal { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
