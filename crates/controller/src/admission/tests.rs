//! A table of what is accepted and what is refused, with the exact field and sentence.

use serde_json::{Value, json};

use super::defaults::{self, ClusterDefaults};
use super::*;

/// An instance that is accepted, with one of everything.
fn accepted() -> Value {
    json!({
        "domain": {
            "cpu": { "cores": 2 },
            "memory": { "guest": "1Gi" },
            "devices": {
                "interfaces": [{ "name": "default", "bridge": {} }, { "name": "storage", "bridge": {} }],
                "disks": [{ "name": "root", "disk": {} }, { "name": "seed", "cdrom": {} }],
            },
        },
        "networks": [
            { "name": "default", "pod": {} },
            { "name": "storage", "multus": { "networkName": "infra/storage-vlan" } },
        ],
        "volumes": [
            { "name": "root", "hostDisk": { "path": "/srv/root.img", "type": "Disk" } },
            { "name": "seed", "cloudInitNoCloud": { "userData": "#cloud-config" } },
        ],
    })
}

/// The accepted instance with one place changed; null removes.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = accepted();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = spec.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match parent {
        Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        _ => panic!("{pointer}"),
    }
    spec
}

fn rules() -> Rules {
    Rules { bindings: [("l2bridge".to_owned(), BindingPlugin::default())].into(), ..Rules::default() }
}

fn refused(spec: &Value) -> Vec<(String, String)> {
    let causes = validate(spec, "spec", &rules());
    causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
}

const DEVICES: &str = "/domain/devices";

#[test]
fn what_is_accepted() {
    let at = |field: &str| format!("{DEVICES}/{field}");
    let rows: Vec<(String, Value)> = vec![
        ("/hostname".into(), json!("ledger")),
        ("/terminationGracePeriodSeconds".into(), json!(0)),
        ("/evictionStrategy".into(), json!("LiveMigrate")),
        ("/nodeSelector".into(), json!({ "disk": "fast" })),
        ("/tolerations".into(), json!([{ "key": "a", "operator": "Exists" }])),
        ("/domain/cpu".into(), json!({ "sockets": 2, "threads": 2, "model": "host-model" })),
        ("/domain/memory".into(), json!({ "guest": "1.5Gi" })),
        (
            "/domain/resources".into(),
            json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "2Gi" } }),
        ),
        ("/domain/machine".into(), json!({ "type": "q35" })),
        (
            "/domain/firmware".into(),
            json!({ "uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "bootloader": { "efi": {} } }),
        ),
        (
            "/domain/firmware".into(),
            json!({ "kernelBoot": { "container": { "image": "i", "kernelPath": "/k", "initrdPath": "/i" } } }),
        ),
        (
            at("interfaces/0"),
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 80 }, { "port": 80, "protocol": "UDP" }] }),
        ),
        (at("interfaces/0"), json!({ "name": "default", "passtBinding": {} })),
        (at("interfaces/1"), json!({ "name": "storage", "binding": { "name": "l2bridge" } })),
        (
            at("interfaces/0"),
            json!({ "name": "default", "bridge": {}, "macAddress": "DE-AD-00-00-BE-AF", "model": "e1000" }),
        ),
        // The short spelling is a bridge on the pod network, as often as one likes.
        (
            at("interfaces/-"),
            json!({ "name": "third", "type": "pod-network", "bridge": {}, "mac": { "address": "02:00:00:00:00:2a" }, "model": { "type": "e1000" } }),
        ),
        (
            "/networks/0".into(),
            json!({ "name": "default", "pod": { "vmNetworkCIDR": "10.9.0.0/16", "vmIPv6NetworkCIDR": "fd00::/64" } }),
        ),
        ("/networks/1".into(), json!({ "name": "storage", "multus": { "networkName": "vlan.10" } })),
        ("/volumes/0".into(), json!({ "name": "root", "emptyDisk": { "capacity": "2Gi" } })),
        ("/volumes/0".into(), json!({ "name": "root", "persistentVolumeClaim": { "claimName": "root" } })),
        (
            "/volumes/0".into(),
            json!({ "name": "root", "hostDisk": { "path": "/d", "type": "DiskOrCreate", "capacity": "1Gi", "shared": true } }),
        ),
        (
            "/volumes/1".into(),
            json!({ "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "s" }, "networkDataBase64": "YQ==" } }),
        ),
        // What is null is not there.
        ("/domain/features".into(), json!({})),
    ];
    assert_eq!(refused(&accepted()), []);
    for (pointer, value) in rows {
        let spec = if pointer == "/domain/features" {
            let mut spec = accepted();
            spec["domain"]["features"] = Value::Null;
            spec
        } else {
            with(&pointer, value)
        };
        assert_eq!(refused(&spec), [], "{pointer}");
    }
}

