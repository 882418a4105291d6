//! The cgroup of a container, in every hierarchy: whether memory ran out in it, and its end.
//!
//! The OCI runtime makes it. We only read, kill what is left in it, and remove it: the backstop for a runtime that was
//! killed half-way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::process::Handle;

const MOUNTED: &str = "/sys/fs/cgroup";
/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where its directory is, or would be: one a hierarchy (version 1), or one (version 2).
fn directories(cgroup: &str) -> io::Result<Vec<PathBuf>> {
    let cgroup = cgroup.trim_start_matches('/');
    let mut found = vec![Path::new(MOUNTED).join(cgroup)];
    for hierarchy in fs::read_dir(MOUNTED)? {
        found.push(hierarchy?.path().join(cgroup));
    }
    Ok(found)
}

/// Whether the kernel killed a process of the container for want of memory.
pub fn ran_out_of_memory(cgroup: &str) -> bool {
    let cgroup = cgroup.trim_start_matches('/');
    let mounted = Path::new(MOUNTED);
    let accounts = [
        mounted.join("memory").join(cgroup).join("memory.oom_control"),
        mounted.join(cgroup).join("memory.events"),
    ];
    // A kernel that does not count cannot tell: the exit code is reported all the same.
    accounts.iter().filter_map(|account| fs::read_to_string(account).ok()).any(|text| killed(&text))
}

/// Both versions have the same line.
fn killed(text: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

/// Kills what is in it, and removes it and the pod's cgroup above it if no other container is there.
pub fn end(cgroup: &str) -> io::Result<()> {
    for directory in directories(cgroup)? {
        end_directory(&directory)?;
        if let Some(pod) = directory.parent() {
            // It may not be there, and another container of the pod may be in it.
            let _ = fs::remove_dir(pod);
        }
    }
    Ok(())
}

fn end_directory(directory: &Path) -> io::Result<()> {
    for entry in read_directory(directory)? {
        if entry.is_dir() {
            end_directory(&entry)?;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A process may start another one before it is killed, hence again until there is none.
        let processes = processes(directory)?;
        for process in &processes {
            process.signal(Signal::KILL)?;
        }
        for process in processes {
            process.ended_within(deadline.saturating_duration_since(Instant::now()))?;
        }
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                // The kernel lets go of a process a little after it has ended, and tells nobody.
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) if !is_absent(&error) => return Err(error),
            _ => return Ok(()),
        }
    }
}

/// Also below what is a file: one of the settings of version 2.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read_directory(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The processes that live there. One that has ended and waits to be reaped is in no cgroup's way.
fn processes(directory: &Path) -> io::Result<Vec<Handle>> {
    let text = match fs::read_to_string(directory.join("cgroup.procs")) {
        Ok(text) => text,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut alive = Vec::new();
    for pid in text.lines().filter_map(|line| line.parse().ok()) {
        if let Some(process) = Handle::open(pid)?
            && !process.ended_within(Duration::ZERO)?
        {
            alive.push(process);
        }
    }
    Ok(alive)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_account_of_memory_is_read() {
        assert!(super::killed("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"));
        assert!(!super::killed("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"));
        assert!(super::killed("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"));
        assert!(!super::killed("oom_kill_disable 1\nunder_oom 1\n"));
    }
}
