//! The rules in the schemas: every one refuses what it is there to refuse, and says so.
//!
//! Each case takes an object that is admitted and changes one thing. A rule without a case fails the last test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The schemas by kind.
fn schemas() -> BTreeMap<String, Value> {
    api::crds()
        .into_iter()
        .map(|crd| {
            let version = crd.spec.versions.into_iter().next().unwrap();
            let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
            (crd.spec.names.kind, serde_json::to_value(schema).unwrap())
        })
        .collect()
}

/// What the rules say of an object, and of a change of it.
fn refusals(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
    match kube_cel::Validator::new().validate(schema, object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

/// RFC 7386, in the part that the cases need.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// An object that is admitted.
fn admitted(kind: &str) -> Value {
    let spec = match kind {
        "KubeVirt" => json!({ "configuration": {
            "network": { "roles": [{ "networkAttachmentDefinition": "fast", "role": "migration" }] },
            "migrations": { "network": "fast", "crossClusterNetwork": "wan", "decentralizedLiveMigrationDatapath": "Proxy" },
        }}),
        "VirtualMachine" => {
            json!({ "running": true, "template": { "spec": { "domain": { "devices": {} } } } })
        }
        "VirtualMachineInstance" => json!({
            "domain": {
                "firmware": { "bootloader": { "efi": {} } },
                "devices": {
                    "disks": [{ "name": "root", "disk": {} }],
                    "interfaces": [{ "name": "default", "bridge": {}, "macAddress": "02:00:00:00:00:01" }],
                },
            },
            "volumes": [{ "name": "root", "cloudInitNoCloud": { "userData": "x", "networkData": "x" } }],
            "networks": [{ "name": "default", "pod": {} }],
        }),
        "VirtualMachineInstanceMigration" => json!({
            "vmiName": "vm",
            "sendTo": { "migrationID": "m", "connectURL": "192.0.2.1:9185" },
            "receive": { "migrationID": "m" },
        }),
        "UserDefinedNetwork" => {
            json!({ "topology": "Layer2", "layer2": { "role": "Secondary", "subnets": ["10.0.0.0/16"] } })
        }
        "ClusterUserDefinedNetwork" => json!({ "namespaceSelector": {}, "network": {
            "topology": "Localnet",
            "localnet": {
                "role": "Secondary",
                "physicalNetworkName": "uplink",
                "subnets": ["10.0.0.0/16"],
                "vlan": { "mode": "Access", "access": { "id": 2 } },
            },
        }}),
        "AddressAllocation" => json!({
            "network": "net",
            "address": "10.0.0.1",
            "prefixLength": 16,
            "owner": { "claim": { "namespace": "a", "name": "b", "uid": "c" } },
        }),
        _ => panic!("no object of kind {kind}"),
    };
    json!({ "spec": spec })
}

/// Kind, change, and a part of what the user is told.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let interface = |interface: Value| json!({ "domain": { "devices": { "interfaces": [interface] } } });
    let cloud_init = |source: Value| json!({ "volumes": [{ "name": "root", "cloudInitNoCloud": source }] });
    let cudn = |network: Value| json!({ "network": network });
    vec![
        (
            "KubeVirt",
            json!({ "configuration": { "migrations": { "network": "slow" } } }),
            "are the same thing",
        ),
        (
            "KubeVirt",
            json!({ "configuration": { "migrations": { "decentralizedLiveMigrationDatapath": "Direct" } } }),
            "must be Proxy",
        ),
        ("VirtualMachine", json!({ "runStrategy": "Always" }), "exactly one of running and runStrategy"),
        ("VirtualMachine", json!({ "running": null }), "exactly one of running and runStrategy"),
        (
            "VirtualMachine",
            json!({ "template": { "spec": { "networks": [{ "name": "n" }] } } }),
            "exactly one of pod and multus",
        ),
        (
            "VirtualMachineInstance",
            interface(json!({ "name": "a", "bridge": {}, "masquerade": {} })),
            "at most one of bridge, masquerade",
        ),
        (
            "VirtualMachineInstance",
            interface(json!({
                "name": "a", "mac": { "address": "02:00:00:00:00:01" }, "macAddress": "02:00:00:00:00:01",
            })),
            "mac.address and macAddress",
        ),
        (
            "VirtualMachineInstance",
            json!({ "domain": { "devices": { "disks": [{ "name": "a", "disk": {}, "cdrom": {} }] } } }),
            "a disk or a cdrom",
        ),
        (
            "VirtualMachineInstance",
            json!({ "domain": { "firmware": { "bootloader": { "bios": {} } } } }),
            "bios or efi",
        ),
        ("VirtualMachineInstance", json!({ "volumes": [{ "name": "root" }] }), "a volume has exactly one of"),
        (
            "VirtualMachineInstance",
            cloud_init(json!({ "userData": "x", "userDataBase64": "x" })),
            "at most one of userData",
        ),
        (
            "VirtualMachineInstance",
            cloud_init(json!({ "networkData": "x", "networkDataBase64": "x" })),
            "at most one of networkData",
        ),
        (
            "VirtualMachineInstance",
            json!({ "networks": [{ "name": "a", "pod": {}, "multus": { "networkName": "b" } }] }),
            "exactly one of pod and multus",
        ),
        (
            "VirtualMachineInstanceMigration",
            json!({ "receive": { "migrationID": "other" } }),
            "same migrationID",
        ),
        ("VirtualMachineInstanceMigration", json!({ "vmiName": "other" }), "cannot be changed"),
        ("UserDefinedNetwork", json!({ "layer2": { "mtu": 1400 } }), "Spec is immutable"),
        ("UserDefinedNetwork", json!({ "layer2": null }), "spec.layer2 is required"),
        (
            "UserDefinedNetwork",
            json!({ "layer3": { "role": "Primary", "subnets": [{ "cidr": "10.0.0.0/16" }] } }),
            "spec.layer3 is required",
        ),
        ("UserDefinedNetwork", json!({ "layer2": { "subnets": null } }), "Subnets is required"),
        (
            "UserDefinedNetwork",
            json!({ "layer2": { "role": "Primary", "subnets": null, "ipam": { "mode": "Disabled" } } }),
            "Disabled ipam.mode is only supported for Secondary",
        ),
        (
            "UserDefinedNetwork",
            json!({ "layer2": { "ipam": { "mode": "Disabled", "lifecycle": "Persistent" } } }),
            "lifecycle Persistent is only supported",
        ),
        (
            "UserDefinedNetwork",
            json!({ "layer2": { "joinSubnets": ["100.65.0.0/16"] } }),
            "only supported for Primary network",
        ),
        (
            "UserDefinedNetwork",
            json!({ "topology": "Layer3", "layer2": null, "layer3": {
                "role": "Secondary", "subnets": [{ "cidr": "10.0.0.0/16" }], "joinSubnets": ["100.65.0.0/16"],
            }}),
            "JoinSubnets is only supported for Primary",
        ),
        (
            "ClusterUserDefinedNetwork",
            cudn(json!({ "localnet": { "mtu": 1500 } })),
            "Network spec is immutable",
        ),
        ("ClusterUserDefinedNetwork", cudn(json!({ "topology": "Layer2" })), "spec.layer2 is required"),
        ("ClusterUserDefinedNetwork", cudn(json!({ "topology": "Layer3" })), "spec.layer3 is required"),
        ("ClusterUserDefinedNetwork", cudn(json!({ "localnet": null })), "spec.localnet is required"),
        (
            "ClusterUserDefinedNetwork",
            cudn(json!({ "localnet": { "role": "Primary" } })),
            "Localnet is only supported for Secondary",
        ),
        (
            "ClusterUserDefinedNetwork",
            cudn(json!({ "localnet": { "subnets": null } })),
            "Subnets is required",
        ),
        (
            "ClusterUserDefinedNetwork",
            cudn(json!({ "localnet": {
                "subnets": null, "excludeSubnets": ["10.0.0.0/28"], "ipam": { "mode": "Disabled" },
            }})),
            "excludeSubnets must be unset",
        ),
        (
            "ClusterUserDefinedNetwork",
            cudn(json!({ "localnet": { "vlan": { "access": null } } })),
            "vlan access config is required",
        ),
        ("AddressAllocation", json!({ "address": "10.0.0.2" }), "cannot be changed"),
        (
            "AddressAllocation",
            json!({ "releasedAt": "2026-03-01T10:00:00.000000Z" }),
            "has an owner or is at rest",
        ),
        ("AddressAllocation", json!({ "owner": null }), "has an owner or is at rest"),
        ("AddressAllocation", json!({ "owner": { "claim": null } }), "a pod or a claim"),
    ]
}

#[test]
fn what_is_right_is_admitted() {
    let schemas = schemas();
    for (kind, ..) in cases() {
        let object = admitted(kind);
        assert_eq!(refusals(&schemas[kind], &object, None), [""; 0], "{kind} created");
        assert_eq!(refusals(&schemas[kind], &object, Some(&object)), [""; 0], "{kind} written again");
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let schemas = schemas();
    for (kind, change, why) in cases() {
        let before = admitted(kind);
        let mut after = before.clone();
        merge(&mut after["spec"], &change);
        let told = refusals(&schemas[kind], &after, Some(&before));
        assert!(told.iter().any(|message| message.contains(why)), "{kind} {change}: {told:?}");
    }
}

#[test]
fn every_rule_has_a_case() {
    fn messages(schema: &Value, found: &mut BTreeSet<String>) {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            found.insert(rule["message"].as_str().unwrap().to_owned());
        }
        for child in schema.as_object().into_iter().flatten().map(|(_, child)| child) {
            messages(child, found);
        }
    }
    let mut untested = BTreeSet::new();
    for schema in schemas().values() {
        messages(schema, &mut untested);
    }
    untested.retain(|message| !cases().iter().any(|(_, _, why)| message.contains(why)));
    assert!(untested.is_empty(), "{untested:#?}");
}
