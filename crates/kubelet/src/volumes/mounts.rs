//! What a container mounts of its pod's volumes.

use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};

use super::{Error, Published, place};
use crate::environment::{Unresolved, expand};
use crate::runtime::{Mount, Propagation};

/// The mounts of a container, of volumes that are published. Parts of volumes that are not there are made.
pub fn mounts(
    pod: &Pod,
    container: &Container,
    published: &Published,
    environment: &[(String, String)],
) -> Result<Vec<Mount>, Error> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let one = |mount: &VolumeMount| {
        let undeclared = || Error::Undeclared { volume: mount.name.clone() };
        let volume = volumes.iter().find(|volume| volume.name == mount.name).ok_or_else(undeclared)?;
        let path = published.paths.get(&mount.name).ok_or_else(undeclared)?;
        let source = match sub_path(mount, environment)? {
            Some(part) => place::part(path, &part)
                .map_err(|source| Error::Place { volume: mount.name.clone(), source })?,
            None => path.clone(),
        };
        Ok(Mount {
            source,
            destination: mount.mount_path.clone().into(),
            read_only: mount.read_only.unwrap_or(false) || is_ours(volume),
            propagation: propagation(mount)?,
        })
    };
    container.volume_mounts.iter().flatten().map(one).collect()
}

/// What comes from the API is published by the agent, and nobody else writes it. An image is for all who use it.
fn is_ours(volume: &Volume) -> bool {
    volume.host_path.is_none() && volume.empty_dir.is_none()
}

fn sub_path(mount: &VolumeMount, environment: &[(String, String)]) -> Result<Option<String>, Error> {
    if let Some(text) = mount.sub_path_expr.as_ref().filter(|text| !text.is_empty()) {
        let expanded = expand(text, environment, Unresolved::Refuse);
        return expanded.map(Some).ok_or_else(|| Error::Expression { text: text.clone() });
    }
    Ok(mount.sub_path.clone().filter(|path| !path.is_empty()))
}

fn propagation(mount: &VolumeMount) -> Result<Propagation, Error> {
    match mount.mount_propagation.as_deref().unwrap_or("None") {
        "None" => Ok(Propagation::Private),
        "HostToContainer" => Ok(Propagation::HostToContainer),
        "Bidirectional" => Ok(Propagation::Bidirectional),
        other => Err(Error::Propagation { propagation: other.to_owned() }),
    }
}
