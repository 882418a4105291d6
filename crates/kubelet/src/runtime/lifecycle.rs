//! The life of a container, as effects on files, mounts and processes; each function waits for what it does.
//!
//! ```text
//!   task.json ─► overlay ─► config.json ─► shim (lock) ─► shim.json ─► pid.json ─► exit.json
//!   └──────────────────── Created ───────────────────────────────────┘ Running  └─ Exited
//! ```
//!
//! Invariant: what a container needs for its end is on disk before the thing that has to be ended exists.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use oci_spec::runtime::Capability;
use rustix::process::Signal;

use super::process::{self, Handle, Identity};
use super::record::{self, Directory, Started, Task};
use super::rootfs::{self, Mounts};
use super::{Container, ContainerId, Error, Exit, Options, Propagation, State, cgroup, exec, spec};
use crate::images::Images;

mod launch;

/// How long what was killed may take to be gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is said of a container whose end nobody saw.
const UNKNOWN: &str = "ContainerStatusUnknown";
const KILLED: i32 = 137;

/// Below the directory of state.
const CONTAINERS: &str = "containers";
const LOGS: &str = "logs";
const TRASH: &str = "trash";

#[derive(Debug)]
pub(super) struct Lifecycle {
    options: Options,
    images: Images,
    capabilities: Vec<Capability>,
    /// Changes to one container are made one after another.
    turns: Mutex<HashMap<ContainerId, Weak<Mutex<()>>>>,
}

impl Lifecycle {
    pub(super) fn open(mut options: Options) -> Result<Self, Error> {
        for path in [&mut options.state, &mut options.run, &mut options.images] {
            *path = std::path::absolute(&*path).map_err(file("looking for", path))?;
        }
        for path in [options.state.join(CONTAINERS), options.state.join(TRASH), options.run.clone()] {
            fs::create_dir_all(&path).map_err(file("making", &path))?;
        }
        let status = Path::new("/proc/self/status");
        let capabilities = spec::capabilities::own().map_err(file("reading", status))?;
        let images = Images::at(&options.images);
        let opened = Self { options, images, capabilities, turns: Mutex::default() };
        opened.empty_trash()?;
        opened.end_abandoned()?;
        Ok(opened)
    }

    /// Nobody waits any more for the commands that an earlier agent had begun.
    fn end_abandoned(&self) -> Result<(), Error> {
        for id in self.ids()? {
            let directory = self.directory(&id)?;
            let cgroup = cgroup_of(&self.options.cgroup_parent, &id);
            exec::end_abandoned(directory.path(), &cgroup)
                .map_err(file("ending abandoned commands of", directory.path()))?;
        }
        Ok(())
    }

    pub(super) fn images(&self) -> &Images {
        &self.images
    }

    pub(super) fn list(&self) -> Result<Vec<(ContainerId, State)>, Error> {
        let mut found = Vec::new();
        for id in self.ids()? {
            if let Some(state) = self.state(&id)? {
                found.push((id, state));
            }
        }
        Ok(found)
    }

