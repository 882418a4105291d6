#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects")]

use super::*;

#[test]
fn an_empty_file_is_three_nodes_on_two_networks() {
    let lab = read("").unwrap();
    let names: Vec<_> = lab.nodes().map(|(_, node)| node.name.as_str()).collect();
    assert_eq!(names, ["node-1", "node-2", "node-3"]);
    let nics: Vec<_> =
        lab.clusters[0].nodes[2].nics.iter().map(|nic| (nic.name.as_str(), nic.network.as_str())).collect();
    assert_eq!(nics, [("eth0", "management"), ("eth1", "secondary")]);
    assert_eq!(lab.clusters[0].nodes[2].address().unwrap().to_string(), "172.30.0.4");
    assert_eq!(lab.clusters[0].api_address.to_string(), "172.30.0.1");
    assert_eq!(lab, Topology::default());
}

#[test]
fn a_file_says_what_differs() {
    let lab = read(
        "
clusters:
  - name: east
    nodes: 2
  - name: west
    nodes:
      - name: big
        labels: { size: l }
        roles: [control-plane]
        taints: ['dedicated=vm:NoSchedule', 'spot:NoExecute']
      - count: 2
networks:
  - { name: mgmt, nic: eth0, cidr: 192.0.2.0/26, rate: 200Mbit }
  - { name: fast, nic: eth1, nodes: [big, east-2], mtu: 9000, bridge: br-fast }
  - { name: other, nic: eth1, clusters: [west], nodes: [west-2], rate: 1Gbit, shaper: htb }
",
    )
    .unwrap();
    let names: Vec<_> = lab.nodes().map(|(_, node)| node.name.as_str()).collect();
    assert_eq!(names, ["east-1", "east-2", "big", "west-2", "west-3"]);
    let big = lab.node("big").unwrap().1;
    assert_eq!(big.labels["node-role.kubernetes.io/control-plane"], "");
    assert_eq!(big.taints[0].value.as_deref(), Some("vm"));
    assert_eq!(big.taints[1].value, None);
    assert_eq!(big.nics[1].bridge.as_deref(), Some("br-fast"));
    assert_eq!(lab.node("west-3").unwrap().1.nics.len(), 1);
    assert_eq!(big.labels["network.harvesterhci.io/fast"], "true");
    assert!(!lab.node("west-3").unwrap().1.labels.contains_key("network.harvesterhci.io/fast"));
    assert_eq!(lab.node("west-2").unwrap().1.nics[1].network, "other");
    let rates: Vec<_> = lab.networks.iter().map(|network| network.rate).collect();
    assert_eq!(rates[0], Some(Rate { bits_per_second: 200_000_000, htb: false }));
    assert_eq!(rates[1], None);
    assert_eq!(rates[2], Some(Rate { bits_per_second: 1_000_000_000, htb: true }));
    assert_eq!((lab.clusters[0].api_port, lab.clusters[1].api_port), (6443, 6444));
    assert_ne!(lab.clusters[0].pod_cidr, lab.clusters[1].pod_cidr);
    let mut macs: Vec<_> = lab.nodes().flat_map(|(_, node)| &node.nics).map(|nic| &nic.mac).collect();
    macs.sort();
    macs.dedup();
    assert_eq!(macs.len(), 8, "every NIC has a MAC address of its own");
}

#[test]
fn pods_may_have_both_versions_and_then_nodes_have_too() {
    let lab = read("clusters:\n  - name: lab\n    podCIDRs: [10.7.0.0/16, 'fd10:7::/48']").unwrap();
    let cluster = &lab.clusters[0];
    assert_eq!(cluster.pod_cidr.to_string(), "10.7.0.0/16");
    assert_eq!(cluster.pod_cidr_ipv6.unwrap().to_string(), "fd10:7::/48");
    let texts = |addresses: Vec<IpAddr>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(cluster.nodes[2].addresses()), ["172.30.0.4", "fd00:172:30::4"]);
    let fabric: Vec<_> = lab.networks[0].addresses().map(|address| address.to_string()).collect();
    assert_eq!(fabric, ["172.30.0.1/24", "fd00:172:30::1/64"]);
    assert!(lab.networks[1].addresses().next().is_none());
    assert_eq!(texts(read("").unwrap().clusters[0].nodes[0].addresses()), ["172.30.0.2"]);
}

