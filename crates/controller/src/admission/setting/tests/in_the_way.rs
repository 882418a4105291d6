//! Values in a cluster: what is in the way, and what only seems to be.

use serde_json::json;

use super::{PLAIN, Row, accept, fit, object, refuse, setting, unfit};

pub(super) const ROWS: [Row; 31] = [
    // Pods, services, nodes.
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.42.0.0/16","exclude":["10.42.0.0/17"]}"#,
        &[(
            "value.range",
            "The range overlaps with the pod network in 10.42.0.0/20: choose addresses that nothing else has.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd42::/56"}"#,
        &[(
            "value.rangeV6",
            "The range overlaps with the pod network in fd42::/60: choose addresses that nothing else has.",
        )],
    ),
    // The slice of a node that is still to come.
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.42.4.0/24"}"#,
        &[(
            "value.range",
            "The range overlaps with the pod network in 10.42.4.0/24: choose addresses that nothing else has.",
        )],
    ),
    accept(r#"{"clusterNetwork":"mig","range":"10.42.16.0/24"}"#),
    // Of one node there is its slice, and of slices that are not of one network nothing between them.
    fit(r#"{"clusterNetwork":"mig","range":"10.42.4.0/24"}"#, |cluster| cluster.nodes.truncate(1)),
    unfit(
        r#"{"clusterNetwork":"mig","range":"10.42.1.0/24"}"#,
        |cluster| cluster.nodes.truncate(1),
        &[(
            "value.range",
            "The range overlaps with the pod network in 10.42.1.0/24: choose addresses that nothing else has.",
        )],
    ),
    unfit(
        r#"{"clusterNetwork":"mig","range":"172.16.0.0/16","rangeV6":"fd42::/48"}"#,
        |cluster| {
            cluster.nodes[1].spec = object(json!({ "podCIDRs": ["172.16.2.0/24", "fd52::/64"] }));
            cluster.nodes.truncate(2);
        },
        &[
            (
                "value.range",
                "The range overlaps with the pod network in 172.16.2.0/24: choose addresses that nothing else has.",
            ),
            (
                "value.rangeV6",
                "The range overlaps with the pod network in fd42:0:0:1::/64: choose addresses that nothing else has.",
            ),
        ],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","rangeV6":"fd43::/120"}"#,
        &[(
            "value.rangeV6",
            "The range overlaps with the service network in fd43::/120: choose addresses that nothing else has.",
        )],
    ),
    // Where no service ranges are told, the one address that every cluster has.
    unfit(
        r#"{"clusterNetwork":"mig","range":"10.43.0.0/24","rangeV6":"fd43::/112"}"#,
        |cluster| {
            cluster.service_ranges.clear();
            cluster.api_service = Some(object(
                json!({ "spec": { "clusterIP": "10.43.0.1", "clusterIPs": ["10.43.0.1", "fd43::1"] } }),
            ));
        },
        &[
            (
                "value.range",
                "The range overlaps with the service network in 10.43.0.1: choose addresses that nothing else has.",
            ),
            (
                "value.rangeV6",
                "The range overlaps with the service network in fd43::1: choose addresses that nothing else has.",
            ),
        ],
    ),
    fit(r#"{"clusterNetwork":"mig","range":"10.43.7.0/24"}"#, |cluster| cluster.service_ranges.clear()),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.43.7.0/24"}"#,
        &[(
            "value.range",
            "The range overlaps with the service network in 10.43.7.0/24: choose addresses that nothing else has.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"192.168.0.0/16"}"#,
        &[(
            "value.range",
            "The range overlaps with the nodes' network in 192.168.1.0/28: choose addresses that nothing else has.",
        )],
    ),
    // Between the nodes' addresses, though none of them.
    refuse(
        r#"{"clusterNetwork":"mig","range":"192.168.1.4/30"}"#,
        &[
            (
                "value.range",
                "Too few addresses: the network needs 7 = 3 nodes + 1 resting in a rolling update + 2 synchronization controllers + 1 more of those in a rolling update; 192.168.1.4/30 has 2 = 2 usable (192.168.1.5-192.168.1.6); 5 missing. Choose a larger range, or exclude less.",
            ),
            (
                "value.range",
                "The range overlaps with the nodes' network in 192.168.1.4/30: choose addresses that nothing else has.",
            ),
        ],
    ),
    accept(r#"{"clusterNetwork":"mig","range":"192.168.1.64/26"}"#),
    // Where the length of their network is noted, all of it.
    unfit(
        r#"{"clusterNetwork":"mig","range":"192.168.1.64/26"}"#,
        |cluster| note(cluster, "projectcalico.org/IPv4Address", "192.168.1.1/24"),
        &[(
            "value.range",
            "The range overlaps with the nodes' network in 192.168.1.64/26: choose addresses that nothing else has.",
        )],
    ),
    unfit(
        r#"{"clusterNetwork":"mig","range":"fd01::1:0/112"}"#,
        |cluster| note(cluster, "projectcalico.org/IPv6Address", "fd01::7/64"),
        &[(
            "value.range",
            "The range overlaps with the nodes' network in fd01::1:0/112: choose addresses that nothing else has.",
        )],
    ),
    fit(r#"{"clusterNetwork":"mig","range":"192.168.1.64/26"}"#, |cluster| {
        note(cluster, "projectcalico.org/IPv4Address", "192.168.1.1/99");
    }),
    unfit(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd01::/64"}"#,
        |cluster| {
            cluster.nodes[0].status =
                object(json!({ "addresses": [{ "type": "InternalIP", "address": "fd01::7" }] }));
        },
        &[(
            "value.rangeV6",
            "The range overlaps with the nodes' network in fd01::7: choose addresses that nothing else has.",
        )],
    ),
    // Other networks, by cluster network and VLAN.
    unfit(
        PLAIN,
        |cluster| {
            cluster.other_settings.push(setting("storage-network", r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/25","exclude":["10.1.0.64/26"],"exclusiveVlan":true}"#));
        },
        &[(
            "value.range",
            "The range overlaps with the setting storage-network in 10.1.0.1-10.1.0.63: choose addresses that nothing else has.",
        )],
    ),
    fit(PLAIN, |cluster| {
        cluster
            .other_settings
            .push(setting("storage-network", r#"{"clusterNetwork":"mig","vlan":201,"range":"10.1.0.0/24"}"#));
    }),
    fit(PLAIN, |cluster| {
        cluster
            .other_settings
            .push(setting("storage-network", r#"{"clusterNetwork":"nic","vlan":200,"range":"10.1.0.0/24"}"#));
    }),
    fit(
        r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","exclude":["10.1.0.0/25"]}"#,
        |cluster| {
            cluster.other_settings.push(setting(
                "storage-network",
                r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/25"}"#,
            ));
        },
    ),
    unfit(
        r#"{"clusterNetwork":"mig","vlan":0,"range":"10.1.0.0/24"}"#,
        |cluster| {
            cluster.other_settings.push(setting("rwx-network", r#"{"share-storage-network":false,"network":{"clusterNetwork":"mig","vlan":1,"range":"10.1.0.240/28"}}"#));
        },
        &[(
            "value.range",
            "The range overlaps with the setting rwx-network in 10.1.0.241-10.1.0.254: choose addresses that nothing else has.",
        )],
    ),
    fit(PLAIN, |cluster| {
        cluster.other_settings.push(setting("rwx-network", r#"{"share-storage-network":true,"network":{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24"}}"#));
    }),
    fit(PLAIN, |cluster| {
        cluster.other_settings.extend([
            setting("rwx-network", r#"{"share-storage-network":false}"#),
            setting("storage-network", ""),
        ]);
    }),
    unfit(
        PLAIN,
        |cluster| cluster.other_settings.push(setting("storage-network", r#"{"range":"10.1.0.0"}"#)),
        &[(
            "value.range",
            r#"The setting storage-network cannot be read (range: "10.1.0.0" lacks the length of its prefix: a network is written as address/length), so nobody can tell whether its addresses are in the way: correct it first."#,
        )],
    ),
    unfit(
        PLAIN,
        |cluster| cluster.other_settings.push(setting("storage-network", r#"{"range":"10.9.0.0/24""#)),
        &[(
            "value.range",
            "The setting storage-network cannot be read (EOF while parsing an object at line 1 column 22), so nobody can tell whether its addresses are in the way: correct it first.",
        )],
    ),
    // Either family of theirs.
    unfit(
        r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","rangeV6":"fd00:1::/64"}"#,
        |cluster| {
            cluster.other_settings.push(setting(
                "storage-network",
                r#"{"clusterNetwork":"mig","vlan":200,"range":"10.9.0.0/24","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::10","rangeV6End":"fd00:1::1f","exclude":["10.9.0.1","fd00:1::18/125"]}"#,
            ));
        },
        &[(
            "value.rangeV6",
            "The range overlaps with the setting storage-network in fd00:1::10/125: choose addresses that nothing else has.",
        )],
    ),
    unfit(
        r#"{"clusterNetwork":"mig","vlan":200,"range":"fd00:1::/64"}"#,
        |cluster| {
            cluster.other_settings.push(setting(
                "rwx-network",
                r#"{"network":{"clusterNetwork":"mig","vlan":200,"rangeV6":"fd00:1::/120","exclude":["fd00:1::80/121"]}}"#,
            ));
        },
        &[(
            "value.range",
            "The range overlaps with the setting rwx-network in fd00:1::1-fd00:1::7f: choose addresses that nothing else has.",
        )],
    ),
    fit(r#"{"clusterNetwork":"mig","vlan":200,"range":"fd00:1::/64"}"#, |cluster| {
        cluster.other_settings.push(setting(
            "storage-network",
            r#"{"clusterNetwork":"mig","vlan":201,"range":"10.9.0.0/24","rangeV6":"fd00:1::/64"}"#,
        ));
    }),
    unfit(
        PLAIN,
        |cluster| {
            cluster
                .other_settings
                .push(setting("storage-network", r#"{"range":"10.9.0.0/24","rangeV6":"fd00:1::"}"#));
        },
        &[(
            "value.range",
            r#"The setting storage-network cannot be read (rangeV6: range: "fd00:1::" lacks the length of its prefix: a network is written as address/length), so nobody can tell whether its addresses are in the way: correct it first."#,
        )],
    ),
];

/// Something that another notes on the first node.
fn note(cluster: &mut super::Cluster, name: &str, value: &str) {
    cluster.nodes[0].metadata.annotations = Some([(name.to_owned(), value.to_owned())].into());
}
