//! The volumes of a launcher pod: where the launcher finds what the disks hold.
//!
//! Places are those of [`api::names::paths`]: the launcher looks for each volume by its name, never for a path of the node.

use std::path::Path;

use api::kubevirt::{CloudInitNoCloud, HostDisk, HostDiskType, VirtualMachineInstance, Volume};
use api::names::paths;
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, KeyToPath,
    LocalObjectReference, PersistentVolumeClaimVolumeSource, PodSpec, ProjectedVolumeSource,
    SecretProjection, Volume as PodVolume, VolumeMount, VolumeProjection,
};

/// The hypervisor opens its taps through it.
const TUN: &str = "/dev/net/tun";
/// Adds every volume that the instance needs to its pod.
pub(super) fn mount_all(vmi: &VirtualMachineInstance, pod: &mut PodSpec, compute: &mut Container) {
    let mut mounts = Mounts::default();
    mounts.add(empty_directory(paths::PRIVATE_VOLUME), paths::PRIVATE, false);
    mounts.add(host_path("tun", TUN, "CharDevice"), TUN, false);
    if vmi.spec.volumes.iter().any(|volume| volume.empty_disk.is_some()) {
        mounts.add(empty_directory("empty-disks"), paths::EMPTY_DISKS, false);
    }
    for (index, volume) in vmi.spec.volumes.iter().enumerate() {
        mounts.add_users(volume, index);
    }
    let boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    if let Some(container) = boot.and_then(|boot| boot.container.as_ref()) {
        let image = ImageVolumeSource {
            reference: Some(container.image.clone()),
            pull_policy: container.image_pull_policy.map(|policy| policy.to_string()),
        };
        let volume = PodVolume { name: "kernel-boot".into(), image: Some(image), ..PodVolume::default() };
        mounts.add(volume, paths::KERNEL_BOOT, true);
        let secret = container.image_pull_secret.as_ref();
        pod.image_pull_secrets = secret.map(|name| vec![LocalObjectReference { name: name.clone() }]);
    }
    pod.volumes = Some(mounts.volumes);
    compute.volume_mounts = Some(mounts.mounts);
}

#[derive(Default)]
struct Mounts {
    volumes: Vec<PodVolume>,
    mounts: Vec<VolumeMount>,
}

impl Mounts {
    fn add(&mut self, volume: PodVolume, path: &str, read_only: bool) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path.to_owned(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }

    /// Named by its place: a user's name could be one of ours, or longer than a pod's volume may be called.
    fn add_users(&mut self, volume: &Volume, index: usize) {
        let name = format!("disk-{index}");
        let disk = format!("{}/{}", paths::DISKS, volume.name);
        if let Some(source) = &volume.host_disk {
            self.add(host_disk(&name, source), &disk, false);
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            let source = PersistentVolumeClaimVolumeSource {
                claim_name: claim.claim_name.clone(),
                read_only: claim.read_only,
            };
            let volume = PodVolume {
                name: name.clone(),
                persistent_volume_claim: Some(source),
                ..PodVolume::default()
            };
            self.add(volume, &disk, claim.read_only == Some(true));
        }
        if let Some(settings) = &volume.cloud_init_no_cloud
            && let Some(projected) = cloud_init(settings)
        {
            let secrets = PodVolume { name, projected: Some(projected), ..PodVolume::default() };
            self.add(secrets, &format!("{}/{}", paths::SECRETS, volume.name), true);
        }
    }
}

fn empty_directory(name: &str) -> PodVolume {
    PodVolume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..PodVolume::default() }
}

fn host_path(name: &str, path: &str, type_: &str) -> PodVolume {
    let source = HostPathVolumeSource { path: path.to_owned(), type_: Some(type_.to_owned()) };
    PodVolume { name: name.to_owned(), host_path: Some(source), ..PodVolume::default() }
}

/// The directory, not the file: the launcher may have to make the file.
fn host_disk(name: &str, disk: &HostDisk) -> PodVolume {
    let directory = Path::new(&disk.path).parent().unwrap_or(Path::new("/")).display().to_string();
    let type_ = match disk.type_ {
        HostDiskType::Disk => "Directory",
        HostDiskType::DiskOrCreate => "DirectoryOrCreate",
    };
    host_path(name, &directory, type_)
}

/// The secrets of first-boot settings, if there are any; what is written in the instance itself comes with the instance.
fn cloud_init(settings: &CloudInitNoCloud) -> Option<ProjectedVolumeSource> {
    let project = |secret: &Option<LocalObjectReference>, key: &str| {
        let item = KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None };
        let projection =
            SecretProjection { name: secret.as_ref()?.name.clone(), items: Some(vec![item]), optional: None };
        Some(VolumeProjection { secret: Some(projection), ..VolumeProjection::default() })
    };
    let sources: Vec<VolumeProjection> = [
        project(&settings.secret_ref, "userdata"),
        project(&settings.network_data_secret_ref, "networkdata"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!sources.is_empty()).then_some(ProjectedVolumeSource { sources: Some(sources), default_mode: None })
}