/// Field (below `spec`), sentence, place, value.
type Row = (&'static str, &'static str, &'static str, Value);

fn hardware_rows() -> Vec<Row> {
    vec![
        (
            "domain.memory.guest",
            "Say how much memory the guest has, such as 1Gi.",
            "/domain/memory",
            Value::Null,
        ),
        (
            "domain.memory.guest",
            "The guest needs memory: set it to more than 0, such as 1Gi.",
            "/domain/memory",
            json!({ "guest": "0" }),
        ),
        (
            "domain.memory.guest",
            "\"512\" is 512 bytes, which no guest boots with: did you mean 512Mi or 512Gi?",
            "/domain/memory",
            json!({ "guest": "512" }),
        ),
        ("domain.memory.guest", "\"-1Gi\" is negative.", "/domain/memory", json!({ "guest": "-1Gi" })),
        (
            "domain.memory.guest",
            "The guest sees more memory than the limit of its pod: raise resources.limits.memory, or lower memory.guest.",
            "/domain/resources",
            json!({ "limits": { "memory": "512Mi" } }),
        ),
        (
            "domain.resources.requests.memory",
            "The pod asks for more memory than its limit: raise limits.memory, or lower requests.memory.",
            "/domain/resources",
            json!({ "requests": { "memory": "3Gi" }, "limits": { "memory": "2Gi" } }),
        ),
        (
            "domain.resources.requests.cpu",
            "\"two\" is not a quantity: expected a number with an optional suffix such as Ki, Mi, Gi, k, M, G or m.",
            "/domain/resources",
            json!({ "requests": { "cpu": "two" } }),
        ),
        (
            "domain.cpu.cores",
            "A guest has at least one: remove cores, or set it to 1 or more.",
            "/domain/cpu",
            json!({ "cores": 0 }),
        ),
        (
            "domain.cpu.sockets",
            "A guest has at least one: remove sockets, or set it to 1 or more.",
            "/domain/cpu",
            json!({ "sockets": 0 }),
        ),
        (
            "domain.cpu.threads",
            "A guest has at least one: remove threads, or set it to 1 or more.",
            "/domain/cpu",
            json!({ "threads": 0 }),
        ),
        (
            "domain.cpu.model",
            "Name a model, host-model or host-passthrough, or remove the field.",
            "/domain/cpu",
            json!({ "model": "" }),
        ),
        (
            "domain.firmware.uuid",
            "\"me\" is not a UUID, such as 5d307ca9-b3ef-428c-8861-06e72d69f223.",
            "/domain/firmware",
            json!({ "uuid": "me" }),
        ),
        (
            "domain.firmware.bootloader",
            "A guest boots by bios or by efi: keep one.",
            "/domain/firmware",
            json!({ "bootloader": { "bios": {}, "efi": {} } }),
        ),
        (
            "domain.firmware.kernelBoot.container",
            "A kernel is booted from an image: name it, and the path of the kernel in it.",
            "/domain/firmware",
            json!({ "kernelBoot": { "kernelArgs": "quiet" } }),
        ),
        (
            "domain.firmware.kernelBoot.container.image",
            "Name the image that holds the kernel.",
            "/domain/firmware",
            json!({ "kernelBoot": { "container": { "image": "", "kernelPath": "/k" } } }),
        ),
        (
            "domain.firmware.kernelBoot.container.kernelPath",
            "Say where in the image the kernel is, such as /boot/vmlinuz.",
            "/domain/firmware",
            json!({ "kernelBoot": { "container": { "image": "i" } } }),
        ),
        (
            "domain.firmware.kernelBoot.container.initrdPath",
            "\"/a/../b\" is not a path from the root of the image, such as /boot/vmlinuz.",
            "/domain/firmware",
            json!({ "kernelBoot": { "container": { "image": "i", "kernelPath": "/k", "initrdPath": "/a/../b" } } }),
        ),
        (
            "terminationGracePeriodSeconds",
            "-1 seconds are less than none: use 0 to switch the guest off at once.",
            "/terminationGracePeriodSeconds",
            json!(-1),
        ),
        (
            "hostname",
            "\"My Host\" is not the name of a host: write lower-case letters, digits and '-', at most 63.",
            "/hostname",
            json!("My Host"),
        ),
    ]
}

fn network_rows() -> Vec<Row> {
    vec![
        (
            "domain.devices.interfaces[2].name",
            "Interface \"third\" is plugged into nothing: add a network of that name to networks.",
            "/domain/devices/interfaces/-",
            json!({ "name": "third", "bridge": {} }),
        ),
        (
            "networks[2].name",
            "Network \"third\" has no interface: add an interface of that name to domain.devices.interfaces, or remove the network.",
            "/networks/-",
            json!({ "name": "third", "multus": { "networkName": "x" } }),
        ),
        (
            "domain.devices.interfaces[2].name",
            "There are two interfaces called \"default\": each needs a name of its own.",
            "/domain/devices/interfaces/-",
            json!({ "name": "default", "bridge": {} }),
        ),
        (
            "networks[2].name",
            "There are two networks called \"storage\": each needs a name of its own.",
            "/networks/-",
            json!({ "name": "storage", "multus": { "networkName": "x" } }),
        ),
        (
            "networks[1]",
            "Network \"storage\" has two sources, pod and multus: keep one.",
            "/networks",
            json!([{ "name": "default", "multus": { "networkName": "y" } }, { "name": "storage", "pod": {}, "multus": { "networkName": "x" } }]),
        ),
        (
            "networks[1]",
            "Network \"storage\" has no source: add pod: {}, or multus with a networkName.",
            "/networks/1",
            json!({ "name": "storage" }),
        ),
        (
            "networks[1].pod",
            "A machine has one pod network, and \"default\" is it already: remove one of the two.",
            "/networks/1",
            json!({ "name": "storage", "pod": {} }),
        ),
        (
            "networks[1].multus.default",
            "A machine has one pod network, and \"default\" is it already: remove one of the two.",
            "/networks/1",
            json!({ "name": "storage", "multus": { "networkName": "x", "default": true } }),
        ),
        (
            "networks[1].multus.networkName",
            "Name a NetworkAttachmentDefinition, as name or namespace/name.",
            "/networks/1",
            json!({ "name": "storage", "multus": { "networkName": "" } }),
        ),
        (
            "networks[1].multus.networkName",
            "\"a/b/c\" is not the name of a NetworkAttachmentDefinition: write name or namespace/name, in lower-case letters, digits and '-'.",
            "/networks/1",
            json!({ "name": "storage", "multus": { "networkName": "a/b/c" } }),
        ),
        (
            "networks[1].multus.networkName",
            "\"Storage_VLAN\" is not the name of a NetworkAttachmentDefinition: write name or namespace/name, in lower-case letters, digits and '-'.",
            "/networks/1",
            json!({ "name": "storage", "multus": { "networkName": "Storage_VLAN" } }),
        ),
        (
            "networks[1].multus.networkName",
            "\"/x\" is not the name of a NetworkAttachmentDefinition: write name or namespace/name, in lower-case letters, digits and '-'.",
            "/networks/1",
            json!({ "name": "storage", "multus": { "networkName": "/x" } }),
        ),
        (
            "networks[0].pod.vmNetworkCIDR",
            "\"10.0.2.0/31\" is not an IPv4 network with room for a guest and its gateway, such as 10.0.2.0/24.",
            "/networks/0",
            json!({ "name": "default", "pod": { "vmNetworkCIDR": "10.0.2.0/31" } }),
        ),
        (
            "networks[0].pod.vmIPv6NetworkCIDR",
            "\"10.0.2.0/24\" is not an IPv6 network with room for a guest and its gateway, such as fd10:0:2::/120.",
            "/networks/0",
            json!({ "name": "default", "pod": { "vmIPv6NetworkCIDR": "10.0.2.0/24" } }),
        ),
        (
            "networks[0].pod.vmNetworkCIDR",
            "\"127.0.0.0/24\" is not a network that a machine can have an address of: use a private one, such as 10.0.2.0/24.",
            "/networks/0",
            json!({ "name": "default", "pod": { "vmNetworkCIDR": "127.0.0.0/24" } }),
        ),
        (
            "networks[0].pod.vmNetworkCIDR",
            "\"224.0.0.0/24\" is not a network that a machine can have an address of: use a private one, such as 10.0.2.0/24.",
            "/networks/0",
            json!({ "name": "default", "pod": { "vmNetworkCIDR": "224.0.0.0/24" } }),
        ),
        (
            "networks[0].pod.vmIPv6NetworkCIDR",
            "\"fe80::/64\" is not a network that a machine can have an address of: use a private one, such as fd10:0:2::/120.",
            "/networks/0",
            json!({ "name": "default", "pod": { "vmIPv6NetworkCIDR": "fe80::/64" } }),
        ),
        (
            "domain.devices.interfaces[2].masquerade",
            "Interface \"default\" has the pod's address already: only one can be behind it. Use bridge: {}.",
            "/domain/devices/interfaces",
            json!([{ "name": "default", "masquerade": {} }, { "name": "storage", "bridge": {} }, { "name": "more", "type": "pod-network", "masquerade": {} }]),
        ),
        (
            "domain.devices.interfaces[1]",
            "Interface \"storage\" has no binding: add bridge: {}.",
            "/domain/devices/interfaces/1",
            json!({ "name": "storage" }),
        ),
        (
            "domain.devices.interfaces[0]",
            "Interface \"default\" has several bindings (bridge, masquerade): keep one.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "masquerade": {} }),
        ),
        (
            "domain.devices.interfaces[1].masquerade",
            "masquerade works on the pod network only: use bridge: {} for network \"storage\".",
            "/domain/devices/interfaces/1",
            json!({ "name": "storage", "masquerade": {} }),
        ),
        (
            "domain.devices.interfaces[1].passtBinding",
            "passtBinding works on the pod network only: use bridge: {} for network \"storage\".",
            "/domain/devices/interfaces/1",
            json!({ "name": "storage", "passtBinding": {} }),
        ),
        (
            "domain.devices.interfaces[1].binding.name",
            "The KubeVirt object has no network binding called \"macvtap\".",
            "/domain/devices/interfaces/1",
            json!({ "name": "storage", "binding": { "name": "macvtap" } }),
        ),
        (
            "domain.devices.interfaces[1].type",
            "pod-network is the pod network, but network \"storage\" is another: remove one of the two.",
            "/domain/devices/interfaces/1",
            json!({ "name": "storage", "type": "pod-network", "bridge": {} }),
        ),
        (
            "domain.devices.interfaces[0].macAddress",
            "\"02:00:00:aa:bb\" is not a MAC address: expected six octets in hexadecimal, such as 02:00:00:12:34:56.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "macAddress": "02:00:00:aa:bb" }),
        ),
        (
            "domain.devices.interfaces[0].mac.address",
            "\"zz\" is not a MAC address: expected six octets in hexadecimal, such as 02:00:00:12:34:56.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "mac": { "address": "zz" } }),
        ),
        (
            "domain.devices.interfaces[0].macAddress",
            "01:00:5e:00:00:01 is a multicast address, which no interface can have: its first octet must be even.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "macAddress": "01:00:5e:00:00:01" }),
        ),
        (
            "domain.devices.interfaces[0].mac.address",
            "ff:ff:ff:ff:ff:ff is a multicast address, which no interface can have: its first octet must be even.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "mac": { "address": "ff:ff:ff:ff:ff:ff" } }),
        ),
        (
            "domain.devices.interfaces[0].macAddress",
            "00:00:00:00:00:00 is nobody's address: choose another, such as 02:00:00:12:34:56.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "macAddress": "00:00:00:00:00:00" }),
        ),
        (
            "domain.devices.interfaces[0].mac",
            "mac.address and macAddress are the same thing: set one of them.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01", "mac": { "address": "02:00:00:00:00:01" } }),
        ),
        (
            "domain.devices.interfaces[1].macAddress",
            "02:00:00:00:00:01 is the address of interface \"default\" already.",
            "/domain/devices/interfaces",
            json!([{ "name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01" }, { "name": "storage", "bridge": {}, "macAddress": "02:00:00:00:00:01" }]),
        ),
        (
            "domain.devices.interfaces[0].ports[0].port",
            "A port is a number from 1 to 65535.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 0 }] }),
        ),
        (
            "domain.devices.interfaces[0].ports[1].port",
            "TCP port 80 is forwarded already.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 80 }, { "port": 80, "protocol": "TCP" }] }),
        ),
        (
            "domain.devices.interfaces[0].ports[1].name",
            "There are two ports called \"web\".",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 80, "name": "web" }, { "port": 443, "name": "web" }] }),
        ),
        (
            "domain.devices.interfaces[0].ports[0].name",
            "\"Web_1\" is not the name of a port: write up to 15 lower-case letters, digits and single '-', with a letter among them.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "masquerade": {}, "ports": [{ "port": 80, "name": "Web_1" }] }),
        ),
        (
            "domain.devices.interfaces[0].bootOrder",
            "The boot order begins with 1.",
            "/domain/devices/interfaces/0",
            json!({ "name": "default", "bridge": {}, "bootOrder": 0 }),
        ),
    ]
}

