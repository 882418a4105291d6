//! Files that only their owner may read.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::Error;

/// Writes a file with mode 0600, whole or not at all: readers see the old content or the new.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.display().to_string(), source };
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = Path::new(&partial);
    let write = || -> std::io::Result<()> {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(partial, path)
    };
    write().map_err(failed)
}
