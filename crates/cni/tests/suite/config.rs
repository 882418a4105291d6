//! Configurations: both forms, where they come from, what is refused and why, and that nothing can make reading panic.

use std::fs;

use api::multus::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionBody};
use cni::{LoadError, Version, default_network, named_network, network_of_definition, parse};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::sandbox::whole;

#[test]
fn both_forms_are_one_network() {
    let one = parse(br#"{ "cniVersion": "0.4.0", "name": "n", "type": "bridge", "mtu": 9000 }"#).unwrap();
    let list =
        parse(br#"{ "cniVersion": "0.4.0", "name": "n", "plugins": [{ "type": "bridge", "mtu": 9000 }] }"#)
            .unwrap();
    assert_eq!(one.plugins()[0].name(), list.plugins()[0].name());
    assert_eq!(one.plugins()[0].config()["mtu"], 9000);
    assert_eq!(parse(list.to_value().to_string().as_bytes()).unwrap(), list);
}

#[test]
fn the_highest_version_that_both_know_is_spoken() {
    for (version, versions, spoken) in [
        (json!("0.3.1"), json!(null), Version::V0_3_1),
        (json!("0.3.1"), json!(["1.0.0", "0.4.0"]), Version::V1_0_0),
        (json!(null), json!(["1.1.0", "2.0.0"]), Version::V1_1_0),
        (json!("3.0.0"), json!(["0.3.0"]), Version::V0_3_0),
    ] {
        let config = json!({ "cniVersion": version, "cniVersions": versions, "name": "n", "type": "t" });
        assert_eq!(parse(config.to_string().as_bytes()).unwrap().version(), spoken, "{config}");
    }
}

#[test]
fn refusals_name_the_field_and_the_rule() {
    for (config, expected) in [
        ("", "not JSON: EOF"),
        ("[]", "the whole in the CNI configuration must be an object"),
        (r#"{ "cniVersion": "1.0.0", "type": "t" }"#, "name is missing"),
        (
            r#"{ "cniVersion": "1.0.0", "name": 1, "type": "t" }"#,
            "name in the CNI configuration must be a string",
        ),
        (
            r#"{ "cniVersion": "1.0.0", "name": "a/b", "type": "t" }"#,
            "\"a/b\" must begin with a letter or digit",
        ),
        (r#"{ "name": "n", "type": "t" }"#, "cniVersion is missing"),
        (r#"{ "cniVersion": "0.2.0", "name": "n", "type": "t" }"#, "is of version 0.2.0; 0.3.0, 0.3.1"),
        (r#"{ "cniVersion": "1.0.0", "name": "n" }"#, "type is missing"),
        (
            r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [] }"#,
            "plugins in the CNI configuration is empty",
        ),
        (
            r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": {} }"#,
            "plugins in the CNI configuration must be a list",
        ),
        (r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "t" }, 1] }"#, "plugins[1] in"),
        (r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{}] }"#, "plugins[0].type is missing"),
        (r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "../t" }] }"#, "plugins[0].type in"),
        (
            r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "t", "ipam": { "type": "/t" } }] }"#,
            "plugins[0].ipam.type in",
        ),
        (
            r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "t", "capabilities": { "ips": 1 } }] }"#,
            "plugins[0].capabilities.ips in the CNI configuration must be a boolean",
        ),
        (r#"{ "cniVersion": "1.0.0", "name": "n", "type": "t", "disableGC": 1 }"#, "disableGC in"),
    ] {
        let refused = whole(&parse(config.as_bytes()).unwrap_err());
        assert!(refused.contains(expected), "{config}: {refused}");
    }
    let large = vec![b' '; 2 * 1024 * 1024];
    assert!(whole(&parse(&large).unwrap_err()).contains("2097152 bytes"));
}