fn disk_rows() -> Vec<Row> {
    vec![
        (
            "domain.devices.disks[2].name",
            "Disk \"data\" shows nothing: add a volume of that name to volumes.",
            "/domain/devices/disks/-",
            json!({ "name": "data" }),
        ),
        (
            "volumes[2].name",
            "Volume \"data\" is not shown to the guest: add a disk of that name to domain.devices.disks, or remove the volume.",
            "/volumes/-",
            json!({ "name": "data", "emptyDisk": { "capacity": "1Gi" } }),
        ),
        (
            "domain.devices.disks[2].name",
            "There are two disks called \"root\": each needs a name of its own.",
            "/domain/devices/disks/-",
            json!({ "name": "root" }),
        ),
        (
            "volumes[2].name",
            "There are two volumes called \"root\": each needs a name of its own.",
            "/volumes/-",
            json!({ "name": "root", "emptyDisk": { "capacity": "1Gi" } }),
        ),
        (
            "domain.devices.disks[0]",
            "\"root\" is both a disk and a cdrom: keep one.",
            "/domain/devices/disks/0",
            json!({ "name": "root", "disk": {}, "cdrom": {} }),
        ),
        (
            "domain.devices.disks[1].bootOrder",
            "Place 1 in the boot order is that of \"root\" already.",
            "/domain/devices/disks",
            json!([{ "name": "root", "bootOrder": 1 }, { "name": "seed", "bootOrder": 1 }]),
        ),
        (
            "volumes[0]",
            "Volume \"root\" has no source: add one of hostDisk, emptyDisk, persistentVolumeClaim and cloudInitNoCloud.",
            "/volumes/0",
            json!({ "name": "root" }),
        ),
        (
            "volumes[0]",
            "Volume \"root\" has several sources (emptyDisk, persistentVolumeClaim): keep one.",
            "/volumes/0",
            json!({ "name": "root", "emptyDisk": { "capacity": "1Gi" }, "persistentVolumeClaim": { "claimName": "c" } }),
        ),
        (
            "volumes[0].hostDisk.path",
            "\"srv/root.img\" is not the absolute path of a file, such as /srv/images/disk.img.",
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "srv/root.img", "type": "Disk" } }),
        ),
        (
            "volumes[0].hostDisk.path",
            "\"/srv/../etc/shadow\" is not the absolute path of a file, such as /srv/images/disk.img.",
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "/srv/../etc/shadow", "type": "Disk" } }),
        ),
        (
            "volumes[0].hostDisk.capacity",
            "A file that is to be created needs a size: set capacity, or use type: Disk for a file that exists.",
            "/volumes/0",
            json!({ "name": "root", "hostDisk": { "path": "/d", "type": "DiskOrCreate" } }),
        ),
        (
            "volumes[0].emptyDisk.capacity",
            "A disk has a size: set it to more than 0, such as 1Gi.",
            "/volumes/0",
            json!({ "name": "root", "emptyDisk": { "capacity": "0" } }),
        ),
        (
            "volumes[0].persistentVolumeClaim.claimName",
            "\"A Claim\" is not the name of a PersistentVolumeClaim.",
            "/volumes/0",
            json!({ "name": "root", "persistentVolumeClaim": { "claimName": "A Claim" } }),
        ),
        (
            "volumes[1].cloudInitNoCloud",
            "There is nothing for the guest to read: set userData, userDataBase64 or secretRef.",
            "/volumes/1",
            json!({ "name": "seed", "cloudInitNoCloud": {} }),
        ),
        (
            "volumes[1].cloudInitNoCloud",
            "userData and secretRef say the same thing: keep one.",
            "/volumes/1",
            json!({ "name": "seed", "cloudInitNoCloud": { "userData": "x", "secretRef": { "name": "s" } } }),
        ),
        (
            "volumes[1].cloudInitNoCloud.userDataBase64",
            "This is not base64.",
            "/volumes/1",
            json!({ "name": "seed", "cloudInitNoCloud": { "userDataBase64": "%%" } }),
        ),
    ]
}

