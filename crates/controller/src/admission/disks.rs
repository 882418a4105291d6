//! Disks and volumes: each disk shows a volume, each volume is shown, and each has one source that can be used.

use std::collections::{BTreeMap, BTreeSet};

use api::kubevirt::{CloudInitNoCloud, HostDisk, HostDiskType, VirtualMachineInstanceSpec, Volume};
use api::quantity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Causes, is_label, is_subdomain};

pub(super) fn check(spec: &VirtualMachineInstanceSpec, path: &str, causes: &mut Causes) {
    check_disks(spec, path, causes);
    check_boot_order(spec, path, causes);
    let mut names = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let name = &volume.name;
        if !names.insert(name) {
            causes.duplicate(
                format!("{path}.name"),
                format!("There are two volumes called {name:?}: each needs a name of its own."),
            );
        }
        if !is_label(name) {
            causes.invalid(
                format!("{path}.name"),
                format!("{name:?} is not a name for a volume: write lower-case letters, digits and '-', at most 63."),
            );
        }
        if !spec.domain.devices.disks.iter().any(|disk| disk.name == *name) {
            causes.required(
                format!("{path}.name"),
                format!("Volume {name:?} is not shown to the guest: add a disk of that name to domain.devices.disks, or remove the volume."),
            );
        }
        check_volume(volume, &path, causes);
    }
}

fn check_disks(spec: &VirtualMachineInstanceSpec, path: &str, causes: &mut Causes) {
    let mut names = BTreeSet::new();
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        let path = format!("{path}.domain.devices.disks[{index}]");
        let name = &disk.name;
        if !names.insert(name) {
            causes.duplicate(
                format!("{path}.name"),
                format!("There are two disks called {name:?}: each needs a name of its own."),
            );
        }
        if !spec.volumes.iter().any(|volume| volume.name == *name) {
            causes.required(
                format!("{path}.name"),
                format!("Disk {name:?} shows nothing: add a volume of that name to volumes."),
            );
        }
        if disk.disk.is_some() && disk.cdrom.is_some() {
            causes.invalid(path, format!("{name:?} is both a disk and a cdrom: keep one."));
        }
    }
}

/// The boot order is one, of disks and vNICs.
fn check_boot_order(spec: &VirtualMachineInstanceSpec, path: &str, causes: &mut Causes) {
    let devices = &spec.domain.devices;
    let disks = devices
        .disks
        .iter()
        .enumerate()
        .map(|(index, disk)| (format!("disks[{index}]"), disk.boot_order, &disk.name));
    let interfaces =
        devices.interfaces.iter().enumerate().map(|(index, interface)| {
            (format!("interfaces[{index}]"), interface.boot_order, &interface.name)
        });
    let mut taken = BTreeMap::new();
    for (device, order, name) in disks.chain(interfaces) {
        let field = format!("{path}.domain.devices.{device}.bootOrder");
        match order {
            Some(0) => causes.invalid(field, "The boot order begins with 1."),
            Some(order) => {
                if let Some(other) = taken.insert(order, name) {
                    causes.duplicate(
                        field,
                        format!("Place {order} in the boot order is that of {other:?} already."),
                    );
                }
            }
            None => {}
        }
    }
}

fn check_volume(volume: &Volume, path: &str, causes: &mut Causes) {
    let name = &volume.name;
    let sources: Vec<&str> = [
        ("hostDisk", volume.host_disk.is_some()),
        ("emptyDisk", volume.empty_disk.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("cloudInitNoCloud", volume.cloud_init_no_cloud.is_some()),
    ]
    .into_iter()
    .filter_map(|(source, used)| used.then_some(source))
    .collect();
    match sources.as_slice() {
        [] => causes.required(
            path,
            format!("Volume {name:?} has no source: add one of hostDisk, emptyDisk, persistentVolumeClaim and cloudInitNoCloud."),
        ),
        [_] => {}
        several => causes.invalid(path, format!("Volume {name:?} has several sources ({}): keep one.", several.join(", "))),
    }
    if let Some(disk) = &volume.host_disk {
        check_host_disk(disk, &format!("{path}.hostDisk"), causes);
    }
    if let Some(disk) = &volume.empty_disk {
        check_capacity(&disk.capacity, &format!("{path}.emptyDisk.capacity"), causes);
    }
    if let Some(claim) = &volume.persistent_volume_claim
        && !is_subdomain(&claim.claim_name)
    {
        let field = format!("{path}.persistentVolumeClaim.claimName");
        causes.invalid(field, format!("{:?} is not the name of a PersistentVolumeClaim.", claim.claim_name));
    }
    if let Some(settings) = &volume.cloud_init_no_cloud {
        check_cloud_init(settings, &format!("{path}.cloudInitNoCloud"), causes);
    }
}

fn check_host_disk(disk: &HostDisk, path: &str, causes: &mut Causes) {
    let plain = disk.path.starts_with('/')
        && !disk.path.ends_with('/')
        && disk.path.split('/').all(|part| part != "..");
    if !plain {
        causes.invalid(
            format!("{path}.path"),
            format!("{:?} is not the absolute path of a file, such as /srv/images/disk.img.", disk.path),
        );
    }
    match (&disk.capacity, disk.type_) {
        (None, HostDiskType::DiskOrCreate) => causes.required(
            format!("{path}.capacity"),
            "A file that is to be created needs a size: set capacity, or use type: Disk for a file that exists.",
        ),
        (Some(capacity), _) => check_capacity(capacity, &format!("{path}.capacity"), causes),
        (None, HostDiskType::Disk) => {}
    }
}

fn check_capacity(capacity: &Quantity, field: &str, causes: &mut Causes) {
    match quantity::whole(capacity) {
        Ok(0) => causes.invalid(field, "A disk has a size: set it to more than 0, such as 1Gi."),
        Ok(_) => {}
        Err(error) => causes.invalid(field, format!("{error}.")),
    }
}

fn check_cloud_init(settings: &CloudInitNoCloud, path: &str, causes: &mut Causes) {
    let user = [
        ("userData", settings.user_data.is_some()),
        ("userDataBase64", settings.user_data_base64.is_some()),
        ("secretRef", settings.secret_ref.is_some()),
    ];
    let network = [
        ("networkData", settings.network_data.is_some()),
        ("networkDataBase64", settings.network_data_base64.is_some()),
        ("networkDataSecretRef", settings.network_data_secret_ref.is_some()),
    ];
    for family in [&user, &network] {
        let used: Vec<&str> = family.iter().filter_map(|(name, used)| used.then_some(*name)).collect();
        if used.len() > 1 {
            causes.invalid(path, format!("{} say the same thing: keep one.", used.join(" and ")));
        }
    }
    if user.iter().chain(&network).all(|(_, used)| !used) {
        causes.required(
            path,
            "There is nothing for the guest to read: set userData, userDataBase64 or secretRef.",
        );
    }
    for (name, text) in
        [("userDataBase64", &settings.user_data_base64), ("networkDataBase64", &settings.network_data_base64)]
    {
        if text.as_ref().is_some_and(|text| STANDARD.decode(text).is_err()) {
            causes.invalid(format!("{path}.{name}"), "This is not base64.");
        }
    }
}
