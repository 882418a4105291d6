//! Named network namespaces: files in one directory, each with a namespace mounted on it.
//!
//! The directory is the caller's, so that two callers never see each other's namespaces. It is made if it is not there and
//! never mounted over. Whatever a creation that was killed half-way leaves behind, deletion removes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::{HALF_MADE, Namespace};
use crate::error::deleted;
use crate::{Error, Teardown};

/// A directory of network namespaces.
#[derive(Debug, Clone)]
pub struct Namespaces {
    directory: PathBuf,
}

impl Namespaces {
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a new namespace. Its loopback interface is down, as the kernel leaves it.
    pub fn create(&self, name: &str) -> Result<Namespace, Error> {
        let path = self.path(name)?;
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&self.directory);
        made.map_err(|source| Error::File { operation: "creating namespace", path, source })?;
        let _lock = self.lock()?;
        self.create_locked(name)
    }

    /// Makes a new namespace that is deleted when the guard is dropped, also by a panic.
    pub fn create_guarded(&self, name: &str) -> Result<NamespaceGuard, Error> {
        Ok(NamespaceGuard { namespaces: self.clone(), namespace: self.create(name)?, armed: true })
    }

    pub fn open(&self, name: &str) -> Result<Namespace, Error> {
        Namespace::open_as(name.to_owned(), &self.path(name)?)
    }

    /// Opens the namespace, or makes it. What a creation that was killed left behind is made good.
    pub fn ensure(&self, name: &str) -> Result<Namespace, Error> {
        match self.create(name) {
            Err(error) if error.is_already_exists() => {}
            outcome => return outcome,
        }
        let _lock = self.lock()?;
        match self.open(name) {
            Err(Error::File { source, .. }) if source.kind() == HALF_MADE => {
                deleted(self.delete_locked(name))?;
                self.create_locked(name)
            }
            // Deleted by another since.
            Err(error) if error.is_not_found() => self.create_locked(name),
            outcome => outcome,
        }
    }

    /// Unmounts the namespace and removes its file. The kernel ends the namespace, and with it every virtual link in it, once
    /// nothing else holds it: no process, no open [`Namespace`] or [`Handle`](crate::Handle).
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        self.path(name)?;
        let _lock = self.lock()?;
        self.delete_locked(name)
    }

    fn create_locked(&self, name: &str) -> Result<Namespace, Error> {
        let path = self.path(name)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path);
        file.map_err(|source| Error::File { operation: "creating namespace", path: path.clone(), source })?;
        mount_new_namespace(&path).and_then(|()| self.open(name)).inspect_err(|_| {
            // The first error is the one to report; what is left, if anything, the caller's own teardown finds.
            let _ = self.delete_locked(name);
        })
    }

    fn delete_locked(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name)?;
        let failed = |operation, source| Error::File { operation, path: path.clone(), source };
        let mut teardown = Teardown::new("deleting a namespace");
        loop {
            match umount2(&path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {} // there may be another below
                Err(Errno::EINVAL | Errno::ENOENT) => break,
                Err(errno) => {
                    teardown.step::<()>(Err(failed("unmounting namespace", errno.into())));
                    break;
                }
            }
        }
        match fs::remove_file(&path).map_err(|source| failed("deleting namespace", source)) {
            Err(error) if error.is_not_found() => return Err(error),
            outcome => teardown.step(outcome),
        };
        teardown.finish()
    }

    /// Deletes the namespace; says whether it was there.
    pub fn delete_if_exists(&self, name: &str) -> Result<bool, Error> {
        deleted(self.delete(name))
    }

    /// Deletes every namespace in the directory, then the directory if nothing else is in it. Goes on past errors and
    /// reports them all.
    pub fn delete_all(&self) -> Result<(), Error> {
        let mut teardown = Teardown::new("deleting all namespaces");
        for name in teardown.step(self.list()).unwrap_or_default() {
            teardown.step(self.delete(&name));
        }
        match fs::remove_dir(&self.directory) {
            Err(source) if source.kind() != io::ErrorKind::DirectoryNotEmpty => {
                let path = self.directory.clone();
                teardown.step::<()>(Err(Error::File { operation: "deleting directory", path, source }));
            }
            _ => {}
        }
        teardown.finish()
    }

    /// The names in the directory, sorted, those of half-made namespaces among them. No directory: no names.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let failed =
            |source| Error::File { operation: "listing namespaces in", path: self.directory.clone(), source };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Ours are files with names that we can have given.
            if let (Ok(name), true) =
                (entry.file_name().into_string(), entry.file_type().is_ok_and(|kind| kind.is_file()))
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Between its file and its mount a namespace is half made. Who holds the lock sees none that another is making: those that
    /// it sees, a killed process left. The kernel releases the lock with the process.
    fn lock(&self) -> Result<File, Error> {
        let locked = File::open(&self.directory).and_then(|directory| directory.lock().map(|()| directory));
        locked.map_err(|source| Error::File {
            operation: "locking the directory of namespaces",
            path: self.directory.clone(),
            source,
        })
    }

    /// A name is a file's name: no way out of the directory.
    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let invalid = |rule| Err(Error::Invalid { object: format!("a namespace called {name:?}"), rule });
        match name {
            "" | "." | ".." => invalid("the name must name a file"),
            _ if name.len() > 200 => invalid("the name must not be longer than 200 bytes"),
            _ if name.contains(['/', '\0']) => invalid("the name must not contain a slash or a null"),
            _ => Ok(self.directory.join(name)),
        }
    }
}

/// Makes a namespace by leaving one, on a thread that ends there; the mount keeps it.
fn mount_new_namespace(path: &Path) -> Result<(), Error> {
    let failed =
        |source| Error::File { operation: "mounting a new namespace on", path: path.to_owned(), source };
    let work = || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        mount(Some("/proc/thread-self/ns/net"), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work);
        match thread.map_err(failed)?.join() {
            Ok(outcome) => outcome.map_err(|errno| failed(errno.into())),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// A namespace that is deleted when this is dropped.
#[derive(Debug)]
pub struct NamespaceGuard {
    namespaces: Namespaces,
    namespace: Namespace,
    armed: bool,
}

impl NamespaceGuard {
    /// Deletes the namespace now, and says if that failed.
    pub fn close(mut self) -> Result<(), Error> {
        self.armed = false;
        self.namespaces.delete_if_exists(self.namespace.name()).map(drop)
    }

    /// Lets the namespace live on.
    pub fn keep(mut self) -> Namespace {
        self.armed = false;
        self.namespace.clone()
    }
}

impl Deref for NamespaceGuard {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Drop for NamespaceGuard {
    fn drop(&mut self) {
        if self.armed
            && let Err(error) = self.namespaces.delete_if_exists(self.namespace.name())
        {
            tracing::warn!(namespace = self.namespace.name(), %error, "a namespace could not be deleted");
        }
    }
}