fn unknown_rows() -> Vec<Row> {
    const SORRY: &str =
        "is not supported here: nothing would act on it. Remove it if the machine can do without.";
    vec![
        ("domain.devices.gpus", SORRY, "/domain/devices/gpus", json!([{ "name": "g" }])),
        ("domain.features", SORRY, "/domain/features", json!({ "hyperv": {} })),
        ("domain.devices.hostDevices", SORRY, "/domain/devices/hostDevices", json!([])),
        ("domain.cpu.numa", SORRY, "/domain/cpu/numa", json!({ "guestMappingPassthrough": {} })),
        ("domain.memory.hugepages", SORRY, "/domain/memory/hugepages", json!({ "pageSize": "2Mi" })),
        ("domain.devices.interfaces[0].sriov", SORRY, "/domain/devices/interfaces/0/sriov", json!({})),
        ("domain.devices.disks[0].lun", SORRY, "/domain/devices/disks/0/lun", json!({})),
        ("volumes[0].containerDisk", SORRY, "/volumes/0/containerDisk", json!({ "image": "i" })),
        ("accessCredentials", SORRY, "/accessCredentials", json!([])),
        ("livenessProbe", SORRY, "/livenessProbe", json!({})),
    ]
}

#[test]
fn what_is_refused_and_how() {
    let tables = [hardware_rows(), network_rows(), disk_rows(), unknown_rows()];
    for (field, sentence, pointer, value) in tables.into_iter().flatten() {
        let said = refused(&with(pointer, value.clone()));
        let field = format!("spec.{field}");
        let expected = said.iter().any(|(at, message)| *at == field && message.ends_with(sentence));
        assert!(expected, "{pointer} = {value}\nexpected {field}: {sentence}\nsaid     {said:#?}");
        // Alone, but for what follows from it: a name that is there twice, a source that is not there.
        assert!(said.len() <= 2, "{pointer} = {value}\nsaid {said:#?}");
    }
}

