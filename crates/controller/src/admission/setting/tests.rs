//! The setting at the door: a table of values, each with every word of its refusal; and what is asked before and after.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

mod fitting;
mod in_the_way;
mod requests;
mod spelling;
mod values;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{read, rules};

const PLAIN: &str = r#"{"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24"}"#;

/// A row: a value, what is special about the cluster, and what is refused, field by field. Nothing refused: it is accepted.
struct Row {
    value: &'static str,
    but: fn(&mut Cluster),
    refused: &'static [(&'static str, &'static str)],
}

const fn accept(value: &'static str) -> Row {
    Row { value, but: |_| {}, refused: &[] }
}

const fn refuse(value: &'static str, refused: &'static [(&'static str, &'static str)]) -> Row {
    Row { value, but: |_| {}, refused }
}

const fn fit(value: &'static str, but: fn(&mut Cluster)) -> Row {
    Row { value, but, refused: &[] }
}

const fn unfit(
    value: &'static str,
    but: fn(&mut Cluster),
    refused: &'static [(&'static str, &'static str)],
) -> Row {
    Row { value, but, refused }
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn ready(status: &str, message: &str) -> Value {
    json!([{ "type": "ready", "status": status, "message": message }])
}

fn node(name: &str, number: usize) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "rack": number.to_string() } },
        "spec": { "podCIDR": format!("10.42.{number}.0/24"), "podCIDRs": [format!("10.42.{number}.0/24"), format!("fd42:0:0:{number}::/64")] },
        "status": { "addresses": [
            { "type": "InternalIP", "address": format!("192.168.1.{number}") },
            { "type": "Hostname", "address": name },
        ]},
    })
}

fn vlan_status(network: &str, node: &str, status: &str, message: &str) -> Value {
    json!({
        "metadata": { "name": format!("{network}-{node}") },
        "status": { "clusterNetwork": network, "vlanConfig": network, "linkMonitor": "", "node": node, "conditions": ready(status, message) },
    })
}

fn setting(name: &str, value: &str) -> api::harvester::Setting {
    object(json!({ "metadata": { "name": name }, "value": value }))
}

