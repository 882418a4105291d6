//! What a spec means, and what is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

use serde_json::{Value, json};

use super::*;

/// A VM with this domain and these members of its spec.
fn instance(domain: &Value, more: &Value) -> VirtualMachineInstance {
    let mut spec = json!({ "domain": { "memory": { "guest": "64Mi" }, "devices": {} } });
    merge(&mut spec["domain"], domain);
    merge(&mut spec, more);
    let metadata = json!({ "name": "test.vm", "namespace": "blue" });
    let vmi = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec });
    serde_json::from_value(vmi).unwrap()
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key] = value.clone();
    }
}

fn refused(domain: &Value, more: &Value) -> String {
    plan(&instance(domain, more)).unwrap_err().to_string()
}

#[test]
fn the_least_that_can_be_said() {
    let plan = plan(&instance(&json!({}), &json!({}))).unwrap();
    assert_eq!(
        (plan.name.as_str(), plan.hostname.as_str(), plan.memory_bytes),
        ("blue_test.vm", "test", 64 << 20)
    );
    assert_eq!((plan.machine.as_str(), plan.grace_seconds, plan.screen), (MACHINE, 30, false));
    let [vnic] = &plan.vnics[..] else { panic!("it has the pod network") };
    assert_eq!((vnic.name.as_str(), vnic.mac, vnic.model), ("default", None, InterfaceModel::Virtio));
}

#[test]
fn identity_follows_from_the_name() {
    let one = plan(&instance(&json!({}), &json!({}))).unwrap().uuid;
    assert_eq!(one, plan(&instance(&json!({ "cpu": { "cores": 4 } }), &json!({}))).unwrap().uuid);
    assert_eq!(one.to_string(), "b2a02690-b8c8-8884-bbd7-a3f5b0d6fee7", "the same in every version");
    let mut other = instance(&json!({}), &json!({}));
    other.metadata.namespace = Some("red".to_owned());
    assert_ne!(one, plan(&other).unwrap().uuid);
}

#[test]
fn the_mac_address_is_the_users_or_the_remembered_one() {
    let interfaces =
        json!([{ "name": "a", "macAddress": "02:00:00:00:00:01" }, { "name": "b" }, { "name": "c" }]);
    let mut vmi = instance(&json!({ "devices": { "interfaces": interfaces } }), &json!({}));
    let known =
        json!([{ "name": "a", "mac": "02:00:00:00:00:09" }, { "name": "b", "mac": "02:00:00:00:00:02" }]);
    vmi.status = serde_json::from_value(json!({ "interfaces": known })).unwrap();
    let macs: Vec<_> =
        plan(&vmi).unwrap().vnics.into_iter().map(|vnic| vnic.mac.map(|mac| mac.0[5])).collect();
    assert_eq!(macs, [Some(1), Some(2), None]);
}

#[test]
fn paths_follow_from_names_and_stay_inside() {
    let firmware = json!({ "kernelBoot": { "container": { "image": "i", "kernelPath": "/boot/k" } } });
    let disks = json!([{ "name": "host" }, { "name": "claim" }, { "name": "empty" }]);
    let volumes = json!([
        { "name": "host", "hostDisk": { "path": "/srv/../etc/shadow", "type": "Disk" } },
        { "name": "claim", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } },
        { "name": "empty", "emptyDisk": { "capacity": "1M" } },
    ]);
    let domain = json!({ "firmware": firmware, "devices": { "disks": disks } });
    let plan = plan(&instance(&domain, &json!({ "volumes": volumes }))).unwrap();
    assert_eq!(plan.kernel.unwrap().kernel, Path::new(paths::KERNEL_BOOT).join("boot/k"));
    let sources: Vec<String> =
        plan.disks.iter().map(|disk| disk.source.path().display().to_string()).collect();
    assert_eq!(
        sources,
        [
            format!("{}/host/shadow", paths::DISKS),
            format!("{}/claim", paths::DISKS),
            format!("{}/empty.img", paths::EMPTY_DISKS)
        ]
    );
    assert!(plan.disks[1].read_only);
    assert_eq!(plan.disks[2].source, Source::Empty { path: sources[2].clone().into(), size: 1_003_520 });
}