#[test]
fn the_table_is_as_long_as_it_should_be() {
    let rows = [hardware_rows(), network_rows(), disk_rows(), unknown_rows()].concat().len();
    assert!(rows >= 70, "{rows}");
}

#[test]
fn a_cluster_can_forbid_bridges_on_the_pod_network() {
    let rules = Rules { permit_bridge_on_pod_network: false, ..rules() };
    let fields: Vec<String> =
        validate(&accepted(), "spec", &rules).into_iter().map(|cause| cause.field).collect();
    assert_eq!(
        fields,
        ["spec.domain.devices.interfaces[0].bridge"],
        "the other one is not on the pod network"
    );
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let mut spec = with("/domain/memory", Value::Null);
    spec["networks"] = json!([]);
    spec["volumes"] = json!([]);
    assert_eq!(refused(&spec).len(), 5, "{:#?}", refused(&spec));
}

#[test]
fn a_spec_that_cannot_be_read_is_refused() {
    let said = refused(&json!({ "domain": { "devices": "many" } }));
    assert_eq!(said[0].0, "spec");
    assert!(said[0].1.starts_with("The spec cannot be read: "), "{said:?}");
}

fn machine(spec: &Value) -> Vec<String> {
    validate_machine(spec, &rules())
        .into_iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect()
}

