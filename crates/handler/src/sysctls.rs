//! The network settings of a launcher's own namespace, which its container shows it read-only.
//!
//! libvirt and the launcher set things below `/proc/sys/net` when they make a bridge. A container has all of `/proc/sys` read-only,
//! because most of it is the node's and root may write it. What is below `net` is not: there the kernel shows each process the settings
//! of its own network namespace, and lets it change them if it may administer that. So that part alone is mounted writable over
//! the rest, in the launcher's mount namespace, as seen from the node.
//!
//! It never touches another directory, nor a container that has it writable already.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

const NETWORK: &str = "/proc/sys/net";

/// The settings cannot be made writable.
#[derive(Debug, thiserror::Error)]
#[error("{step} for process {process}: the settings in {NETWORK} cannot be made writable for the launcher")]
pub struct SysctlError {
    process: i32,
    step: &'static str,
    #[source]
    source: io::Error,
}

/// Lets the launcher, which is this process, change the settings of its network namespace.
pub async fn open_to(process: i32) -> Result<(), SysctlError> {
    let failed = |step| move |source| SysctlError { process, step, source };
    let mounts =
        fs::read_to_string(format!("/proc/{process}/mountinfo")).map_err(failed("reading mounts"))?;
    if is_writable(&mounts) {
        return Ok(());
    }
    let moved = tokio::task::spawn_blocking(move || {
        // A thread of its own, which ends: no other work may ever find itself among the files of a container.
        let work = thread::Builder::new().name("sysctls".to_owned()).spawn(move || mount_for(process))?;
        work.join().unwrap_or_else(|_| Err(io::Error::other("the thread that mounts ended")))
    });
    moved.await.unwrap_or_else(|cause| Err(io::Error::other(cause))).map_err(failed("mounting"))
}

/// Takes the directory as the node has it into the mount namespace of the process. This thread is not to be used any more.
fn mount_for(process: i32) -> io::Result<()> {
    let namespace = |process: i32| File::open(format!("/proc/{process}/ns/mnt"));
    let (node, launcher) = (namespace(1)?, namespace(process)?);
    // A root directory that threads share cannot be changed for one of them.
    unshare(CloneFlags::CLONE_FS)?;
    setns(&node, CloneFlags::CLONE_NEWNS)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let settings: OwnedFd = open_tree(CWD, NETWORK, flags)?;
    setns(&launcher, CloneFlags::CLONE_NEWNS)?;
    move_mount(&settings, "", CWD, NETWORK, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Whether the mount that the settings are on can be written to.
fn is_writable(mountinfo: &str) -> bool {
    let mut found: Option<(&str, bool)> = None;
    for line in mountinfo.lines() {
        let mut fields = line.split(' ').skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else { continue };
        let holds = NETWORK == point || NETWORK.strip_prefix(point).is_some_and(|rest| rest.starts_with('/'));
        // Of two at one place, the later is on top.
        if (holds || point == "/") && found.is_none_or(|(other, _)| point.len() >= other.len()) {
            found = Some((point, options.split(',').any(|option| option == "rw")));
        }
    }
    found.is_some_and(|(_, writable)| writable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let root = "20 1 0:1 / / ro,relatime - overlay overlay rw";
        let proc = "21 20 0:2 / /proc rw,nosuid - proc proc rw";
        let masked = "22 21 0:2 /sys /proc/sys ro,nosuid - proc proc rw";
        let other = "23 21 0:2 /sysrq /proc/sysrq-trigger rw - proc proc rw";
        let opened = "24 22 0:2 /sys/net /proc/sys/net rw,nosuid - proc proc rw";
        for (mounts, writable) in [
            (vec![root], false),
            (vec![root, proc], true),
            (vec![root, proc, masked, other], false),
            (vec![root, proc, masked, other, opened], true),
            (vec![], false),
        ] {
            assert_eq!(is_writable(&mounts.join("\n")), writable, "{mounts:?}");
        }
    }
}
