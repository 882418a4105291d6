//! Values by themselves: what each field may be.

use super::{Row, accept, refuse};

const NOT_A_RANGE: &str = "Give the addresses of the network, such as 10.1.0.0/24 or fd00:1::/64.";

pub(super) const ROWS: [Row; 61] = [
    // Nothing is wanted.
    accept(""),
    accept(" \n"),
    // What a value must have.
    refuse(
        "{}",
        &[
            ("value.clusterNetwork", "Name the cluster network that is to carry migrations."),
            ("value.range", NOT_A_RANGE),
        ],
    ),
    refuse(r#"{"clusterNetwork":"mig"}"#, &[("value.range", NOT_A_RANGE)]),
    refuse(r#"{"clusterNetwork":"mig","range":"","rangeV6":""}"#, &[("value.range", NOT_A_RANGE)]),
    refuse(
        r#"{"range":"10.1.0.0/24"}"#,
        &[("value.clusterNetwork", "Name the cluster network that is to carry migrations.")],
    ),
    // VLANs.
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"mig","vlan":0,"range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"mig","vlan":1,"range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"mig","vlan":2,"range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"mig","vlan":4094,"range":"10.1.0.0/24"}"#),
    accept(r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","exclusiveVlan":true}"#),
    refuse(
        r#"{"clusterNetwork":"mig","vlan":4095,"range":"10.1.0.0/24"}"#,
        &[("value.vlan", "VLAN 4095 does not exist: choose 2 to 4094, or 0 for untagged traffic.")],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","vlan":-1,"range":"10.1.0.0/24"}"#,
        &[("value.vlan", "VLAN -1 does not exist: choose 2 to 4094, or 0 for untagged traffic.")],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","vlan":70000,"range":"10.1.0.0/24"}"#,
        &[("value.vlan", "VLAN 70000 does not exist: choose 2 to 4094, or 0 for untagged traffic.")],
    ),
    accept(r#"{"clusterNetwork":"mgmt","vlan":2,"range":"10.1.0.0/24"}"#),
    refuse(
        r#"{"clusterNetwork":"mgmt","range":"10.1.0.0/24"}"#,
        &[(
            "value.vlan",
            "Untagged traffic of mgmt is the nodes' own: choose a VLAN from 2 to 4094, or another cluster network.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mgmt","vlan":1,"range":"10.1.0.0/24"}"#,
        &[(
            "value.vlan",
            "Untagged traffic of mgmt is the nodes' own: choose a VLAN from 2 to 4094, or another cluster network.",
        )],
    ),
    // Ranges.
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/28"}"#),
    accept(r#"{"clusterNetwork":"mig","range":"11.0.0.0/8"}"#),
    accept(r#"{"clusterNetwork":"mig","range":"fd00:1::/64"}"#),
    accept(r#"{"clusterNetwork":"mig","range":"2001:db8::/120"}"#),
    accept(r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64"}"#),
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/64"}"#),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0"}"#,
        &[(
            "value.range",
            r#""10.1.0.0" lacks the length of its prefix: a network is written as address/length."#,
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.7/24"}"#,
        &[("value.range", r#""10.1.0.7/24" has host bits set: did you mean 10.1.0.0/24?"#)],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fd00:1::7/64"}"#,
        &[("value.range", r#""fd00:1::7/64" has host bits set: did you mean fd00:1::/64?"#)],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/33"}"#,
        &[(
            "value.range",
            r#""10.1.0.0/33" has no valid prefix length: for IPv4 it is a number from 0 to 32."#,
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fd00::/129"}"#,
        &[(
            "value.range",
            r#""fd00::/129" has no valid prefix length: for IPv6 it is a number from 0 to 128."#,
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"ten/24"}"#,
        &[("value.range", r#""ten" is not an IP address."#)],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"010.1.0.0/24"}"#,
        &[(
            "value.range",
            r#""010.1.0.0" has a leading zero, which some read as octal: did you mean 10.1.0.0?"#,
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.10-10.1.0.90/24"}"#,
        &[(
            "value.range",
            r#""10.1.0.10-10.1.0.90/24" is not a network: write address/length, and exclude what is not to be given."#,
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/31"}"#,
        &[(
            "value.range",
            "10.1.0.0/31 is too small: its lowest and its highest address are never given, and it has no other. Choose a larger range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fd00:1::1/128"}"#,
        &[(
            "value.range",
            "fd00:1::1/128 is too small: its lowest and its highest address are never given, and it has no other. Choose a larger range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"169.254.0.0/16"}"#,
        &[(
            "value.range",
            "169.254.0.0/16 has addresses of 169.254.0.0/16, which are link-local addresses: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"0.0.0.0/0"}"#,
        &[(
            "value.range",
            "0.0.0.0/0 has addresses of 0.0.0.0/8, which no host can have: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"224.1.0.0/16"}"#,
        &[(
            "value.range",
            "224.1.0.0/16 has addresses of 224.0.0.0/4, which are multicast addresses: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fe80::/64"}"#,
        &[(
            "value.range",
            "fe80::/64 has addresses of fe80::/10, which are link-local addresses: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"127.0.0.0/16"}"#,
        &[(
            "value.range",
            "127.0.0.0/16 has addresses of 127.0.0.0/8, which are loopback addresses: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"240.1.0.0/16"}"#,
        &[(
            "value.range",
            "240.1.0.0/16 has addresses of 240.0.0.0/4, which are reserved: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"::/64"}"#,
        &[("value.range", "::/64 has addresses of ::/128, which no host can have: choose another range.")],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"::1/128"}"#,
        &[(
            "value.range",
            "::1/128 has addresses of ::1/128, which is the loopback address: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"::ffff:10.1.0.0/120"}"#,
        &[("value.range", r#""::ffff:10.1.0.0" is an IPv4 address written as IPv6: did you mean 10.1.0.0?"#)],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"::fffe:0:0/95"}"#,
        &[(
            "value.range",
            "::fffe:0:0/95 has addresses of ::ffff:0.0.0.0/96, which are IPv4 addresses written as IPv6: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"ff02::/64"}"#,
        &[(
            "value.range",
            "ff02::/64 has addresses of ff00::/8, which are multicast addresses: choose another range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"10.2.0.0/24"}"#,
        &[("value.rangeV6", "10.2.0.0/24 is an IPv4 network: write it into range.")],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fd00:1::/64","rangeV6":"fd00:2::/64"}"#,
        &[(
            "value.rangeV6",
            "fd00:1::/64 and fd00:2::/64 are both IPv6: leave out one of range and rangeV6, or make range an IPv4 network.",
        )],
    ),
    // Ends of the second range.
    accept(
        r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::10","rangeV6End":"fd00:1::ff"}"#,
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6Start":"fd00:1::10"}"#,
        &[(
            "value.rangeV6Start",
            "fd00:1::10 belongs to rangeV6, which is not set: set it, or leave out rangeV6Start.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:2::1","rangeV6End":"x"}"#,
        &[
            ("value.rangeV6End", r#""x" is not an IP address."#),
            (
                "value.rangeV6Start",
                "fd00:2::1 is not one of the usable addresses fd00:1::1-fd00:1::ffff:ffff:ffff:fffe: choose one of those.",
            ),
        ],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64","rangeV6End":"fd00:2::1"}"#,
        &[(
            "value.rangeV6End",
            "fd00:2::1 is not one of the usable addresses fd00:1::1-fd00:1::ffff:ffff:ffff:fffe: choose one of those.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::20","rangeV6End":"fd00:1::10"}"#,
        &[(
            "value.rangeV6End",
            "fd00:1::10 is not one of the usable addresses fd00:1::20-fd00:1::ffff:ffff:ffff:fffe: choose one of those.",
        )],
    ),
    // Exclusions.
    accept(r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":[]}"#),
    accept(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.1","10.1.0.64/26","10.1.0.200-10.1.0.210"]}"#,
    ),
    accept(
        r#"{"clusterNetwork":"mig","range":"fd00:1::/64","exclude":["fd00:1:0:0:100::1","fd00:1::/72","fd00:1:0:0:8000::-fd00:1:0:0:9000::"]}"#,
    ),
    accept(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/64","exclude":["fd00:1::1","10.1.0.1"]}"#,
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.3/31","10.1.0.9-10.1.0.3","10.1.0.1-fd00::1","gate","10.1.0.1-x"]}"#,
        &[
            ("value.exclude[0]", r#""10.1.0.3/31" has host bits set: did you mean 10.1.0.2/31?"#),
            ("value.exclude[1]", r#""10.1.0.9-10.1.0.3" ends before it begins."#),
            ("value.exclude[2]", r#""10.1.0.1-fd00::1" begins in one family and ends in the other."#),
            ("value.exclude[3]", r#""gate" is not an IP address."#),
            (
                "value.exclude[4]",
                r#""x" in "10.1.0.1-x" is not an IP address: a range is written as first-last."#,
            ),
        ],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.1","10.1.1.1","10.1.0.0/16","10.1.0.250-10.1.1.4","fd00::1"]}"#,
        &[
            (
                "value.exclude[1]",
                "10.1.1.1 is not inside of 10.1.0.0/24: leave out what is not in the range.",
            ),
            (
                "value.exclude[2]",
                "10.1.0.0/16 is not inside of 10.1.0.0/24: leave out what is not in the range.",
            ),
            (
                "value.exclude[3]",
                "10.1.0.250-10.1.1.4 is not inside of 10.1.0.0/24: leave out what is not in the range.",
            ),
            ("value.exclude[4]", "fd00::1 is not inside of 10.1.0.0/24: leave out what is not in the range."),
        ],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/64","exclude":["fd00:2::1"]}"#,
        &[(
            "value.exclude[0]",
            "fd00:2::1 is not inside of 10.1.0.0/24 or of fd00:1::/64: leave out what is not in the range.",
        )],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.8/29","10.1.0.200","10.1.0.9"]}"#,
        &[("value.exclude[2]", "10.1.0.9 is excluded by exclude[0] already: leave out one of the two.")],
    ),
    refuse(
        r#"{"clusterNetwork":"mig","range":"fd00:1::/120","exclude":["fd00:1::/120"]}"#,
        &[(
            "value.range",
            "Nothing is left of fd00:1::1-fd00:1::fe: exclude less, or choose a larger range.",
        )],
    ),
];