#[test]
fn a_machine_is_judged_with_what_will_be_filled_in() {
    let bare = json!({ "domain": { "devices": {}, "resources": { "requests": { "memory": "64Mi" } } } });
    let template = json!({ "metadata": { "creationTimestamp": null, "annotations": { "a": "b" }, "name": "kept" }, "spec": bare });
    assert_eq!(machine(&json!({ "running": true, "template": template })), [] as [&str; 0]);
    assert_eq!(
        machine(&json!({ "running": true, "runStrategy": "Always", "template": template })),
        ["spec.running: running and runStrategy are mutually exclusive: keep runStrategy, which says more."]
    );
    assert_eq!(
        machine(&json!({ "template": template })),
        ["spec.runStrategy: Say when the machine is to run: set runStrategy, for example to Always."]
    );
    assert_eq!(
        machine(&json!({ "running": true, "template": template, "dataVolumeTemplates": [] })),
        [
            "spec.dataVolumeTemplates: dataVolumeTemplates is not supported here: nothing would act on it. Remove it if the machine can do without."
        ]
    );
    assert_eq!(
        machine(&json!({ "running": true, "template": { "spec": { "domain": { "devices": {} } } } })),
        ["spec.template.spec.domain.memory.guest: Say how much memory the guest has, such as 1Gi."]
    );
}

