//! An open network namespace, and work inside it.
//!
//! A thread that was moved into a namespace never does anything else afterwards: it is made for one closure and ends with
//! it. Nothing async may run there, because a task does not stay on its thread.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{fstat, stat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::Error;

mod directory;

pub use directory::{NamespaceGuard, Namespaces};

/// The namespace of the thread that opens it.
const HERE: &str = "/proc/thread-self/ns/net";
/// What is said of a file on which no namespace is mounted, and of nothing else.
const HALF_MADE: io::ErrorKind = io::ErrorKind::InvalidData;

/// An open network namespace. It lives at least as long as this value or a clone of it does.
#[derive(Debug, Clone)]
pub struct Namespace(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    name: String,
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// The namespace that the calling thread is in.
    pub fn current() -> Result<Self, Error> {
        Self::open_as("current".to_owned(), Path::new(HERE))
    }

    /// The namespace of a process.
    pub fn of_process(pid: u32) -> Result<Self, Error> {
        Self::open_as(format!("of process {pid}"), Path::new(&format!("/proc/{pid}/ns/net")))
    }

    /// The namespace that is mounted at a path. Errors call it by that path.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_as(path.display().to_string(), path)
    }

    fn open_as(name: String, path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File { operation: "opening namespace", path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        // A plain file is what a creation that was killed half-way leaves behind.
        if fstatfs(&file).map_err(|errno| failed(errno.into()))?.filesystem_type() != NSFS_MAGIC {
            return Err(failed(io::Error::new(HALF_MADE, "it is a file, and no namespace is mounted there")));
        }
        Ok(Self(Arc::new(Opened { name, path: path.to_owned(), file })))
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Runs `work` inside the namespace, on a thread of its own, and waits for it: for short work, such as opening a socket
    /// or starting a process, which stay in the namespace. A panic of `work` goes on in the caller.
    ///
    /// A process that is started there with a parent-death signal gets that signal when the thread ends, which is at once.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let failed = |source| Error::Enter { namespace: self.0.name.clone(), source };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, || {
                // A new thread is where its maker is. Who is there already needs no right to go there.
                if !self.is_here()? {
                    setns(&self.0.file, CloneFlags::CLONE_NEWNET)?;
                }
                Ok(work())
            });
            match thread.map_err(failed)?.join() {
                Ok(outcome) => outcome.map_err(|errno: nix::Error| failed(errno.into())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Namespace {
    /// Whether the calling thread is in it.
    fn is_here(&self) -> Result<bool, nix::Error> {
        let (here, this) = (stat(HERE)?, fstat(&self.0.file)?);
        Ok((here.st_dev, here.st_ino) == (this.st_dev, this.st_ino))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl AsRawFd for Namespace {
    fn as_raw_fd(&self) -> RawFd {
        self.0.file.as_raw_fd()
    }
}
