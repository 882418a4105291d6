//! The network annotations: both formats, what is refused and why, and that nothing a user writes can panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::error::Error;

use api::multus::{
    Bandwidth, NetworkDns, NetworkSelection, NetworkStatus, PortMapping, RequestedAddress, SelectionError,
    format_network_status, format_networks, is_interface_name, parse_default_network, parse_network_status,
    parse_networks,
};
use proptest::prelude::*;

fn select(namespace: Option<&str>, name: &str, interface: Option<&str>) -> NetworkSelection {
    NetworkSelection::new(namespace, name, interface)
}

#[test]
fn the_short_format() {
    assert_eq!(parse_networks("").unwrap(), []);
    assert_eq!(parse_networks("  \n").unwrap(), []);
    assert_eq!(
        parse_networks("migration-network@migration0").unwrap(),
        [select(None, "migration-network", Some("migration0"))]
    );
    assert_eq!(
        parse_networks(" infra/storage , blue@net7,blue ").unwrap(),
        [
            select(Some("infra"), "storage", None),
            select(None, "blue", Some("net7")),
            select(None, "blue", None),
        ]
    );
}

#[test]
fn the_json_format() {
    let text = r#"[
        {"name": "storage.v2", "namespace": "infra", "interface": "net1", "mac": "02-00-00-00-00-01",
         "ips": ["10.40.0.17", "fd00:40::17/64"], "ipam-claim-reference": "ledger.storage",
         "default-route": ["10.40.0.1"], "cni-args": {"key": {"nested": [1]}}, "something-new": true},
        {"name": "blue", "interfaceRequest": "net2", "default-route": [], "portMappings": [{"hostPort": 8080, "containerPort": 80}],
         "bandwidth": {"ingressRate": 1000}, "deviceID": "0000:01:00.1", "infiniband-guid": "c2:11"}
    ]"#;
    let selections = parse_networks(text).unwrap();
    let [storage, blue] = selections.as_slice() else { panic!() };
    assert_eq!(storage.mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert_eq!(
        storage.ips[0],
        RequestedAddress { address: "10.40.0.17".parse().unwrap(), prefix_length: None }
    );
    assert_eq!(storage.ips[1].prefix_length, Some(64));
    assert_eq!(storage.ipam_claim_reference.as_deref(), Some("ledger.storage"));
    assert_eq!(storage.default_route.as_ref().unwrap().len(), 1);
    assert_eq!(storage.cni_args["key"]["nested"][0], 1);
    assert_eq!(blue.interface.as_deref(), Some("net2"), "the older spelling");
    assert_eq!(blue.default_route, Some(Vec::new()), "empty is not absent");
    assert_eq!(blue.port_mappings[0].host_port, 8080);
    assert_eq!(blue.bandwidth.as_ref().unwrap().ingress_rate, 1000);
}