#[test]
fn the_first_usable_file_of_a_directory_is_the_nodes_network() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(matches!(default_network(&path.join("none")), Err(LoadError::Directory { .. })));
    assert!(matches!(default_network(path), Err(LoadError::None { refused, .. }) if refused.is_empty()));
    fs::write(path.join("05-broken.conflist"), "{").unwrap();
    fs::create_dir(path.join("06-folder.conf")).unwrap();
    fs::write(path.join("00-ignored.txt"), r#"{ "cniVersion": "1.0.0", "name": "txt", "type": "t" }"#)
        .unwrap();
    let none = whole(&default_network(path).unwrap_err());
    assert!(none.contains("05-broken.conflist: the CNI configuration is not JSON"), "{none}");
    fs::write(
        path.join("20-b.conflist"),
        r#"{ "cniVersion": "1.0.0", "name": "b", "plugins": [{ "type": "t" }] }"#,
    )
    .unwrap();
    fs::write(path.join("10-a.conf"), r#"{ "cniVersion": "1.0.0", "name": "a", "type": "t" }"#).unwrap();
    let loaded = default_network(path).unwrap();
    assert_eq!((loaded.network.name(), loaded.path), ("a", path.join("10-a.conf")));
    assert_eq!(loaded.skipped.len(), 2);
    assert_eq!(named_network(path, "b").unwrap().network.name(), "b");
    let unnamed = whole(&named_network(path, "c").unwrap_err());
    assert!(unnamed.contains("no CNI configuration of network \"c\""), "{unnamed}");

    // A definition without a configuration means the node's file of its name.
    let definition = NetworkAttachmentDefinition::new("b", NetworkAttachmentDefinitionBody::default());
    assert_eq!(network_of_definition(&definition, path).unwrap().name(), "b");
}

#[test]
fn a_definition_gives_its_name_to_a_network_that_has_none() {
    let nowhere = std::path::Path::new("/nowhere");
    for (config, name) in [
        (r#"{ "cniVersion": "0.3.1", "type": "macvlan" }"#, "object"),
        (r#"{ "cniVersion": "0.3.1", "name": "", "plugins": [{ "type": "macvlan" }] }"#, "object"),
        (r#"{ "cniVersion": "0.3.1", "name": "own", "type": "macvlan" }"#, "own"),
    ] {
        let definition = NetworkAttachmentDefinition::with_config("object", config.to_owned());
        assert_eq!(network_of_definition(&definition, nowhere).unwrap().name(), name);
    }
    let mut definition = NetworkAttachmentDefinition::with_config("object", "{}".to_owned());
    definition.metadata.namespace = Some("infra".to_owned());
    let refused = whole(&network_of_definition(&definition, nowhere).unwrap_err());
    assert_eq!(
        refused,
        "NetworkAttachmentDefinition infra/object: spec.config: type is missing in the CNI configuration"
    );
}

/// JSON that is nearly a configuration.
fn nearly() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["1.0.0", "bridge", "n", "..", "", "true"]).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let keys = vec![
            "cniVersion",
            "cniVersions",
            "name",
            "type",
            "plugins",
            "capabilities",
            "ipam",
            "disableCheck",
            "interfaces",
            "ips",
            "routes",
            "dns",
            "address",
            "gateway",
            "interface",
            "dst",
            "gw",
            "mac",
            "mtu",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(keys), inner, 0..6).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_make_reading_panic(bytes: Vec<u8>) {
        drop(parse(&bytes));
        drop(cni::Attachment::parse(&bytes));
    }

    #[test]
    fn what_is_read_is_read_the_same_again(config in nearly()) {
        if let Ok(network) = parse(config.to_string().as_bytes()) {
            prop_assert_eq!(parse(network.to_value().to_string().as_bytes()).unwrap(), network);
        }
        if let Ok(attachment) = cni::Attachment::from_value(&config) {
            drop(attachment.network_status("n", "eth0", true));
            let again = cni::Attachment::from_value(&attachment.render(Version::V1_1_0)).unwrap();
            prop_assert_eq!(again, attachment);
        }
    }
}