    /// Of all containers that have a directory, in order.
    fn ids(&self) -> Result<Vec<ContainerId>, Error> {
        let path = self.options.state.join(CONTAINERS);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&path).map_err(file("listing", &path))? {
            let name = entry.map_err(file("listing", &path))?.file_name();
            ids.extend(name.to_str().and_then(record::id));
        }
        ids.sort();
        Ok(ids)
    }

    pub(super) fn state(&self, id: &ContainerId) -> Result<Option<State>, Error> {
        match self.observe(id)? {
            Observed::Known(state) => Ok(state),
            Observed::Lost(_) => self.turn(id, || match self.observe(id)? {
                Observed::Known(state) => Ok(state),
                Observed::Lost(started) => self.bury(id, &started).map(|exit| Some(State::Exited(exit))),
            }),
        }
    }

    pub(super) fn start(&self, container: &Container) -> Result<(), Error> {
        let id = &container.id;
        match self.state(id)? {
            Some(State::Running { .. } | State::Exited(_)) => return Ok(()),
            Some(State::Created) | None => {}
        }
        self.turn(id, || {
            match self.observe(id)? {
                Observed::Known(None) => {}
                Observed::Known(Some(State::Created)) => self.clear(id)?,
                Observed::Known(Some(_)) | Observed::Lost(_) => return Ok(()),
            }
            self.launch(container).inspect_err(|_| {
                if let Err(error) = self.clear(id) {
                    // The next start or remove of it tries again.
                    tracing::warn!(container = %id, %error, "what a failed start left could not be removed");
                }
            })
        })
    }

    pub(super) fn signal(&self, id: &ContainerId, signal: i32) -> Result<(), Error> {
        let directory = self.directory(id)?;
        let failed = |source| Error::System { id: id.clone(), operation: "sending it a signal", source };
        let signal = Signal::from_named_raw(signal).ok_or(Error::Signal { signal })?;
        if !directory.path().exists() {
            return Err(Error::Unknown { id: id.clone() });
        }
        match first_process(&directory).map_err(failed)? {
            Some(process) => process.signal(signal).map_err(failed),
            None => Ok(()),
        }
    }

    pub(super) fn remove(&self, id: &ContainerId) -> Result<(), Error> {
        let directory = self.directory(id)?;
        let failed = |source| Error::System { id: id.clone(), operation: "ending it", source };
        self.turn(id, || {
            if !directory.path().exists() {
                return Ok(());
            }
            // A shim that sees the end has the whole log, and tells everybody who waits.
            if let (Some(process), Some(shim)) = (first_process(&directory).map_err(failed)?, self.shim(id)?)
            {
                process.signal(Signal::KILL).map_err(failed)?;
                shim.ended_within(PATIENCE).map_err(failed)?;
            }
            self.clear(id)
        })
    }

    pub(super) fn log(&self, id: &ContainerId) -> PathBuf {
        self.options.state.join(LOGS).join(&id.pod).join(format!("{}_{}.log", id.container, id.attempt))
    }

    pub(super) fn remove_logs(&self, pod: &str) -> Result<(), Error> {
        let id = ContainerId { pod: pod.to_owned(), container: "any".to_owned(), attempt: 0 };
        record::name(&id).ok_or(Error::Name { id })?;
        let path = self.options.state.join(LOGS).join(pod);
        gone(fs::remove_dir_all(&path)).map_err(file("removing", &path))
    }

    /// The shim of this container, if it lives.
    pub(super) fn shim(&self, id: &ContainerId) -> Result<Option<Handle>, Error> {
        let directory = self.directory(id)?;
        holder(&directory).map_err(|source| Error::System {
            id: id.clone(),
            operation: "looking for its shim",
            source,
        })
    }

    /// How to run a command in this container.
    pub(super) fn exec(&self, id: &ContainerId) -> Result<exec::Place, Error> {
        Ok(exec::Place {
            runtime: self.options.runtime.clone(),
            run: self.options.run.clone(),
            name: name(id)?,
            directory: self.directory(id)?.path().to_owned(),
        })
    }

    /// What the files and the lock say.
    fn observe(&self, id: &ContainerId) -> Result<Observed, Error> {
        let directory = self.directory(id)?;
        let failed = |source| Error::System { id: id.clone(), operation: "reading its records", source };
        if !directory.path().exists() {
            return Ok(Observed::Known(None));
        }
        // In this order: a shim that ends after the first look has written before it ended.
        let alive = holder(&directory).map_err(failed)?.is_some();
        let state = if let Some(exit) = record::read(&directory.exit()).map_err(failed)? {
            State::Exited(exit)
        } else {
            match record::read::<Started>(&directory.started()).map_err(failed)? {
                Some(started) if alive => {
                    State::Running { pid: started.process.pid, started: started.started }
                }
                Some(started) => return Ok(Observed::Lost(started)),
                // Removed while we looked.
                None if !directory.path().exists() => return Ok(Observed::Known(None)),
                None => State::Created,
            }
        };
        Ok(Observed::Known(Some(state)))
    }

    /// The shim is gone and did not see the end: the container is ended now, if it was not before.
    fn bury(&self, id: &ContainerId, started: &Started) -> Result<Exit, Error> {
        let directory = self.directory(id)?;
        end(id, &directory)?;
        let exit = Exit {
            code: KILLED,
            started: started.started,
            finished: Timestamp::now(),
            reason: UNKNOWN.to_owned(),
        };
        record::write(&directory.exit(), &exit).map_err(file("writing", &directory.exit()))?;
        Ok(exit)
    }

    /// Ends it and removes every trace but its log, whatever is there.
    fn clear(&self, id: &ContainerId) -> Result<(), Error> {
        let directory = self.directory(id)?;
        end(id, &directory)?;
        rootfs::unmount(&directory.root()).map_err(file("unmounting", &directory.root()))?;
        // Moved first: no container is ever seen with half of its files.
        let trash = self.options.state.join(TRASH).join(format!("{}.{:016x}", name(id)?, fastrand::u64(..)));
        gone(fs::rename(directory.path(), &trash)).map_err(file("moving", directory.path()))?;
        empty(&trash)
    }

    fn empty_trash(&self) -> Result<(), Error> {
        let trash = self.options.state.join(TRASH);
        for entry in fs::read_dir(&trash).map_err(file("listing", &trash))? {
            empty(&entry.map_err(file("listing", &trash))?.path())?;
        }
        Ok(())
    }

    fn directory(&self, id: &ContainerId) -> Result<Directory, Error> {
        Ok(Directory::at(self.options.state.join(CONTAINERS).join(name(id)?)))
    }

    /// Runs `work` when nobody else works on this container.
    fn turn<T>(&self, id: &ContainerId, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let turn = turns.get(id).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(id.clone(), Arc::downgrade(&turn));
            turn
        };
        // It guards nothing in memory: after a panic the files are what they are.
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