/// What is wrong, on which line, and what of the rule must be said.
const REFUSED: [(&str, u64, &str); 35] = [
    ("clusters: []", 1, "at least one"),
    ("cluster: 3", 1, "cluster"),
    ("clusters:\n  - name: A", 2, "lower-case"),
    ("clusters:\n  - name: a-", 2, "lower-case"),
    ("clusters:\n  - nodes: 3", 2, "name"),
    ("clusters:\n  - name: a\n  - name: a", 3, "twice"),
    ("clusters:\n  - name: a\n    nodes: 0", 3, "1 to 100"),
    ("clusters:\n  - name: a\n    nodes: 101", 3, "1 to 100"),
    ("clusters:\n  - name: a\n    nodes: many", 3, ""),
    ("clusters:\n  - name: a\n    nodes:\n      - name: Node", 4, "lower-case"),
    ("clusters:\n  - name: a\n    nodes:\n      - name: n\n        count: 2", 5, "leave out count"),
    ("clusters:\n  - name: a\n    nodes:\n      - name: n\n      - name: n", 2, "twice"),
    ("clusters:\n  - name: a\n    nodes:\n      - taints: [x]", 4, "NoSchedule"),
    ("clusters:\n  - name: a\n    podCIDR: 10.0.0.1/16", 3, "IPv4 network"),
    ("clusters:\n  - name: a\n    podCIDR: 10.0.0.0/23", 3, "room for 2 nodes"),
    (
        "clusters:\n  - name: a\n    podCIDR: 10.1.0.0/16\n  - name: b\n    podCIDR: 10.1.0.0/17",
        5,
        "overlaps",
    ),
    ("clusters:\n  - name: a\n    podCIDRs: []", 3, "one network of IPv4"),
    ("clusters:\n  - name: a\n    podCIDR: 10.1.0.0/16\n    podCIDRs: [10.1.0.0/16]", 4, "leave out podCIDR"),
    ("clusters:\n  - name: a\n    podCIDRs: ['fd01::/48']", 3, "IPv4 network"),
    ("clusters:\n  - name: a\n    podCIDRs:\n      - 10.1.0.0/16\n      - 10.2.0.0/16", 5, "IPv6 network"),
    ("clusters:\n  - name: a\n    podCIDRs:\n      - 10.1.0.0/16\n      - fd01::/63", 5, "room for 2 nodes"),
    ("clusters:\n  - name: a\n    podCIDRs: [10.1.0.0/16, 'fd00::/16']", 3, "nodes have their own"),
    ("clusters:\n  - name: a\n    podCIDRs: [10.1.0.0/16, 'fe80::/48']", 3, "pods can have"),
    (
        "clusters:\n  - name: a\n    podCIDRs: [10.1.0.0/16, 'fd01::/48']\n  - name: b\n    podCIDRs: [10.2.0.0/16, 'fd01::/56']",
        5,
        "overlaps",
    ),
    ("networks:\n  - { name: m, nic: eth1 }", 1, "no eth0"),
    ("networks:\n  - { name: m, nic: wlan0 }", 2, "eth0, eth1"),
    ("networks:\n  - { name: a-very-long-network, nic: eth0 }", 2, "at most 15"),
    ("networks:\n  - { name: m, nic: eth0 }\n  - { name: m, nic: eth1 }", 3, "twice"),
    ("networks:\n  - { name: m, nic: eth0 }\n  - { name: n, nic: eth0 }", 3, "already"),
    (
        "networks:\n  - { name: m, nic: eth0 }\n  - { name: n, nic: eth1, nodes: [node-9] }",
        3,
        "node-1, node-2",
    ),
    ("networks:\n  - { name: m, nic: eth0, rate: fast }", 2, "200Mbit"),
    ("networks:\n  - { name: m, nic: eth0, shaper: tbf }", 2, "needs a rate"),
    ("networks:\n  - { name: m, nic: eth0, mtu: 100 }", 2, "576"),
    ("networks:\n  - { name: m, nic: eth0, cidr: 10.244.3.0/24 }", 2, "overlaps"),
    (
        "networks:\n  - { name: m, nic: eth0, cidr: 10.0.0.0/29 }\nclusters: [{ name: a, nodes: 6 }]",
        2,
        "no address left",
    ),
];

#[test]
fn a_bad_file_is_refused_with_the_line_and_the_rule() {
    for (text, line, rule) in REFUSED {
        let refusal = read(text).expect_err(text);
        assert_eq!(refusal.line, line, "{text}\n{refusal}");
        assert!(refusal.rule.contains(rule), "{text}\n{refusal}");
    }
}
