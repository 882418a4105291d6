//! Spellings of one network: they are the same, and the normal one reads as the network that it was written from.

use proptest::prelude::*;

use crate::admission::setting::{MigrationNetwork, read};

fn network(value: &str) -> MigrationNetwork {
    read(value, "value").unwrap().unwrap()
}

#[test]
fn spellings_of_one_network_have_one_hash() {
    for (normal, others) in [
        (
            r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","exclude":["10.1.0.2/31","10.1.0.200-10.1.0.202"]}"#,
            vec![
                r#" {"range" : "10.1.0.0/24", "clusterNetwork":"mig","vlan":1,"exclude":["10.1.0.202","10.1.0.200/31","10.1.0.3","10.1.0.2"]}"#,
                r#"{"clusterNetwork":"mig","vlan":0,"range":"10.1.0.0/24","exclude":["10.1.0.0","10.1.0.2-10.1.0.3","10.1.0.200-10.1.0.202","10.1.0.255"],"exclusiveVlan":false}"#,
            ],
        ),
        (
            r#"{"clusterNetwork":"mig","vlan":7,"range":"fd00:1::/64"}"#,
            vec![
                r#"{"clusterNetwork":"mig","vlan":7,"rangeV6":"fd00:1::/64"}"#,
                r#"{"clusterNetwork":"mig","vlan":7,"rangeV6":"fd00:1:0:0::/64","rangeV6Start":"fd00:1::1","rangeV6End":"fd00:1::ffff:ffff:ffff:fffe"}"#,
            ],
        ),
        (
            r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::10","rangeV6End":"fd00:1::ffff:ffff:ffff:fffe"}"#,
            vec![
                r#"{"clusterNetwork":"mig","range":"10.1.0.0/24","rangeV6":"fd00:1::/64","rangeV6Start":"fd00:1::10","exclude":["fd00:1::/124"]}"#,
            ],
        ),
    ] {
        assert_eq!(network(normal).text(), normal);
        for other in others {
            assert_eq!(network(other).text(), normal);
            assert_eq!(network(other).hash(), network(normal).hash());
        }
    }
}

#[test]
fn another_network_has_another_hash() {
    let one = network(r#"{"clusterNetwork":"mig","vlan":7,"range":"10.1.0.0/24"}"#);
    for other in [
        r#"{"clusterNetwork":"mig","range":"10.1.0.0/24"}"#,
        r#"{"clusterNetwork":"gim","vlan":7,"range":"10.1.0.0/24"}"#,
        r#"{"clusterNetwork":"mig","vlan":7,"range":"10.1.0.0/25"}"#,
        r#"{"clusterNetwork":"mig","vlan":7,"range":"10.1.0.0/24","exclude":["10.1.0.9"]}"#,
    ] {
        assert_ne!(network(other).hash(), one.hash());
    }
    assert_eq!(one.hash().len(), 40);
}

proptest! {
    #[test]
    fn the_normal_spelling_reads_as_the_same_network(
        vlan in prop::option::of(0..4095_i64),
        prefix in 20..30_u8,
        second in prop::option::of((60..124_u8, prop::option::of(1..4_u8))),
        exclusions in prop::collection::vec((0..255_u8, 0..4_u8), 0..5),
    ) {
        let mut value = serde_json::json!({ "clusterNetwork": "mig", "range": format!("10.1.0.0/{prefix}") });
        if let Some(vlan) = vlan {
            value["vlan"] = vlan.into();
        }
        if let Some((prefix, start)) = second {
            value["rangeV6"] = format!("fd00:1::/{prefix}").into();
            if let Some(start) = start {
                value["rangeV6Start"] = format!("fd00:1::{start}").into();
            }
        }
        let texts: Vec<String> = exclusions
            .iter()
            .map(|(from, more)| format!("10.1.0.{from}-10.1.0.{}", from.saturating_add(*more)))
            .collect();
        value["exclude"] = texts.into();
        if let Ok(Some(network)) = read(&value.to_string(), "value") {
            let again = self::network(&network.text());
            prop_assert_eq!(again.text(), network.text());
            prop_assert_eq!(again.allocatable(), network.allocatable());
            prop_assert_eq!(again.segment(), network.segment());
            prop_assert_eq!(again.ranges(), network.ranges());
        }
    }
}
