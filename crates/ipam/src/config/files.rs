//! Where a node keeps what holds for all networks: a file of settings and a kubeconfig.
//!
//! Ours first, then where whereabouts is installed, so that a node that has either needs nothing new.

use std::io;
use std::path::{Path, PathBuf};

use super::Config;
use crate::Error;

const SETTINGS: [&str; 4] = [
    "/etc/cni/net.d/godwit.d/godwit-ipam.conf",
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
];
const KUBECONFIGS: [&str; 2] =
    ["/etc/cni/net.d/godwit.d/godwit.kubeconfig", "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"];

/// With the settings of the node. A file that the configuration names must be there.
pub(crate) fn complete(config: Config) -> Result<Config, Error> {
    if let Some(path) = config.configuration_path() {
        let text = std::fs::read(&path).map_err(|source| Error::File { path: path.clone(), source })?;
        return with(config, &path, &text);
    }
    for path in SETTINGS.map(Path::new) {
        match std::fs::read(path) {
            Ok(text) => return with(config, path, &text),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::File { path: path.to_owned(), source }),
        }
    }
    Ok(config)
}

fn with(config: Config, path: &Path, text: &[u8]) -> Result<Config, Error> {
    config
        .with_file(text)
        .map_err(|source| Error::Settings { path: path.to_owned(), source: Box::new(source) })
}

/// The kubeconfig to use.
pub(crate) fn kubeconfig(config: &Config) -> Result<PathBuf, Error> {
    if let Some(path) = config.kubeconfig() {
        return Ok(path);
    }
    let found = KUBECONFIGS.map(PathBuf::from).into_iter().find(|path| path.exists());
    found.ok_or_else(|| Error::NoKubeconfig { looked: KUBECONFIGS.join(", ") })
}