/// What there is of a container.
enum Observed {
    Known(Option<State>),
    /// It was started, and nobody saw its end.
    Lost(Started),
}

fn name(id: &ContainerId) -> Result<String, Error> {
    record::name(id).ok_or_else(|| Error::Name { id: id.clone() })
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { operation, path, source }
}

/// For removing what may be gone already.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The shim that holds the lock of this directory.
fn holder(directory: &Directory) -> io::Result<Option<Handle>> {
    let Some(pid) = directory.holder()? else { return Ok(None) };
    let handle = Handle::open(pid.as_raw_nonzero().get().unsigned_abs())?;
    // The number may have become another's in between; the lock may not.
    Ok(handle.filter(|_| directory.holder().is_ok_and(|again| again == Some(pid))))
}

/// The cgroup of a container: below its pod's, below that of all containers.
fn cgroup_of(parent: &str, id: &ContainerId) -> String {
    format!("/{}/{}/{}_{}", parent.trim_matches('/'), id.pod, id.container, id.attempt)
}

/// Ends every process of it, and takes it out of the OCI runtime's and the kernel's books.
fn end(id: &ContainerId, directory: &Directory) -> Result<(), Error> {
    let failed = |operation| move |source| Error::System { id: id.clone(), operation, source };
    if let Some(shim) = holder(directory).map_err(failed("looking for its shim"))? {
        shim.signal(Signal::KILL).map_err(failed("ending its shim"))?;
        shim.ended_within(PATIENCE).map_err(failed("ending its shim"))?;
    }
    // What the shim had started may go on without it. Its number is nobody else's as long as it names a group.
    if let Some(shim) = record::read::<Identity>(&directory.shim()).map_err(failed("reading its records"))?
        && shim.is_not_another().map_err(failed("looking for its shim"))?
    {
        process::end_group(shim.pid, PATIENCE).map_err(failed("ending what its shim had started"))?;
    }
    let Some(task) = record::read::<Task>(&directory.task()).map_err(failed("reading its records"))? else {
        return Ok(());
    };
    let mut delete = Command::new(&task.runtime);
    delete.arg("--root").arg(&task.run).args(["delete", "--force", &task.name]);
    let deleted = process::run(&mut delete, PATIENCE).map_err(failed("deleting it by the container runtime"));
    // Also when the runtime has failed: whatever its books say, nothing is left in the cgroup.
    cgroup::end(&task.cgroup).map_err(failed("emptying its cgroup"))?;
    let (status, said) = deleted?;
    if !status.success() {
        tracing::warn!(container = %id, said, "the container runtime could not delete it; its files are removed");
    }
    // A runtime that was killed may have left its own program mounted there.
    empty(&task.run.join(&task.name))
}

/// The container's first process, if it lives.
fn first_process(directory: &Directory) -> io::Result<Option<Handle>> {
    match record::read::<Started>(&directory.started())? {
        Some(started) => started.process.open(),
        None => Ok(None),
    }
}

/// Deletes a directory in which nothing is mounted: deleting goes through mounts into what they show.
fn empty(path: &Path) -> Result<(), Error> {
    let mounts = Mounts::read().map_err(file("reading", Path::new("/proc/self/mountinfo")))?;
    for point in mounts.below(path) {
        rootfs::unmount(Path::new(&point)).map_err(file("unmounting", Path::new(&point)))?;
    }
    gone(fs::remove_dir_all(path)).map_err(file("removing", path))
}
