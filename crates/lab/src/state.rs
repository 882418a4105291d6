//! A lab's directory: where everything of it is, and whether it runs.
//!
//! The keeper holds a lock on a file in it for as long as the lab runs. The kernel says who holds it, so there is no file
//! with a process number that could be stale.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::Pid;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::topology::Topology;

/// Where labs are kept unless `GODWIT_LABS` says otherwise.
const LABS: &str = "/var/lib/godwit/labs";

/// A lab by its name, whether it is there or not.
#[derive(Debug, Clone)]
pub struct Lab {
    pub name: String,
    directory: PathBuf,
}

impl Lab {
    pub fn named(name: &str) -> Result<Self, Error> {
        let fits = (1..=20).contains(&name.len());
        if !fits
            || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        {
            return Err(Error::Name { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), directory: labs_directory().join(name) })
    }

    /// The lab whose directory this is.
    pub fn at(directory: &Path) -> Result<Self, Error> {
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, directory: directory.to_owned() })
    }

    /// Every lab of this machine, running or not.
    pub fn all() -> Result<Vec<Self>, Error> {
        let directory = labs_directory();
        let entries = match std::fs::read_dir(&directory) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(Error::file("listing", &directory))?,
        };
        let mut labs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(Error::file("listing", &directory))?;
            if entry.path().is_dir() {
                labs.push(Self::at(&entry.path())?);
            }
        }
        labs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(labs)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn exists(&self) -> bool {
        self.directory.exists()
    }

    /// The program that this lab runs: a copy, so that a new build does not disturb it.
    pub fn program(&self) -> PathBuf {
        self.directory.join("godwit")
    }

    pub fn images(&self) -> PathBuf {
        self.directory.join("images")
    }

    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    pub fn log(&self, process: &str) -> PathBuf {
        self.logs().join(format!("{process}.log"))
    }

    pub fn cluster(&self, cluster: &str) -> PathBuf {
        self.directory.join("clusters").join(cluster)
    }

    /// The administrator's way in.
    pub fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.cluster(cluster).join("kubeconfig")
    }

    pub fn node(&self, node: &str) -> PathBuf {
        self.directory.join("nodes").join(node)
    }

    /// The parent of the cgroups of this lab's containers, below each hierarchy.
    pub fn cgroup(&self) -> String {
        // Labs of one name may be in several directories.
        let hash = Sha256::digest(self.directory.as_os_str().as_encoded_bytes());
        let id = hash.iter().take(4).fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
        format!("/godwit-{}-{id:08x}", self.name)
    }

    fn topology_file(&self) -> PathBuf {
        self.directory.join("lab.json")
    }

    pub fn topology(&self) -> Result<Topology, Error> {
        let path = self.topology_file();
        let text = std::fs::read(&path).map_err(Error::file("reading", &path))?;
        serde_json::from_slice(&text).map_err(|source| Error::State { path, source })
    }

    pub(crate) fn write_topology(&self, topology: &Topology) -> Result<(), Error> {
        let path = self.topology_file();
        let text = serde_json::to_vec_pretty(topology)
            .map_err(|source| Error::State { path: path.clone(), source })?;
        identity::write_private(&path, &text)?;
        Ok(())
    }

    fn lock_file(&self) -> PathBuf {
        self.directory.join("lock")
    }

    /// The process that keeps the lab running; none: it does not run.
    pub fn keeper(&self) -> Result<Option<Pid>, Error> {
        let path = self.lock_file();
        let file = match File::open(&path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(Error::file("opening", &path))?,
        };
        let mut lock = whole_file();
        fcntl(&file, FcntlArg::F_GETLK(&mut lock)).map_err(Error::kernel("asking for the lab's lock"))?;
        Ok((i32::from(lock.l_type) != libc::F_UNLCK).then(|| Pid::from_raw(lock.l_pid)))
    }

    /// Makes this process the keeper, for as long as the file is open; `None` if there is one.
    pub(crate) fn lock(&self) -> Result<Option<File>, Error> {
        let path = self.lock_file();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::file("opening", &path))?;
        match fcntl(&file, FcntlArg::F_SETLK(&whole_file())) {
            Ok(_) => Ok(Some(file)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
            Err(errno) => Err(Error::kernel("taking the lab's lock")(errno)),
        }
    }
}

fn labs_directory() -> PathBuf {
    std::env::var_os("GODWIT_LABS").map_or_else(|| PathBuf::from(LABS), PathBuf::from)
}

fn whole_file() -> libc::flock {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the kernel's own constants fit the kernel's own fields"
    )]
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
