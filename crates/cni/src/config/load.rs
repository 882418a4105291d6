//! Where configurations come from: the node's directory, and definitions.
//!
//! A file that cannot be used never hides one that can, and is never passed over in silence.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use api::multus::NetworkAttachmentDefinition;
use serde_json::Value;

use super::{ConfigError, Network, object, parse};

/// How the names of configuration files end.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];

/// A network from a directory.
#[derive(Debug)]
pub struct Load {
    /// The network.
    pub network: Network,
    /// Its file.
    pub path: PathBuf,
    /// Files before it that cannot be used.
    pub skipped: Vec<Refused>,
}

/// A file that cannot be used, and why.
#[derive(Debug)]
pub struct Refused {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub cause: RefusedCause,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RefusedCause {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// It is no configuration.
    #[error("{}", crate::error::chain(.0))]
    Config(ConfigError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.cause)
    }
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The directory cannot be read.
    #[error("reading the CNI configurations in {} failed", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No file in it can be used.
    #[error("there is no usable CNI configuration in {}{}", directory.display(), listed(refused))]
    None {
        /// Which directory.
        directory: PathBuf,
        /// The files that are there.
        refused: Vec<Refused>,
    },
    /// No file in it is of this network.
    #[error("there is no CNI configuration of network {name:?} in {}{}", directory.display(), listed(refused))]
    NotNamed {
        /// The network.
        name: String,
        /// Which directory.
        directory: PathBuf,
        /// The files that cannot be used.
        refused: Vec<Refused>,
    },
    /// The definition's configuration cannot be used.
    #[error("NetworkAttachmentDefinition {definition}: spec.config")]
    Definition {
        /// Which.
        definition: String,
        /// Why.
        #[source]
        source: ConfigError,
    },
}

fn listed(refused: &[Refused]) -> String {
    refused.iter().fold(String::new(), |listed, refused| format!("{listed}; {refused}"))
}

/// The node's own network: the first usable file of the directory, by name.
pub fn default_network(directory: &Path) -> Result<Load, LoadError> {
    first(directory, |_| true)?
        .map_err(|refused| LoadError::None { directory: directory.to_owned(), refused })
}

/// The network of this name among the files of the directory.
pub fn named_network(directory: &Path, name: &str) -> Result<Load, LoadError> {
    first(directory, |network| network.name == name)?.map_err(|refused| LoadError::NotNamed {
        name: name.to_owned(),
        directory: directory.to_owned(),
        refused,
    })
}

/// The network of a definition: its configuration, with the definition's name if it names none; without a configuration, the
/// file of that name in the node's directory.
pub fn network_of_definition(
    definition: &NetworkAttachmentDefinition,
    directory: &Path,
) -> Result<Network, LoadError> {
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    let Some(config) = definition.config() else {
        return Ok(named_network(directory, name)?.network);
    };
    named_after(config.as_bytes(), name).map_err(|source| LoadError::Definition {
        definition: match &definition.metadata.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        },
        source,
    })
}

fn named_after(config: &[u8], name: &str) -> Result<Network, ConfigError> {
    let mut object = object(config)?;
    let unnamed = object.get("name").is_none_or(|name| name.is_null() || name == "");
    if unnamed {
        object.insert("name".to_owned(), Value::String(name.to_owned()));
    }
    Network::from_object(&object)
}

/// The first network that is wanted, or the files that cannot be used.
fn first(
    directory: &Path,
    wanted: impl Fn(&Network) -> bool,
) -> Result<Result<Load, Vec<Refused>>, LoadError> {
    let failed = |source| LoadError::Directory { directory: directory.to_owned(), source };
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
    let ends_well =
        |path: &PathBuf| path.extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known));
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(ends_well).collect();
    paths.sort();
    let mut skipped = Vec::new();
    for path in paths {
        let read = fs::read(&path).map_err(RefusedCause::Read);
        match read.and_then(|bytes| parse(&bytes).map_err(RefusedCause::Config)) {
            Ok(network) if wanted(&network) => return Ok(Ok(Load { network, path, skipped })),
            Ok(_) => {}
            Err(cause) => skipped.push(Refused { path, cause }),
        }
    }
    Ok(Err(skipped))
}
