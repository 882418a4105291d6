//! What a container sees mounted: the kernel's file systems, then its volumes.

use std::path::Path;

use oci_spec::runtime::{Mount, MountBuilder};

use super::Error;
use crate::runtime::{Container, Propagation};

/// All mounts, in the order in which they are made.
pub(super) fn of(container: &Container) -> Result<Vec<Mount>, Error> {
    let privileged = container.security.privileged;
    let writable = if privileged { "rw" } else { "ro" };
    let mut mounts = vec![kernel("/proc", "proc", &["nosuid", "noexec", "nodev"])?];
    mounts.extend(devices(container)?);
    mounts.push(kernel("/sys", "sysfs", &["nosuid", "noexec", "nodev", writable])?);
    mounts.push(kernel("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", writable])?);
    // A volume inside another one is mounted after it.
    let mut volumes: Vec<_> = container.mounts.iter().collect();
    volumes.sort_by_key(|mount| mount.destination.components().count());
    for mount in volumes {
        let access = if mount.read_only { "ro" } else { "rw" };
        let propagation = match mount.propagation {
            Propagation::Private => "rprivate",
            Propagation::HostToContainer => "rslave",
            Propagation::Bidirectional => "rshared",
        };
        mounts.push(bind(&mount.source, &mount.destination, &["rbind", propagation, access])?);
    }
    Ok(mounts)
}

/// The node's own devices for a privileged container, else a few that every program expects.
fn devices(container: &Container) -> Result<Vec<Mount>, Error> {
    if container.security.privileged {
        let node = Path::new("/dev");
        return Ok(vec![bind(node, node, &["rbind", "rslave", "rw", "nosuid"])?]);
    }
    let mut mounts = vec![
        kernel("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        kernel(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        )?,
    ];
    if container.host_ipc {
        let shared = Path::new("/dev/shm");
        mounts.push(bind(shared, shared, &["rbind", "rprivate", "rw"])?);
    } else {
        mounts.push(kernel("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"])?);
    }
    // The queues belong to the IPC namespace that the container is in, its own or the node's.
    mounts.push(kernel("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"])?);
    Ok(mounts)
}

fn kernel(destination: &str, kind: &str, options: &[&str]) -> Result<Mount, Error> {
    Ok(MountBuilder::default()
        .destination(destination)
        .typ(kind)
        .source(kind)
        .options(owned(options))
        .build()?)
}

fn bind(source: &Path, destination: &Path, options: &[&str]) -> Result<Mount, Error> {
    Ok(MountBuilder::default()
        .destination(destination)
        .typ("bind")
        .source(source)
        .options(owned(options))
        .build()?)
}

fn owned(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}
