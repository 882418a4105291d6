//! Documents for libvirt, compared with recorded ones: a change of what a guest sees must be seen in review.
//!
//! `GODWIT_RECORD=1 cargo test -p launcher --test documents` writes them anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

use std::path::Path;

use api::kubevirt::VirtualMachineInstance;
use launcher::domain::{self, DiskFacts, Facts, Places, VnicFacts};
use launcher::masquerade::{self, PodInterface};
use launcher::network::{self, Bridge, Guest};
use launcher::plan::{Binding, Plan, plan};
use wire::{Accelerator, Dns, Vnic, VnicAddress, VnicRoute};

fn recorded(name: &str, document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("GODWIT_RECORD").is_some() {
        std::fs::write(&path, document).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let different = document.lines().zip(expected.lines()).find(|(is, was)| is != was);
    assert_eq!(document, expected, "{name} is not as recorded; the first difference: {different:?}");
}

fn planned(yaml: &str) -> Plan {
    let vmi: VirtualMachineInstance = serde_saphyr::from_str(yaml).unwrap();
    plan(&vmi).unwrap()
}

fn facts(plan: &Plan, accelerator: Accelerator) -> Facts {
    let vnic = |number: u8| VnicFacts { mac: api::mac::MacAddress([2, 0, 0, 0, 0, number]), mtu: Some(1450) };
    let disk = |path: &Path| DiskFacts { block: false, path: path.display().to_string(), direct: true };
    Facts {
        accelerator,
        vnics: (1..).map(vnic).take(plan.vnics.len()).collect(),
        disks: plan.disks.iter().map(|planned| disk(planned.source.path())).collect(),
        places: Places {
            console: "/var/run/kubevirt/console.sock".to_owned(),
            console_log: "/run/godwit/serial.log".to_owned(),
            screen: "/var/run/kubevirt/screen/vnc.sock".to_owned(),
        },
    }
}

const SMALL: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: { name: small, namespace: default }
spec:
  domain:
    memory: { guest: 64Mi }
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 name='<&>'
        container: { image: guest, kernelPath: /boot/vmlinuz, initrdPath: boot/initrd }
    devices: {}
";

const LARGE: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: { name: large, namespace: blue }
spec:
  hostname: big
  startStrategy: Paused
  domain:
    cpu: { cores: 2, sockets: 2, model: host-passthrough }
    resources: { requests: { memory: 1.5Gi } }
    firmware:
      uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223
      serial: abc-1
      bootloader: { bios: { useSerial: true } }
    devices:
      autoattachGraphicsDevice: true
      networkInterfaceMultiqueue: true
      disks:
        - { name: root, disk: { bus: virtio }, serial: root-disk }
        - { name: data }
        - { name: claim, disk: { bus: scsi }, shareable: true, cache: writeback }
        - { name: stick, disk: { bus: usb, readonly: true } }
        - { name: scratch, disk: { bus: virtio } }
        - { name: settings, cdrom: {} }
      interfaces:
        - { name: default, bridge: {} }
        - { name: old, bridge: {}, model: e1000 }
        - { name: fast, bridge: {}, model: e1000e, bootOrder: 1 }
  networks:
    - { name: default, pod: {} }
    - { name: old, multus: { networkName: old } }
    - { name: fast, multus: { networkName: fast } }
  volumes:
    - { name: root, hostDisk: { path: /srv/root.img, type: Disk } }
    - { name: data, hostDisk: { path: /srv/data.img, type: DiskOrCreate, capacity: 2Gi } }
    - { name: claim, persistentVolumeClaim: { claimName: claim } }
    - { name: stick, hostDisk: { path: /srv/stick.img, type: Disk } }
    - { name: scratch, emptyDisk: { capacity: 1Gi } }
    - { name: settings, cloudInitNoCloud: { userData: '#cloud-config' } }
";

const BOOTS_FROM_DISK: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: { name: disk, namespace: default }
spec:
  domain:
    memory: { guest: 1Gi }
    cpu: { model: Nehalem }
    devices:
      autoattachPodInterface: false
      autoattachMemBalloon: false
      autoattachSerialConsole: false
      disks: [{ name: one }, { name: two }]
  volumes:
    - { name: one, emptyDisk: { capacity: 1Gi } }
    - { name: two, emptyDisk: { capacity: 1Gi } }
";

#[test]
fn domains() {
    for (name, yaml, accelerator) in [
        ("small-tcg.xml", SMALL, Accelerator::Tcg),
        ("small-kvm.xml", SMALL, Accelerator::Kvm),
        ("large-kvm.xml", LARGE, Accelerator::Kvm),
        ("large-tcg.xml", LARGE, Accelerator::Tcg),
        ("disk-tcg.xml", BOOTS_FROM_DISK, Accelerator::Tcg),
    ] {
        let plan = planned(yaml);
        recorded(name, &domain::document(&plan, &facts(&plan, accelerator)).unwrap());
    }
}

/// The addresses of what was there, when something is added after it.
#[test]
fn devices_stay_where_they_are_when_others_come_after_them() {
    let addresses = |plan: &Plan| {
        let document = domain::document(plan, &facts(plan, Accelerator::Tcg)).unwrap();
        let after = |name: &str| {
            let rest = document.split(&format!("ua-{name}'")).nth(1).unwrap();
            rest.lines().find(|line| line.contains("<address")).unwrap().trim().to_owned()
        };
        (after("default"), after("fast"), document)
    };
    let plan = planned(LARGE);
    let mut more = plan.clone();
    more.disks.extend(planned(BOOTS_FROM_DISK).disks);
    let (before, after) = (addresses(&plan), addresses(&more));
    assert_eq!((before.0, before.1), (after.0, after.1));
    more.vnics.truncate(1);
    assert!(addresses_of_ports(&after.2).is_superset(&addresses_of_ports(&before.2)));
}

fn addresses_of_ports(document: &str) -> std::collections::BTreeSet<String> {
    let lines: Vec<&str> = document.lines().collect();
    let ports = lines.windows(2).filter(|pair| pair[0].contains("pcie-root-port"));
    ports.map(|pair| pair[1].trim().to_owned()).collect()
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    let mut plan = planned(LARGE);
    let vnic = plan.vnics[0].clone();
    plan.vnics = vec![vnic; 33];
    let refused = domain::document(&plan, &facts(&plan, Accelerator::Tcg)).unwrap_err();
    assert_eq!(refused.to_string(), "the VM has 33 vNICs; there is room for 32");
}

#[test]
fn text_stays_text() {
    let mut plan = planned(SMALL);
    plan.serial = Some("</entry><evil/>".to_owned());
    let document = domain::document(&plan, &facts(&plan, Accelerator::Tcg)).unwrap();
    assert!(!document.contains("<evil"), "{document}");
    plan.serial = Some("\u{1}".to_owned());
    assert!(domain::document(&plan, &facts(&plan, Accelerator::Tcg)).is_err());
}

fn vnic(addresses: &[(&str, Option<&str>)], routes: &[(&str, Option<&str>)]) -> Vnic {
    let gateway = |text: Option<&str>| text.map(|text| text.parse().unwrap());
    let address = |(address, by): &(&str, Option<&str>)| VnicAddress {
        address: address.parse().unwrap(),
        gateway: gateway(*by),
    };
    let route = |(to, by): &(&str, Option<&str>)| VnicRoute {
        destination: to.parse().unwrap(),
        gateway: gateway(*by),
    };
    Vnic {
        name: "default".parse().unwrap(),
        interface: "vnic0".parse().unwrap(),
        mac: None,
        addresses: addresses.iter().map(address).collect(),
        routes: routes.iter().map(route).collect(),
        dns: Dns {
            servers: vec!["10.96.0.10".parse().unwrap()],
            search: vec!["svc.cluster.local".to_owned()],
        },
        mtu: None,
    }
}

fn guest(hostname: &str) -> Guest<'_> {
    Guest {
        index: 0,
        mac: api::mac::MacAddress([2, 0, 0, 0, 0, 1]),
        hostname,
        mtu: Some(1450),
        bridge: Bridge::Segment,
    }
}