/// Each with a part of what the user is told.
#[test]
fn what_is_refused_says_why() {
    for (text, why) in [
        (",", "element 1 of the networks annotation is empty"),
        ("a,,b", "element 2 of the networks annotation is empty"),
        ("a/b/c", r#"element 1 "a/b/c" is not of the form [namespace/]name[@interface]"#),
        ("a@b@c", "is not of the form"),
        ("Blue", r#"name "Blue" must be lower-case"#),
        ("blue.1", r#"name "blue.1" must be"#),
        ("In_fra/blue", r#"namespace "In_fra" must be"#),
        ("/blue", r#"namespace "" must be"#),
        ("blue@", r#"interface "" must be 1 to 15"#),
        ("blue@much-too-long-name", "must be 1 to 15 characters"),
        ("blue@a b", "without spaces"),
        ("a@net1,b@net1", r#"element 2: interface "net1" is already taken"#),
        (r#"{"name":"a"}"#, "not a JSON list"),
        (r#"[{"namespace":"a"}]"#, "missing field `name`"),
        (r#"[{"name":"a"},{"name":""}]"#, r#"element 2: name "" must be"#),
        (r#"[{"name":"a","ips":["10.0.0.256"]}]"#, r#""10.0.0.256" is not an IP address"#),
        (r#"[{"name":"a","ips":["10.0.0.1/33"]}]"#, r#""10.0.0.1/33" is not an IP address"#),
        (r#"[{"name":"a","ips":["10.0.0.1/+8"]}]"#, r#""10.0.0.1/+8" is not an IP address"#),
        (r#"[{"name":"a","mac":"02:00"}]"#, r#""02:00" is not a MAC address"#),
        (
            r#"[{"name":"a","default-route":["10.0.0.0/8"]}]"#,
            r#"default-route "10.0.0.0/8" is not an IP address"#,
        ),
        (
            r#"[{"name":"a","default-route":["10.0.0.1","fd00::1"]},{"name":"b","default-route":["10.0.1.1"]}]"#,
            "element 2: default-route 10.0.1.1 is a second IPv4 default route",
        ),
        (
            r#"[{"name":"a","ipam-claim-reference":"Not A Name"}]"#,
            r#"ipam-claim-reference "Not A Name" must be"#,
        ),
    ] {
        let error = parse_networks(text).unwrap_err();
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        let told = format!("{error}: {cause}");
        assert!(told.contains(why), "{text}: {told}");
    }
}

#[test]
fn the_default_network_is_one() {
    let selection =
        parse_default_network(r#"[{"name":"default","namespace":"ovn-kubernetes","ips":["10.0.0.9/16"]}]"#)
            .unwrap();
    assert_eq!(selection.name, "default");
    assert!(matches!(parse_default_network(""), Err(SelectionError::NotOne { count: 0 })));
    assert!(matches!(parse_default_network("a,b"), Err(SelectionError::NotOne { count: 2 })));
}

#[test]
fn the_short_format_is_written_when_it_says_everything() {
    let plain = [select(Some("infra"), "storage", Some("net1")), select(None, "blue", None)];
    assert_eq!(format_networks(&plain).unwrap(), "infra/storage@net1,blue");
    let claimed = NetworkSelection { ipam_claim_reference: Some("c".into()), ..plain[1].clone() };
    assert_eq!(format_networks(&[claimed]).unwrap(), r#"[{"name":"blue","ipam-claim-reference":"c"}]"#);
    assert_eq!(format_networks(&[]).unwrap(), "");
}

#[test]
fn network_status_as_multus_writes_it() {
    let text = r#"[{
        "name": "cbr0", "interface": "eth0", "ips": ["10.244.1.7", "fd00:10::7"], "mac": "aa:bb:cc:00:11:22", "default": true, "dns": {}
    },{
        "name": "kubevirt/migration-bridge", "interface": "migration0", "ips": ["10.1.1.7"], "mtu": 9000,
        "dns": {"nameservers": ["10.1.1.1"]}, "gateway": ["10.1.1.1"], "device-info": {"type": "pci", "version": "1.0.0"}
    }]"#;
    let statuses = parse_network_status(text).unwrap();
    assert_eq!(statuses[1].interface.as_deref(), Some("migration0"));
    assert_eq!(statuses[1].device_info.as_ref().unwrap()["type"], "pci");
    let again = format_network_status(&statuses).unwrap();
    assert!(again.contains("\n    \"dns\": {}"), "indented, and with the key that readers expect: {again}");
    assert_eq!(parse_network_status(&again).unwrap(), statuses);
    assert_eq!(parse_network_status("").unwrap(), []);
    assert!(parse_network_status("nonsense").is_err());
}

prop_compose! {
    fn any_address()(address: std::net::IpAddr, prefix in proptest::option::of(0_u8..=32)) -> RequestedAddress {
        RequestedAddress { address, prefix_length: prefix }
    }
}

fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?"
}

prop_compose! {
    fn any_selection()(
        name in prop_oneof![label(), (label(), label()).prop_map(|(left, right)| format!("{left}.{right}"))],
        namespace in proptest::option::of(label()),
        ips in proptest::collection::vec(any_address(), 0..3),
        mac in proptest::option::of(any::<[u8; 6]>()),
        claim in proptest::option::of(label()),
        routed in proptest::option::of(Just(Vec::new())),
        argument in proptest::option::of("\\PC{0,8}"),
        port in proptest::option::of(any::<(u16, u16)>()),
        rate in proptest::option::of(0_u64..1_000_000),
    ) -> NetworkSelection {
        NetworkSelection {
            ips,
            mac: mac.map(api::mac::MacAddress),
            ipam_claim_reference: claim,
            default_route: routed,
            cni_args: argument.into_iter().map(|value| ("arg".to_owned(), value.into())).collect(),
            port_mappings: port
                .into_iter()
                .map(|(host_port, container_port)| PortMapping { host_port, container_port, ..PortMapping::default() })
                .collect(),
            bandwidth: rate.map(|ingress_rate| Bandwidth { ingress_rate, ..Bandwidth::default() }),
            ..NetworkSelection::new(namespace.as_deref(), &name, None)
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        selections in proptest::collection::vec((any_selection(), proptest::option::of("[!-~]{1,15}")), 0..5),
    ) {
        let selections: Vec<_> = selections
            .into_iter()
            .enumerate()
            .map(|(index, (selection, interface))| {
                // Names must differ; whatever else Linux takes as a name is fair.
                let interface = interface.map(|name| format!("{index}{}", &name[..name.len().min(13)]));
                NetworkSelection { interface: interface.filter(|name| is_interface_name(name)), ..selection }
            })
            .collect();
        let text = format_networks(&selections).unwrap();
        prop_assert_eq!(parse_networks(&text).unwrap(), selections, "{}", text);
    }

    #[test]
    fn plain_attachments_are_read_back(
        parts in proptest::collection::vec((proptest::option::of(label()), label(), proptest::bool::ANY), 0..6),
    ) {
        let selections: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(index, (namespace, name, named))| {
                select(namespace.as_deref(), name, named.then(|| format!("net{index}")).as_deref())
            })
            .collect();
        let text = format_networks(&selections).unwrap();
        prop_assert!(!text.contains('['));
        prop_assert_eq!(parse_networks(&text).unwrap(), selections);
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,60}", likely in "[\\[\\]{}\",:/@ a-z0-9.-]{0,60}") {
        let _ = parse_networks(&text);
        let _ = parse_networks(&likely);
        let _ = parse_default_network(&likely);
        let _ = parse_network_status(&likely);
    }

    #[test]
    fn statuses_are_read_back(
        names in proptest::collection::vec(("\\PC{0,20}", proptest::option::of("[a-z0-9]{1,15}"), any::<bool>()), 0..4),
    ) {
        let statuses: Vec<_> = names
            .into_iter()
            .map(|(name, interface, default)| NetworkStatus { name, interface, default, dns: NetworkDns::default(), ..NetworkStatus::default() })
            .collect();
        prop_assert_eq!(parse_network_status(&format_network_status(&statuses).unwrap()).unwrap(), statuses);
    }
}
