//! The files behind the disks: made where they are to be made, found where they are to be found, and given to QEMU's user.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::cloud_init::{self, CloudInitError};
use crate::domain::DiskFacts;
use crate::hypervisor::QEMU_USER;
use crate::plan::{Disk, Source, claim_file};

/// Why a disk is not there.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("disk {disk}: {operation} {}", path.display())]
    File { disk: String, operation: &'static str, path: PathBuf, source: io::Error },
    #[error("disk {disk}")]
    Settings { disk: String, source: CloudInitError },
}

/// Makes or finds what each disk shows.
pub fn provide(disks: &[Disk]) -> Result<Vec<DiskFacts>, DiskError> {
    disks.iter().map(provide_one).collect()
}

fn provide_one(disk: &Disk) -> Result<DiskFacts, DiskError> {
    let failed = |operation, path: &Path| {
        let (disk, path) = (disk.name.clone(), path.to_owned());
        move |source| DiskError::File { disk, operation, path, source }
    };
    let mut path = disk.source.path().to_owned();
    match &disk.source {
        Source::File { create: None, .. } => {}
        Source::File { create: Some(size), .. } | Source::Empty { size, .. } => {
            create(&path, *size).map_err(failed("making", &path))?;
        }
        Source::Claim { .. } => {
            let found = fs::metadata(&path).map_err(failed("looking at", &path))?;
            if found.is_dir() {
                path = claim_file(&path);
            }
        }
        Source::Settings { settings, .. } => {
            let image = cloud_init::image(settings)
                .map_err(|source| DiskError::Settings { disk: disk.name.clone(), source })?;
            write(&path, &image).map_err(failed("writing", &path))?;
        }
    }
    let found = fs::metadata(&path).map_err(failed("looking at", &path))?;
    let given = std::os::unix::fs::chown(&path, Some(QEMU_USER), Some(QEMU_USER));
    // What is only read may be readable as it is.
    if !disk.read_only {
        given.map_err(failed("giving to the hypervisor's user", &path))?;
    }
    Ok(DiskFacts {
        block: found.file_type().is_block_device(),
        direct: can_bypass_cache(&path),
        path: path.display().to_string(),
    })
}

/// A file without content takes no room until it is written. One that is there stays as it is.
fn create(path: &Path, size: u64) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file.set_len(size),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, content)
}

/// Some file systems refuse it when the file is opened.
fn can_bypass_cache(path: &Path) -> bool {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    OpenOptions::new().read(true).custom_flags(direct).open(path).is_ok()
}