#[test]
fn networks() {
    let own = [("10.9.0.5/24", Some("10.9.0.1"))];
    for (name, vnic) in [
        ("network.xml", vnic(&own, &[("0.0.0.0/0", None)])),
        ("network-without-routes.xml", vnic(&own, &[])),
        ("network-routes.xml", vnic(&own, &[("0.0.0.0/0", None), ("10.244.0.0/16", Some("10.9.0.2"))])),
        ("network-no-default.xml", vnic(&own, &[("10.244.0.0/16", None)])),
        ("network-gateway-outside.xml", vnic(&[("10.9.0.5/32", Some("169.254.1.1"))], &[])),
        ("network-layer-2.xml", vnic(&[], &[])),
        ("network-both.xml", vnic(&[own[0], ("2001:db8::5/64", Some("2001:db8::1"))], &[])),
        ("network-ipv6.xml", vnic(&[("2001:db8::5/56", Some("2001:db8::1"))], &[("::/0", None)])),
    ] {
        recorded(name, &network::document(&vnic, guest("testvm")).unwrap());
    }
}

#[test]
fn guards() {
    recorded("guard.nft", &network::guard(&"vnic3".parse().unwrap(), 3));
}

/// The network of a masqueraded vNIC, and its rules.
#[test]
fn masquerades() {
    let both = ["10.244.1.5/24", "fd00:10:244:1::5/64"];
    for (name, addresses, pod, ports) in [
        ("default", &both[..1], "{}", "[]"),
        ("both", &both[..], "{}", "[]"),
        (
            "chosen",
            &both[..],
            "{ vmNetworkCIDR: 192.168.7.9/28, vmIPv6NetworkCIDR: 'fd77::/64' }",
            "[{ port: 443 }, { port: 22, protocol: TCP, name: ssh }, { port: 53, protocol: UDP }]",
        ),
    ] {
        let plan = planned(&format!(
            "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{ name: small }}
spec:
  domain:
    memory: {{ guest: 64Mi }}
    devices: {{ interfaces: [{{ name: default, masquerade: {{}}, ports: {ports} }}] }}
  networks: [{{ name: default, pod: {pod} }}]
"
        ));
        let Binding::Masquerade(masquerade) = &plan.vnics[0].binding else { panic!("{plan:?}") };
        let pod = PodInterface {
            mac: None,
            mtu: 1450,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        };
        let dns =
            masquerade::dns("search svc.cluster.local\nnameserver 10.96.0.10\nnameserver fd00:10:96::a\n");
        let vnic = masquerade::vnic(&plan.vnics[0].name, masquerade, &pod, dns).unwrap();
        let guest = Guest { bridge: Bridge::Gateway, ..guest("testvm") };
        recorded(&format!("masquerade-{name}.xml"), &network::document(&vnic, guest).unwrap());
        let rules = masquerade::rules(&vnic, &masquerade.ports, &pod, "vbr0");
        recorded(&format!("masquerade-{name}.nft"), &rules);
    }
}

#[test]
fn no_name_becomes_a_line_of_the_servers_configuration() {
    let mut vnic = vnic(&[("10.9.0.5/24", None)], &[]);
    for name in ["a\nconf-file=/etc/passwd", "a,b", "", "-a", "a b", "a'"] {
        assert!(network::document(&vnic, guest(name)).is_err(), "{name:?}");
    }
    vnic.dns.search = vec!["x\ndhcp-script=/bin/sh".to_owned()];
    let refused = network::document(&vnic, guest("testvm")).unwrap_err();
    assert!(refused.to_string().starts_with("vNIC default: the search domain"), "{refused}");
}
