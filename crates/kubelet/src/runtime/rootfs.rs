//! The container's root file system: an overlay over its image, in the mount namespace of the agent.
//!
//! The image is never written to. What the container writes is in its own directory, and goes with it.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};

use super::record::Directory;

/// Mounts the overlay. Nothing is mounted there yet.
pub fn mount(image: &Path, directory: &Directory) -> io::Result<()> {
    for part in [directory.root(), directory.upper(), directory.work()] {
        fs::create_dir_all(part)?;
    }
    let mut options = b"lowerdir=".to_vec();
    options.extend(escaped(image));
    options.extend(b",upperdir=");
    options.extend(escaped(&directory.upper()));
    options.extend(b",workdir=");
    options.extend(escaped(&directory.work()));
    let root = directory.root();
    nix::mount::mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(options.as_slice()))?;
    // The container mounts /proc and the like on it, which is nobody else's business.
    nix::mount::mount(None::<&str>, &root, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(())
}

/// Takes off whatever is mounted there; nothing is no error.
pub fn unmount(root: &Path) -> io::Result<()> {
    loop {
        match nix::mount::umount2(root, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// In the options of an overlay a colon ends a layer and a comma an option.
fn escaped(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b':' | b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

/// Mounts as the kernel lists them.
#[derive(Debug)]
pub struct Mounts(String);

impl Mounts {
    pub fn read() -> io::Result<Self> {
        fs::read_to_string("/proc/self/mountinfo").map(Self)
    }

    /// Whether the mount that holds this path passes on to others what is mounted in it.
    pub fn is_shared(&self, path: &Path) -> bool {
        let holds = |(point, _): &(String, bool)| path.starts_with(point);
        // Of mounts on the same point, the last one is what is seen.
        self.points()
            .filter(holds)
            .max_by_key(|(point, _)| Path::new(point).components().count())
            .is_some_and(|(_, shared)| shared)
    }

    /// Whether something is mounted on this path.
    pub fn is_point(&self, path: &Path) -> bool {
        self.points().any(|(point, _)| Path::new(&point) == path)
    }

    /// Mounts below this directory, or on it.
    pub fn below(&self, path: &Path) -> Vec<String> {
        self.points().map(|(point, _)| point).filter(|point| Path::new(point).starts_with(path)).collect()
    }

    fn points(&self) -> impl Iterator<Item = (String, bool)> {
        self.0.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            let point = fields.nth(4)?;
            let shared = fields.skip(1).take_while(|field| *field != "-").any(|f| f.starts_with("shared:"));
            Some((unescaped(point), shared))
        })
    }
}

/// Blanks and backslashes are written as three octal digits.
fn unescaped(point: &str) -> String {
    point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_where_and_shared_with_whom() {
        let mounts = Mounts(
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
             23 22 0:5 / /var/lib rw - tmpfs tmpfs rw\n\
             24 23 0:6 / /var/lib/with\\040blank rw shared:7 master:2 - tmpfs tmpfs rw\n"
                .into(),
        );
        assert!(mounts.is_shared(Path::new("/etc")));
        assert!(!mounts.is_shared(Path::new("/var/lib/x")));
        assert!(mounts.is_shared(Path::new("/var/lib/with blank/x")));
        assert_eq!(mounts.below(Path::new("/var")), ["/var/lib", "/var/lib/with blank"]);
        assert!(mounts.below(Path::new("/var/li")).is_empty());
    }

    #[test]
    fn a_path_cannot_end_its_option() {
        assert_eq!(escaped(Path::new("/a:b,c\\d")), b"/a\\:b\\,c\\\\d");
    }
}