#[test]
fn an_update_that_leaves_the_spec_alone_is_never_refused() {
    let bad = json!({ "domain": { "devices": { "gpus": [] } } });
    let request = |kind: &str, old: &Value, new: &Value| json!({ "operation": "UPDATE", "kind": { "kind": kind }, "oldObject": { "spec": old }, "object": { "spec": new } });
    let template = |spec: &Value| json!({ "running": true, "template": { "spec": spec } });
    for (kind, spec) in [("VirtualMachineInstance", bad.clone()), ("VirtualMachine", template(&bad))] {
        assert_eq!(review(&request(kind, &spec, &spec), false, &rules()), Answer::Allow, "{kind}");
        let changed = review(&request(kind, &template(&accepted()), &spec), false, &rules());
        assert!(matches!(changed, Answer::Refuse(_)), "{kind}");
    }
}

#[test]
fn filling_in_keeps_what_was_written_and_what_is_unknown() {
    let written = json!({
        "domain": {
            "devices": { "interfaces": [{ "type": "pod-network", "mac": { "address": "02-00-00-00-00-2A" } }], "gpus": [] },
            "resources": { "limits": { "cpu": "2500m", "memory": "1Gi" } },
        },
    });
    let request = json!({ "operation": "CREATE", "kind": { "kind": "VirtualMachineInstance" }, "object": { "spec": written } });
    let Answer::Fill(filled) = review(&request, true, &rules()) else { panic!("nothing was filled in") };
    assert_eq!(
        filled,
        json!({
            "domain": {
                "devices": {
                    "interfaces": [{ "name": "default", "type": "pod-network", "bridge": {}, "mac": { "address": "02-00-00-00-00-2A" } }],
                    "gpus": [],
                },
                "resources": { "limits": { "cpu": "2500m", "memory": "1Gi" } },
                "cpu": { "cores": 1, "sockets": 3, "threads": 1 },
                "memory": { "guest": "1Gi" },
                "machine": { "type": "q35" },
            },
            "terminationGracePeriodSeconds": 30,
        })
    );
    let again = json!({ "operation": "CREATE", "kind": { "kind": "VirtualMachineInstance" }, "object": { "spec": filled } });
    assert_eq!(review(&again, true, &rules()), Answer::Allow, "filling in twice fills in once");
}

#[test]
fn a_machine_without_a_pod_interface_gets_none() {
    let mut spec: api::kubevirt::VirtualMachineInstanceSpec =
        serde_json::from_value(json!({ "domain": { "devices": { "autoattachPodInterface": false } } }))
            .unwrap();
    defaults::fill_in(&mut spec, &ClusterDefaults::default());
    assert!(spec.domain.devices.interfaces.is_empty() && spec.networks.is_empty());
}