#[test]
fn what_cannot_be_done_is_refused_by_name() {
    let nothing = json!({});
    let vnic = |vnic: Value| json!({ "devices": { "interfaces": [vnic] } });
    let boot = |container: Value| json!({ "firmware": { "kernelBoot": { "container": container } } });
    let disk = |volume: Value| {
        (json!({ "devices": { "disks": [{ "name": "d" }] } }), json!({ "volumes": [volume] }))
    };
    for (domain, more, field) in [
        (json!({ "memory": {} }), nothing.clone(), "spec.domain.memory.guest: it is missing"),
        (
            json!({ "memory": { "guest": "lots" } }),
            nothing.clone(),
            "spec.domain.memory.guest: \"lots\" is not",
        ),
        (json!({ "memory": { "guest": "1k" } }), nothing.clone(), "spec.domain.memory.guest: 1k is less"),
        (
            json!({ "machine": { "type": "pc" } }),
            nothing.clone(),
            "spec.domain.machine.type: the machine \"pc\" is not",
        ),
        (
            json!({ "firmware": { "bootloader": { "efi": {} } } }),
            nothing.clone(),
            "spec.domain.firmware.bootloader.efi: EFI",
        ),
        (json!({ "firmware": { "uuid": "x" } }), nothing.clone(), "spec.domain.firmware.uuid: \"x\""),
        (
            json!({ "firmware": { "kernelBoot": {} } }),
            nothing.clone(),
            "spec.domain.firmware.kernelBoot.container: it is",
        ),
        (
            boot(json!({ "image": "i" })),
            nothing.clone(),
            "spec.domain.firmware.kernelBoot.container.kernelPath: it is",
        ),
        (
            boot(json!({ "image": "i", "kernelPath": "/a/../../etc/shadow" })),
            nothing.clone(),
            "spec.domain.firmware.kernelBoot.container.kernelPath: \"/a/",
        ),
        (
            boot(json!({ "image": "i", "kernelPath": "/" })),
            nothing.clone(),
            "spec.domain.firmware.kernelBoot.container.kernelPath: \"/\"",
        ),
        (
            json!({ "cpu": { "dedicatedCpuPlacement": true } }),
            nothing.clone(),
            "spec.domain.cpu.dedicatedCpuPlacement",
        ),
        (
            vnic(json!({ "name": "a", "passtBinding": {} })),
            nothing.clone(),
            "spec.domain.devices.interfaces[0].passtBinding",
        ),
        (
            vnic(json!({ "name": "a/b" })),
            nothing.clone(),
            "spec.domain.devices.interfaces[0].name: \"a/b\" is not",
        ),
        (
            json!({ "devices": { "interfaces": [{ "name": "a" }, { "name": "a" }] } }),
            nothing.clone(),
            "spec.domain.devices.interfaces[1].name: there are two",
        ),
        (
            json!({ "devices": { "disks": [{ "name": "../x" }] } }),
            nothing.clone(),
            "spec.domain.devices.disks[0].name: \"../x\"",
        ),
        (
            json!({ "devices": { "disks": [{ "name": "x" }] } }),
            nothing.clone(),
            "spec.domain.devices.disks[0].name: there is no volume",
        ),
    ] {
        let said = refused(&domain, &more);
        assert!(said.starts_with(field), "expected {field:?}, not {said:?}");
    }
    for (volume, field) in [
        (json!({ "name": "d" }), "spec.volumes[d]: it has no source"),
        (
            json!({ "name": "d", "hostDisk": { "path": "/", "type": "Disk" } }),
            "spec.volumes[d].hostDisk.path",
        ),
        (
            json!({ "name": "d", "hostDisk": { "path": "/a", "type": "DiskOrCreate" } }),
            "spec.volumes[d].hostDisk.capacity: a disk that",
        ),
        (
            json!({ "name": "d", "emptyDisk": { "capacity": "0" } }),
            "spec.volumes[d].emptyDisk.capacity: a disk needs",
        ),
        (
            json!({ "name": "d", "cloudInitNoCloud": { "userDataBase64": "?" } }),
            "spec.volumes[d].cloudInitNoCloud.userDataBase64",
        ),
    ] {
        let (domain, more) = disk(volume);
        let said = refused(&domain, &more);
        assert!(said.starts_with(field), "expected {field:?}, not {said:?}");
    }
}
