//! Volumes that are places: directories of the node, of the pod, in memory; and parts of volumes.

use std::fs::{self, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource};
use nix::mount::MsFlags;

use crate::runtime::rootfs::Mounts;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("host path {path:?} is not {wanted}")]
    NotOfType { path: String, wanted: &'static str },
    #[error("{kind:?} is not a type of host path")]
    UnknownType { kind: String },
    #[error("host path {path:?} is not absolute")]
    Relative { path: String },
    #[error("medium {medium:?} of an emptyDir is not supported: the node has \"\" and \"Memory\"")]
    Medium { medium: String },
    #[error("the sizeLimit of an emptyDir")]
    Size(#[source] api::quantity::QuantityError),
    #[error("subPath {path:?} leads out of its volume")]
    Outside { path: String },
    #[error("{operation} {} failed", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { operation, path: path.to_owned(), source }
}

/// A path of the node, of the type that is asked for; made if that type says so.
pub(super) fn host(volume: &HostPathVolumeSource) -> Result<PathBuf, Error> {
    let path = Path::new(&volume.path);
    if !path.is_absolute() {
        return Err(Error::Relative { path: volume.path.clone() });
    }
    let kind = volume.type_.as_deref().unwrap_or_default();
    if matches!(kind, "" | "DirectoryOrCreate") && !path.exists() {
        fs::create_dir_all(path).map_err(failed("making", path))?;
    }
    if kind == "FileOrCreate" && !path.exists() {
        // Its directory is not made: that is what the type says.
        let file = OpenOptions::new().append(true).create(true).mode(0o644).open(path);
        file.map_err(failed("making", path))?;
    }
    let (wanted, is): (_, fn(&FileType) -> bool) = match kind {
        "" => return Ok(path.to_owned()),
        "Directory" | "DirectoryOrCreate" => ("a directory", FileType::is_dir),
        "File" | "FileOrCreate" => ("a file", FileType::is_file),
        "Socket" => ("a socket", FileType::is_socket),
        "CharDevice" => ("a character device", FileType::is_char_device),
        "BlockDevice" => ("a block device", FileType::is_block_device),
        other => return Err(Error::UnknownType { kind: other.to_owned() }),
    };
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.map_err(failed("looking at", path))?),
    };
    match found {
        Some(found) if is(&found.file_type()) => Ok(path.to_owned()),
        _ => Err(Error::NotOfType { path: volume.path.clone(), wanted }),
    }
}

/// A directory that begins empty and lives as long as the pod.
pub(super) fn empty(path: &Path, volume: &EmptyDirVolumeSource, group: Option<u32>) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(failed("making", path))?;
    match volume.medium.as_deref().unwrap_or_default() {
        "" => {}
        "Memory" => mount_memory(path, volume)?,
        other => return Err(Error::Medium { medium: other.to_owned() }),
    }
    let mode = if group.is_some() { 0o2777 } else { 0o777 };
    chown(path, None, group).map_err(failed("giving to the pod's group", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("opening", path))
}

fn mount_memory(path: &Path, volume: &EmptyDirVolumeSource) -> Result<(), Error> {
    let mounts = Mounts::read().map_err(failed("reading", Path::new("/proc/self/mountinfo")))?;
    if mounts.is_point(path) {
        return Ok(());
    }
    let size = volume.size_limit.as_ref().map(api::quantity::whole).transpose().map_err(Error::Size)?;
    let options = size.map(|bytes| format!("size={bytes}"));
    nix::mount::mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), options.as_deref())
        .map_err(|errno| failed("mounting memory on", path)(errno.into()))
}

/// A part of a volume, which is made as a directory if it is not there. Wherever links in the volume lead, it is inside.
pub(super) fn part(volume: &Path, sub_path: &str) -> Result<PathBuf, Error> {
    let outside = || Error::Outside { path: sub_path.to_owned() };
    if !Path::new(sub_path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(outside());
    }
    let root = fs::canonicalize(volume).map_err(failed("looking for", volume))?;
    let mut place = root.clone();
    // One step at a time, so that nothing is made on the far side of a link that leads out.
    for step in Path::new(sub_path).components() {
        let next = place.join(step);
        match fs::create_dir(&next) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("making", &next)(error));
            }
            _ => {}
        }
        place = fs::canonicalize(&next).map_err(failed("looking for", &next))?;
        if !place.starts_with(&root) {
            return Err(outside());
        }
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use super::*;

    #[test]
    fn a_host_path_is_what_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let host = |path: &str, kind: &str| {
            host(&HostPathVolumeSource { path: path.to_owned(), type_: Some(kind.to_owned()) })
        };
        fs::write(path("file"), "kept").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for (name, kind) in [
            ("file", "File"),
            ("file", "FileOrCreate"),
            ("new-file", "FileOrCreate"),
            ("new/dir", "DirectoryOrCreate"),
            ("new/dir", "Directory"),
            ("any", ""),
            ("socket", "Socket"),
        ] {
            assert_eq!(host(&path(name), kind).unwrap(), Path::new(&path(name)), "{name} {kind}");
        }
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "kept");
        host("/dev/null", "CharDevice").unwrap();
        for (name, kind, wanted) in [
            ("file", "Directory", "a directory"),
            ("file", "DirectoryOrCreate", "a directory"),
            ("missing", "Directory", "a directory"),
            ("missing", "File", "a file"),
            ("file", "Socket", "a socket"),
            ("file", "CharDevice", "a character device"),
            ("file", "BlockDevice", "a block device"),
        ] {
            let text = host(&path(name), kind).unwrap_err().to_string();
            assert_eq!(text, format!("host path {:?} is not {wanted}", path(name)));
        }
        assert!(matches!(host("relative", ""), Err(Error::Relative { .. })));
        assert!(matches!(host("/", "Folder"), Err(Error::UnknownType { .. })));
    }

    #[test]
    fn a_part_of_a_volume_is_inside_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("file"), "").unwrap();
        std::os::unix::fs::symlink("..", volume.join("out")).unwrap();
        std::os::unix::fs::symlink("file", volume.join("link")).unwrap();
        assert_eq!(part(&volume, "a/b").unwrap(), volume.join("a/b"));
        assert!(volume.join("a/b").is_dir());
        assert_eq!(part(&volume, "link").unwrap(), volume.join("file"));
        for path in ["../x", "/etc", "a/../../x", "out", "out/made"] {
            assert!(matches!(part(&volume, path), Err(Error::Outside { .. })), "{path}");
        }
        assert!(!directory.path().join("made").exists());
    }
}
