//! The directories that plugins are looked for in.
//!
//! Absolute, chosen by the administrator, and never extended by a name.

use std::{
    fmt, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::ExecError;
use crate::PluginName;

/// `CNI_PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath {
    directories: Vec<PathBuf>,
    text: String,
}

/// A directory that cannot be in `CNI_PATH`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchPathError {
    /// No directory at all.
    #[error("there must be at least one CNI plugin directory")]
    Empty,
    /// Relative, or not writable as one of a list.
    #[error("CNI plugin directory {directory:?} must be an absolute path without ':' and control characters")]
    Directory {
        /// Which.
        directory: PathBuf,
    },
}

impl SearchPath {
    /// These directories, in this order.
    pub fn new<P: AsRef<Path>>(directories: impl IntoIterator<Item = P>) -> Result<Self, SearchPathError> {
        let mut texts = Vec::new();
        let mut kept = Vec::new();
        for directory in directories {
            let directory = directory.as_ref();
            let plain = |text: &&str| !text.contains(|c: char| c == ':' || c.is_control());
            match directory.to_str().filter(plain) {
                Some(text) if directory.is_absolute() => texts.push(text.to_owned()),
                _ => return Err(SearchPathError::Directory { directory: directory.to_owned() }),
            }
            kept.push(directory.to_owned());
        }
        if kept.is_empty() {
            return Err(SearchPathError::Empty);
        }
        Ok(Self { directories: kept, text: texts.join(":") })
    }

    /// The plugin's file: the first of its name that can be executed.
    pub(super) fn find(&self, plugin: &PluginName) -> Result<PathBuf, ExecError> {
        let executable = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        let mut candidates = self.directories.iter().map(|directory| directory.join(plugin.as_str()));
        candidates.find(executable).ok_or_else(|| ExecError::Missing { path: self.text.clone() })
    }
}

impl fmt::Display for SearchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