/// Three nodes and a witness; `mig` reaches the three, `mgmt` and `nic` all.
fn three_nodes() -> Cluster {
    let cluster_network = |name: &str, annotations: Value| {
        object(
            json!({ "metadata": { "name": name, "annotations": annotations }, "status": { "conditions": ready("True", "") } }),
        )
    };
    let vlan_config = |network: &str, matched: &str| {
        object(json!({
            "metadata": { "name": network, "annotations": { "network.harvesterhci.io/matched-nodes": matched } },
            "spec": { "clusterNetwork": network, "uplink": {} },
        }))
    };
    let mut witness = node("witness", 9);
    witness["metadata"]["labels"] = json!({ "node-role.harvesterhci.io/witness": "true" });
    let nodes = ["n1", "n2", "n3"];
    let mut all: Vec<Value> = nodes.iter().zip(1..).map(|(name, number)| node(name, number)).collect();
    all.push(witness);
    let statuses = ["mig", "nic"].iter().flat_map(|network| nodes.iter().map(move |node| (network, node)));
    Cluster {
        installation: Some(object(json!({ "metadata": { "name": "kubevirt" }, "spec": {} }))),
        nodes: all.into_iter().map(object).collect(),
        cluster_networks: vec![
            cluster_network("mgmt", json!({})),
            cluster_network("mig", json!({ "network.harvesterhci.io/uplink-mtu": "9000" })),
            cluster_network("nic", json!({ "godwit.dev/uplink": "eth1" })),
        ],
        vlan_configs: vec![
            vlan_config("mig", r#"["n1","n2","n3"]"#),
            vlan_config("nic", r#"["n1","n2","n3"]"#),
        ],
        vlan_statuses: statuses
            .map(|(network, node)| object(vlan_status(network, node, "True", "")))
            .collect(),
        other_settings: Vec::new(),
        service_ranges: vec![object(
            json!({ "metadata": { "name": "kubernetes" }, "spec": { "cidrs": ["10.43.0.0/16", "fd43::/112"] } }),
        )],
        api_service: None,
    }
}

/// What is refused of a value in a cluster.
fn refused(value: &str, cluster: &Cluster) -> Vec<(String, String)> {
    let causes = match read(value, "value") {
        Ok(None) => Vec::new(),
        Ok(Some(network)) => rules::judge(&network, cluster, "value"),
        Err(causes) => causes,
    };
    causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
}

fn judge(rows: &[Row]) {
    let mut wrong = Vec::new();
    for Row { value, but, refused: expected } in rows {
        let mut cluster = three_nodes();
        but(&mut cluster);
        let found = refused(value, &cluster);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(field, message)| (field.as_str(), message.as_str())).collect();
        if found != *expected {
            wrong.push(format!("{value}\n  expected {expected:#?}\n  found {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_are_judged_by_themselves() {
    judge(&values::ROWS);
}

#[test]
fn values_are_judged_in_their_cluster() {
    judge(&fitting::ROWS);
    judge(&in_the_way::ROWS);
}

#[test]
fn the_table_is_long_enough_to_have_every_rule() {
    assert!(values::ROWS.len() + fitting::ROWS.len() + in_the_way::ROWS.len() >= 80);
}

#[test]
fn what_is_not_json_says_where() {
    for (value, why) in [
        ("mig", "expected value at line 1 column 1"),
        ("{", "EOF while parsing an object"),
        (r#"["mig",200,"10.1.0.0/24",[]]"#, "expected a map"),
        (r#""10.1.0.0/24""#, "invalid type: string"),
        (r#"{"clusterNetwork":"mig"} x"#, "trailing characters"),
        (
            r#"{"excludes":[]}"#,
            "unknown field `excludes`, expected one of `clusterNetwork`, `vlan`, `range`, `exclude`",
        ),
        (r#"{"clusterNetwork":"mig","ClusterNetwork":"mig"}"#, "unknown field `ClusterNetwork`"),
        (r#"{"vlan":"200"}"#, "invalid type: string \"200\""),
        (r#"{"vlan":2.5}"#, "invalid type: floating point"),
        (r#"{"vlan":99999999999999999999}"#, "invalid type: floating point"),
        (r#"{"range":null}"#, "invalid type: null"),
        (r#"{"exclude":"10.1.0.1"}"#, "invalid type: string"),
        (r#"{"vlan":1,"vlan":2}"#, "duplicate field `vlan`"),
    ] {
        let found = refused(value, &three_nodes());
        let [(field, message)] = found.as_slice() else { panic!("{value}: {found:?}") };
        assert_eq!(field, "value");
        assert!(
            message.starts_with("This is not a migration network: ") && message.contains(why),
            "{value}: {message}"
        );
        assert!(message.ends_with(r#"Write JSON such as {"clusterNetwork":"mig","vlan":200,"range":"10.1.0.0/24","exclude":["10.1.0.1"]}."#));
    }
}

/// Enumerating any of these would take from minutes to longer than the sun will shine.
#[test]
fn the_size_of_a_range_costs_nothing() {
    let begun = std::time::Instant::now();
    for value in [
        r#"{"clusterNetwork":"mig","range":"11.0.0.0/8","exclude":["11.0.0.0/9","11.255.0.0-11.255.255.254"]}"#,
        r#"{"clusterNetwork":"mig","range":"fd00:1::/64","exclude":["fd00:1::/65","fd00:1:0:0:ffff::-fd00:1:0:0:ffff:ffff:ffff:ffff"]}"#,
        r#"{"clusterNetwork":"mig","range":"11.0.0.0/8","rangeV6":"2000::/3"}"#,
    ] {
        for _ in 0..100 {
            assert_eq!(refused(value, &three_nodes()), []);
        }
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn many_exclusions_are_told_apart_quickly() {
    let exclusions: Vec<String> = (0..20_000_u32)
        .map(|number| std::net::Ipv4Addr::from_bits((11 << 24) + 2 * number).to_string())
        .collect();
    let value = json!({ "clusterNetwork": "mig", "range": "11.0.0.0/8", "exclude": exclusions }).to_string();
    let begun = std::time::Instant::now();
    assert_eq!(refused(&value, &three_nodes()), []);
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}
