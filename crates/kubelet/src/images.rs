//! The images of this node: names for root file systems that are on it already. Nothing is ever pulled.
//!
//! An image is an entry of one directory, its name percent-encoded as one file name: a directory, or a symbolic link to
//! one. Beside a `rootfs` directory there may be an `image.json` with the image's own command and environment; else the
//! directory itself is the root. The image called `host` is the node's own root and is always there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

/// The image that is always there.
pub const HOST: &str = "host";

/// What stays as it is in the file name of an image.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "image {name:?} is not on this node; registered are: {}", .registered.join(", ")
    )]
    Unknown { name: String, registered: Vec<String> },
    #[error("image {name:?} has no directory at {}: register it again", path.display())]
    Gone {
        name: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("an image cannot be called {name:?}")]
    Name { name: String },
    #[error("image {name:?}: {} is not an image configuration", path.display())]
    Configuration {
        name: String,
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{operation} {} failed", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A root file system, and how it wants to be run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub root: PathBuf,
    pub configuration: Configuration,
}

/// The content of `image.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<PathBuf>,
}

/// The registered images. Cheap to make: the directory is the truth.
#[derive(Debug, Clone)]
pub struct Images {
    directory: PathBuf,
}

impl Images {
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// The image of that name.
    pub fn get(&self, name: &str) -> Result<Image, Error> {
        if name == HOST {
            return Ok(Image { root: "/".into(), configuration: Configuration::default() });
        }
        let entry = self.entry(name)?;
        if fs::symlink_metadata(&entry).is_err() {
            return Err(Error::Unknown { name: name.to_owned(), registered: self.list()? });
        }
        let directory = fs::canonicalize(&entry).map_err(|source| Error::Gone {
            name: name.to_owned(),
            path: fs::read_link(&entry).unwrap_or(entry),
            source,
        })?;
        let root = directory.join("rootfs");
        let described = directory.join("image.json");
        match fs::read(&described) {
            Ok(bytes) => {
                let configuration = serde_json::from_slice(&bytes).map_err(|source| {
                    Error::Configuration { name: name.to_owned(), path: described, source }
                })?;
                Ok(Image { root, configuration })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Image { root: directory, configuration: Configuration::default() })
            }
            Err(source) => Err(Error::File { operation: "reading", path: described, source }),
        }
    }

    /// Makes `root` known by a name, in place of what had that name.
    pub fn register(&self, name: &str, root: &Path) -> Result<(), Error> {
        let root = fs::canonicalize(root).map_err(failed("looking for", root))?;
        self.link(name, &root)
    }

    /// The same for a root that is where the node sees it, and perhaps not where we are.
    pub fn link(&self, name: &str, root: &Path) -> Result<(), Error> {
        let entry = self.entry(name)?;
        fs::create_dir_all(&self.directory).map_err(failed("making", &self.directory))?;
        // `%` is never part of an encoded name but as the start of two digits.
        let partial = self.directory.join(format!("%{}", std::process::id()));
        let _ = fs::remove_file(&partial); // left by a process of the same number that was killed here
        std::os::unix::fs::symlink(root, &partial).map_err(failed("linking", &partial))?;
        fs::rename(&partial, &entry).map_err(failed("registering an image as", &entry))
    }

    /// Where the root of an image is, as the node sees it; none: it is no link.
    pub fn target(&self, name: &str) -> Option<PathBuf> {
        fs::read_link(self.entry(name).ok()?).ok()
    }

    /// The names of all images, sorted.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let mut names = vec![HOST.to_owned()];
        match fs::read_dir(&self.directory) {
            Ok(entries) => {
                for entry in entries {
                    let file = entry.map_err(failed("listing", &self.directory))?.file_name();
                    names.extend(file.to_str().and_then(decoded).filter(|name| name != HOST));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("listing", &self.directory)(error)),
        }
        names.sort();
        Ok(names)
    }

    fn entry(&self, name: &str) -> Result<PathBuf, Error> {
        let file = utf8_percent_encode(name, ENCODED).to_string();
        if file.is_empty() || file == "." || file == ".." || name == HOST {
            return Err(Error::Name { name: name.to_owned() });
        }
        Ok(self.directory.join(file))
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File { operation, path: path.to_owned(), source }
}

/// The image whose file this is; none if it is no image's.
fn decoded(file: &str) -> Option<String> {
    let name = percent_decode_str(file).decode_utf8().map(Cow::into_owned).ok()?;
    (utf8_percent_encode(&name, ENCODED).to_string() == file).then_some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says what it expects")]
    use super::*;

    #[test]
    fn a_name_with_a_path_in_it_is_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::at(directory.path().join("images"));
        assert_eq!(images.list().unwrap(), ["host"]);
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        images.register("godwit/launcher:1", &root).unwrap();
        images.register("godwit/launcher:1", &root).unwrap();
        assert!(directory.path().join("images/godwit%2Flauncher%3A1").is_symlink());
        assert_eq!(images.list().unwrap(), ["godwit/launcher:1", "host"]);
        assert_eq!(images.get("godwit/launcher:1").unwrap().root, fs::canonicalize(&root).unwrap());
        assert_eq!(images.get("host").unwrap().root, Path::new("/"));
    }

    #[test]
    fn an_image_may_say_how_it_is_run() {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::at(directory.path());
        let image = directory.path().join("tool");
        fs::create_dir_all(image.join("rootfs")).unwrap();
        fs::write(
            image.join("image.json"),
            r#"{"entrypoint":["/bin/tool"],"env":{"A":"b"},"workingDir":"/srv"}"#,
        )
        .unwrap();
        let found = images.get("tool").unwrap();
        assert_eq!(found.root, image.join("rootfs"));
        assert_eq!(found.configuration.entrypoint, ["/bin/tool"]);
        assert_eq!(found.configuration.working_dir.as_deref(), Some(Path::new("/srv")));
        fs::write(image.join("image.json"), r#"{"entryPoint":[]}"#).unwrap();
        assert!(matches!(images.get("tool"), Err(Error::Configuration { .. })));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::at(directory.path());
        fs::create_dir(directory.path().join("a")).unwrap();
        let text = images.get("docker.io/nginx").unwrap_err().to_string();
        assert_eq!(text, "image \"docker.io/nginx\" is not on this node; registered are: a, host");
        for name in ["", ".", ".."] {
            assert!(matches!(images.get(name), Err(Error::Name { .. })), "{name}");
        }
        std::os::unix::fs::symlink("/nonexistent", directory.path().join("b")).unwrap();
        assert!(matches!(images.get("b"), Err(Error::Gone { .. })));
        assert!(matches!(images.register("host", Path::new("/")), Err(Error::Name { .. })));
    }
}
