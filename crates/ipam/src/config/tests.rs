//! What a configuration means, key by key.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn config(value: &Value) -> Config {
    Config::parse(value.to_string().as_bytes()).unwrap()
}

#[test]
fn ranges_gateways_and_exclusions_are_those_of_whereabouts() {
    let ipam = json!({ "type": "whereabouts", "range": "10.1.0.99/24", "range_start": "10.1.0.10", "range_end": "10.1.0.20",
        "exclude": ["10.1.0.12/31", "10.1.0.15"], "gateway": "10.1.0.11", "exclude_surprise": null,
        "ipRanges": [{ "range": "fd00::/120", "range_start": "fd00::10", "range_end": "fd00::11" }] });
    let giving = config(&json!({ "name": "blue", "ipam": ipam })).giving(None).unwrap();
    let allocatable: Vec<String> =
        giving.pool.ranges().iter().map(|range| range.allocatable().to_string()).collect();
    assert_eq!(allocatable, ["10.1.0.10, 10.1.0.14, 10.1.0.16-10.1.0.20", "fd00::10/127"]);
    let warnings = giving.warnings.join("\n");
    assert!(warnings.contains("host bits") && warnings.contains("ipam.exclude_surprise"), "{warnings}");
}

#[test]
fn the_networks_own_words_win_over_the_nodes() {
    let own = json!({ "range": "10.1.0.0/24", "log_level": "error", "kubernetes": { "kubeconfig": "/own" } });
    let file = json!({ "range": "10.2.0.0/24", "log_level": "debug", "log_file": "/log", "rest_seconds": 5,
        "kubernetes": { "kubeconfig": "/file" } });
    let both = config(&json!({ "ipam": own })).with_file(file.to_string().as_bytes()).unwrap();
    assert_eq!(both.kubeconfig(), Some("/own".into()));
    assert_eq!((both.log_level(), both.log_file()), (Level::Error, Some("/log".into())));
    assert_eq!(both.rest_seconds(), 5);
    assert_eq!(both.giving(None).unwrap().pool.ranges()[0].network().to_string(), "10.1.0.0/24");
    let bare = config(&json!({ "ipam": {} })).with_file(file.to_string().as_bytes()).unwrap();
    assert_eq!(bare.giving(None).unwrap().pool.ranges()[0].network().to_string(), "10.2.0.0/24");
}

#[test]
fn an_address_is_asked_for_in_three_ways_and_once() {
    let written = json!({ "ipam": { "range": "10.1.0.0/24" }, "runtimeConfig": { "ips": ["10.1.0.7/24"] },
        "args": { "cni": { "ips": ["10.1.0.7", "10.1.0.8"] } } });
    let giving = config(&written).giving(Some("10.1.0.7,10.1.0.9")).unwrap();
    let wanted: Vec<String> = giving.wanted.iter().map(ToString::to_string).collect();
    assert_eq!(wanted, ["10.1.0.7", "10.1.0.8", "10.1.0.9"]);
    let error = config(&written).giving(Some("10.1.0.x")).unwrap_err();
    assert_eq!(error.to_string(), "CNI_ARGS IP is \"10.1.0.x\": it must be an IP address");
}

#[test]
fn faults_name_their_field() {
    for (ipam, words) in [
        (
            json!({ "range": "10.1.0.0/24", "routes": [{ "dst": "10.0.0.0" }] }),
            "ipam.routes[0].dst is \"10.0.0.0\"",
        ),
        (
            json!({ "range": "10.1.0.0/24", "routes": [{ "dst": "10.0.0.0/8", "gw": "x" }] }),
            "ipam.routes[0].gw is \"x\"",
        ),
        (
            json!({ "range": "10.1.0.0/24", "addresses": [{ "address": "x" }] }),
            "ipam.addresses[0].address is \"x\"",
        ),
    ] {
        let error = config(&json!({ "ipam": ipam })).giving(None).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(matches!(config(&json!({})).giving(None), Err(ConfigError::NoIpam)));
}

#[test]
fn garbage_is_collected_only_for_who_says_what_is_valid() {
    assert_eq!(config(&json!({})).valid_attachments(), None);
    let said = json!([{ "containerID": "c", "ifname": "net1" }]);
    let expected: BTreeSet<AttachmentId> = [AttachmentId::new("c", "net1")].into();
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        assert_eq!(config(&json!({ key: said })).valid_attachments(), Some(expected.clone()), "{key}");
    }
    assert_eq!(config(&json!({ "cni.dev/valid-attachments": [] })).valid_attachments(), Some([].into()));
}

proptest! {
    #[test]
    fn reading_never_panics(text in "\\PC{0,40}", range in "[0-9a-f.:/-]{0,24}") {
        let _ = Config::parse(text.as_bytes());
        let written = json!({ "ipam": { "range": range, "exclude": [text], "gateway": range } });
        let _ = config(&written).giving(Some(&range));
    }
}
