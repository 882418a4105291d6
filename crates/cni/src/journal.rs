//! What is attached, on disk.
//!
//! One file for each (container, network, interface), mode 0600, written whole or not at all; when a write returns, file and
//! directory are flushed. One process at a time. A file that cannot be understood is moved to `corrupt/` and reported every
//! time the journal is opened: it may be all that is known of an interface.

mod entry;

pub use entry::{Entry, Key, NamespaceId, Stage};

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const LOCK: &str = "lock";
const CORRUPT: &str = "corrupt";
const ENTRY: &str = "json";
const PARTIAL: &str = "partial";

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has it.
    #[error("the CNI journal {} is in use by another process", directory.display())]
    InUse {
        /// Which.
        directory: PathBuf,
    },
    /// Reading or writing failed.
    #[error("{action} {} in the CNI journal failed", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The entry cannot be written as JSON.
    #[error("writing {key} to the CNI journal failed")]
    Encode {
        /// The attachment.
        key: Key,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// A journal, and what it holds that cannot be read.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// Files that cannot be understood, now and earlier.
    pub set_aside: Vec<SetAside>,
}

/// A file that cannot be understood.
#[derive(Debug)]
pub struct SetAside {
    /// Where it is now.
    pub path: PathBuf,
    /// Why.
    pub cause: String,
}

/// What is attached.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    /// Held as long as the journal.
    lock: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Arc<Entry>>,
    /// Counts attachments in the order in which they began.
    sequence: u64,
}

impl Journal {
    /// Opens the journal in this directory, which is made if it is not there. Call it where waiting for a disk is allowed.
    pub fn open(directory: &Path) -> Result<Opened, JournalError> {
        let make = |path: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|source| failed("making", path, source))
        };
        make(directory)?;
        make(&directory.join(CORRUPT))?;
        let journal =
            Self { directory: directory.to_owned(), lock: lock(directory)?, state: Mutex::default() };
        let mut set_aside = journal.set_aside_earlier()?;
        let mut state = State::default();
        for path in files(directory)? {
            let ending = path.extension().and_then(|ending| ending.to_str());
            if ending == Some(PARTIAL) {
                // Its writer died before it had promised anything.
                fs::remove_file(&path).map_err(|source| failed("removing", &path, source))?;
            } else if ending == Some(ENTRY) {
                match journal.read(&path)? {
                    Ok(entry) => _ = state.entries.insert(entry.key(), Arc::new(entry)),
                    Err(cause) => set_aside.push(journal.set_aside(&path, cause)?),
                }
            }
        }
        journal.flush()?;
        *journal.state() = state;
        Ok(Opened { journal, set_aside })
    }

    /// Everything that is attached, or was about to be.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.state().entries.values().cloned().collect()
    }

    /// What is known of this interface of this container, whatever its network.
    pub fn find(&self, container_id: &str, interface: &str) -> Option<Arc<Entry>> {
        let is_it = |key: &Key| key.container_id == container_id && key.interface == interface;
        self.state().entries.iter().find(|(key, _)| is_it(key)).map(|(_, entry)| Arc::clone(entry))
    }

    /// The number of the last attachment that began.
    pub(crate) fn sequence(&self) -> u64 {
        self.state().sequence
    }

    /// Writes an attachment that begins. Its number is greater than any before.
    pub(crate) fn begin(&self, mut entry: Entry) -> Result<Arc<Entry>, JournalError> {
        let mut state = self.state();
        state.sequence += 1;
        entry.sequence = state.sequence;
        self.write(&mut state, entry)
    }

    /// Writes an attachment over what was known of it.
    pub(crate) fn replace(&self, entry: Entry) -> Result<Arc<Entry>, JournalError> {
        self.write(&mut self.state(), entry)
    }

    /// Forgets an attachment.
    pub(crate) fn remove(&self, key: &Key) -> Result<(), JournalError> {
        let mut state = self.state();
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", &path, source));
            }
            _ => self.flush()?,
        }
        state.entries.remove(key);
        Ok(())
    }

    fn write(&self, state: &mut State, entry: Entry) -> Result<Arc<Entry>, JournalError> {
        let key = entry.key();
        let bytes = entry.encode().map_err(|source| JournalError::Encode { key: key.clone(), source })?;
        let path = self.path(&key);
        let partial = path.with_extension(PARTIAL);
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|source| failed("writing", &path, source))?;
        // From here on the next start will find it, so it is known now too, flushed or not.
        let entry = Arc::new(entry);
        state.entries.insert(key, Arc::clone(&entry));
        self.flush()?;
        Ok(entry)
    }

    /// The entry in a file, or why it is none.
    fn read(&self, path: &Path) -> Result<Result<Entry, String>, JournalError> {
        let bytes = fs::read(path).map_err(|source| failed("reading", path, source))?;
        Ok(Entry::decode(&bytes).and_then(|entry| {
            let own = self.path(&entry.key());
            if own == path {
                Ok(entry)
            } else {
                Err(format!("it holds {}, which belongs elsewhere", entry.key()))
            }
        }))
    }

    fn set_aside(&self, path: &Path, cause: String) -> Result<SetAside, JournalError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let corrupt = self.directory.join(CORRUPT);
        let mut aside = corrupt.join(format!("{name}.{ENTRY}"));
        let mut copies = 1_u64;
        while aside.exists() {
            copies += 1;
            aside = corrupt.join(format!("{name}.{copies}.{ENTRY}"));
        }
        fs::rename(path, &aside).map_err(|source| failed("setting aside", path, source))?;
        flush(&corrupt)?;
        Ok(SetAside { path: aside, cause })
    }

    fn set_aside_earlier(&self) -> Result<Vec<SetAside>, JournalError> {
        let paths = files(&self.directory.join(CORRUPT))?.into_iter();
        Ok(paths.map(|path| SetAside { path, cause: "it was set aside earlier".to_owned() }).collect())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{}.{ENTRY}", key.digest()))
    }

    fn flush(&self) -> Result<(), JournalError> {
        flush(&self.directory)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It changes only after the disk did, in one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing would do, were it not for a plugin that is being started this moment and shares the file until it runs.
        drop(self.lock.unlock());
    }
}

fn lock(directory: &Path) -> Result<File, JournalError> {
    let path = directory.join(LOCK);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|source| failed("opening", &path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse { directory: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("locking", &path, source)),
    }
}

/// The files of a directory, by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|source| failed("reading", directory, source))?;
    let mut paths: Vec<PathBuf> =
        entries.iter().map(fs::DirEntry::path).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}

fn flush(directory: &Path) -> Result<(), JournalError> {
    let flushed = File::open(directory).and_then(|directory| directory.sync_all());
    flushed.map_err(|source| failed("flushing", directory, source))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::File { action, path: path.to_owned(), source }
}
