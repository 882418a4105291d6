//! A node's root file system: an overlay over the machine's own.
//!
//! A node sees every file of the machine, and what it changes is its own: a hostPath of one node is not that of another.
//! The machine's root itself is at [`HOST`], for images that lie on other file systems.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use crate::Error;
use crate::machine::mount_flags;

/// Where a node sees the machine's own root.
pub const HOST: &str = "/host";
/// Where a node finds its identity and its description.
pub const CONFIGURATION: &str = "/etc/godwit";
/// Where the agent keeps what survives a restart of the node.
pub const KUBELET: &str = "/var/lib/kubelet";
pub const IMAGES: &str = "/var/lib/godwit/images";

/// What a node's root is made of, outside of it.
pub(crate) struct Sources<'a> {
    /// The node's own directory.
    pub node: &'a Path,
    pub images: &'a Path,
}

impl Sources<'_> {
    pub(crate) fn configuration(&self) -> PathBuf {
        self.node.join("etc")
    }
}

/// Makes the node's root and moves into it.
pub(crate) fn enter(sources: &Sources<'_>) -> Result<(), Error> {
    let directory = |name: &str| {
        let path = sources.node.join(name);
        std::fs::create_dir_all(&path).map_err(Error::file("making", &path))?;
        Ok::<_, Error>(path)
    };
    let (upper, work, root) = (directory("root/upper")?, directory("root/work")?, directory("root/merged")?);
    let kubelet = directory("kubelet")?;
    let options = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
        .map_err(Error::kernel(format!("mounting an overlay at {}", root.display())))?;
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    bind(Path::new("/"), &inside(HOST), MsFlags::MS_REC)?;
    bind(Path::new("/dev"), &inside("/dev"), MsFlags::MS_REC)?;
    fresh("proc", &inside("/proc"))?;
    // The one that shows the links of the node's own network namespace.
    fresh("sysfs", &inside("/sys"))?;
    bind(Path::new("/sys/fs/cgroup"), &inside("/sys/fs/cgroup"), MsFlags::MS_REC)?;
    fresh("tmpfs", &inside("/run"))?;
    bind(&kubelet, &inside(KUBELET), MsFlags::empty())?;
    bind(sources.images, &inside(IMAGES), MsFlags::empty())?;
    bind(&sources.configuration(), &inside(CONFIGURATION), MsFlags::empty())?;
    chdir(&root).map_err(Error::kernel("entering the node's root"))?;
    // The old root is stacked below the new one, and taken away there.
    pivot_root(".", ".").map_err(Error::kernel("changing to the node's root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(Error::kernel("leaving the machine's root"))?;
    chdir("/").map_err(Error::kernel("entering the node's root"))?;
    // Containers may ask for mounts that propagate, and the node is where they propagate to.
    mount_flags("/", MsFlags::MS_REC | MsFlags::MS_SHARED)
}

fn bind(from: &Path, to: &Path, recursive: MsFlags) -> Result<(), Error> {
    make_directory(to)?;
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | recursive, None::<&str>)
        .map_err(Error::kernel(format!("binding {} to {}", from.display(), to.display())))
}

fn fresh(kind: &str, at: &Path) -> Result<(), Error> {
    make_directory(at)?;
    mount(Some(kind), at, Some(kind), MsFlags::empty(), None::<&str>)
        .map_err(Error::kernel(format!("mounting {kind} at {}", at.display())))
}

/// Some file systems have their mount points given, and take no new ones.
fn make_directory(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path).map_err(Error::file("making", path))
}
