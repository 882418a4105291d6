//! First-boot settings as a disk that cloud-init's NoCloud finds: a file system called `cidata`.

use std::{fs, io, path::PathBuf};

use crate::fat;
use crate::plan::{Content, Settings};

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum CloudInitError {
    #[error("reading first-boot settings at {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(transparent)]
    TooLarge(#[from] fat::TooLarge),
}

/// The bytes of the disk.
pub fn image(settings: &Settings) -> Result<Vec<u8>, CloudInitError> {
    let user_data = read(settings.user_data.as_ref())?.unwrap_or_else(|| b"#cloud-config\n".to_vec());
    let network = read(settings.network_data.as_ref())?;
    let meta_data = serde_json::json!({
        "instance-id": settings.instance,
        "local-hostname": settings.hostname,
    });
    let meta_data = meta_data.to_string(); // JSON is YAML
    let mut files = vec![("user-data", user_data.as_slice()), ("meta-data", meta_data.as_bytes())];
    if let Some(network) = &network {
        files.push(("network-config", network));
    }
    Ok(fat::image("cidata", &files)?)
}

fn read(content: Option<&Content>) -> Result<Option<Vec<u8>>, CloudInitError> {
    match content {
        None => Ok(None),
        Some(Content::Bytes(bytes)) => Ok(Some(bytes.clone())),
        Some(Content::File(path)) => match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) => Err(CloudInitError::Read { path: path.clone(), source }),
        },
    }
}
