//! Launcher pods as they are made, whole: a change of any field shows here.

use std::path::PathBuf;

use serde_json::json;

use super::*;

fn vmi(name: &str, spec: &serde_json::Value) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "bank", "uid": "0b5d8c9e-0000-4000-8000-000000000002",
            "labels": { "app": "ledger" }, "annotations": { "kubevirt.io/vm-generation": "3", "note": "kept" },
        },
        "spec": spec,
    }))
    .unwrap()
}

/// Compares with the recorded pod; `UPDATE=1` records it anew.
fn matches_snapshot(name: &str, vmi: &VirtualMachineInstance) {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "src", "pod", "tests", &format!("{name}.yaml")].iter().collect();
    let pod = render(vmi, &Claims::new(), &Launcher { image: "godwit/launcher:1".into() });
    let text = serde_saphyr::to_string(&serde_json::to_value(pod).unwrap()).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).expect("a recorded pod; UPDATE=1 makes it");
    assert_eq!(text, recorded, "{name}: run with UPDATE=1 if this is meant");
}

#[test]
fn a_claim_is_referred_to_for_people_and_for_plugins() {
    let spec = json!({
        "domain": { "devices": { "interfaces": [{ "name": "blue", "bridge": {} }, { "name": "red", "bridge": {} }] } },
        "networks": [{ "name": "blue", "multus": { "networkName": "x" } }, { "name": "red", "multus": { "networkName": "x" } }],
    });
    let claims = Claims::from([(api::names::interfaces::of_network("red"), "finch.red".to_owned())]);
    let pod = render(&vmi("finch", &spec), &claims, &Launcher { image: "i".into() });
    assert_eq!(claims_of(&pod), claims, "what was written is read");
    let listed = api::multus::parse_networks(&pod.annotations()[annotations::NETWORKS]).unwrap();
    assert_eq!(listed[0].ipam_claim_reference, None, "two vNICs on one network are two");
    assert_eq!(listed[1].cni_args["ipam-claim-reference"], "finch.red");
}

#[test]
fn the_least_that_an_instance_can_be() {
    matches_snapshot(
        "least",
        &vmi("finch", &json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } })),
    );
}

#[test]
fn everything_that_a_pod_can_be_asked_for() {
    let spec = json!({
        "terminationGracePeriodSeconds": 120,
        "nodeSelector": { "disk": "fast" },
        "tolerations": [{ "key": "dedicated", "operator": "Exists" }],
        "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] },
        ]}}},
        "priorityClassName": "high",
        "domain": {
            "cpu": { "cores": 2, "sockets": 2 },
            "memory": { "guest": "8Gi" },
            "resources": { "limits": { "memory": "9Gi" } },
            "firmware": { "kernelBoot": { "container": { "image": "kernel:1", "kernelPath": "/k", "imagePullPolicy": "IfNotPresent", "imagePullSecret": "pull" } } },
            "devices": {
                "interfaces": [
                    { "name": "default", "passtBinding": {} },
                    { "name": "storage", "bridge": {}, "macAddress": "02:00:00:00:00:01" },
                    { "name": "backup", "bridge": {} },
                ],
                "disks": [{ "name": "root" }, { "name": "scratch" }, { "name": "data" }, { "name": "seed" }],
            },
        },
        "networks": [
            { "name": "default", "pod": {} },
            { "name": "storage", "multus": { "networkName": "infra/storage-vlan" } },
            { "name": "backup", "multus": { "networkName": "backup" } },
        ],
        "volumes": [
            { "name": "root", "hostDisk": { "path": "/srv/images/root.img", "type": "DiskOrCreate", "capacity": "1Gi" } },
            { "name": "scratch", "emptyDisk": { "capacity": "1Gi" } },
            { "name": "data", "persistentVolumeClaim": { "claimName": "data", "readOnly": true } },
            { "name": "seed", "cloudInitNoCloud": { "secretRef": { "name": "user" }, "networkDataSecretRef": { "name": "net" } } },
        ],
    });
    matches_snapshot("everything", &vmi("ledger", &spec));
}

#[test]
fn a_network_can_take_the_place_of_the_pod_network() {
    let spec = json!({
        "domain": { "devices": { "interfaces": [{ "name": "blue", "bridge": {} }] }, "memory": { "guest": "64Mi" } },
        "networks": [{ "name": "blue", "multus": { "networkName": "blue", "default": true } }],
    });
    let annotations = own_annotations(&vmi("finch", &spec), &Claims::new());
    assert_eq!(annotations[annotations::DEFAULT_NETWORK], "bank/blue");
    assert!(!annotations.contains_key(annotations::NETWORKS));
}

#[test]
fn dedicated_cpus_are_whole_and_limited() {
    let spec = json!({ "domain": {
        "devices": {}, "memory": { "guest": "64Mi" }, "cpu": { "cores": 2, "dedicatedCpuPlacement": true },
    }});
    let pod = render(&vmi("finch", &spec), &Claims::new(), &Launcher { image: "i".into() });
    let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
    assert_eq!(resources.requests, resources.limits);
    assert_eq!(resources.limits.unwrap()["cpu"].0, "2");
}

#[test]
fn names_stay_names() {
    let long = "a".repeat(250);
    for name in ["finch", "a.b.c", long.as_str()] {
        let pod = render(
            &vmi(name, &json!({ "domain": { "devices": {} } })),
            &Claims::new(),
            &Launcher { image: "i".into() },
        );
        let pod_name = pod.name_any();
        assert!(
            pod_name.len() <= 253 && pod_name.starts_with("virt-launcher-a") || name == "finch",
            "{pod_name}"
        );
        let label = &pod.labels()[labels::VM_NAME];
        assert!(label.len() <= 63 && name.starts_with(label.as_str()), "{label}");
    }
}

#[test]
fn a_target_is_the_same_pod_elsewhere_and_says_what_it_is_for() {
    let mut vmi = vmi(
        "finch",
        &json!({
            "domain": { "devices": {} }, "nodeSelector": { "disk": "fast" },
            "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "ledger" } } },
            ]}},
        }),
    );
    vmi.labels_mut().insert(labels::MIGRATION_TARGET_NODE_NAME.into(), "node02".into());
    let migration: api::kubevirt::VirtualMachineInstanceMigration = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "move", "uid": "0b5d8c9e-0000-4000-8000-000000000003" },
        "spec": { "vmiName": "finch", "addedNodeSelector": { "rack": "7", "disk": "slow" } },
    }))
    .unwrap();
    let launcher = Launcher { image: "i".into() };
    let (own, target) =
        (render(&vmi, &Claims::new(), &launcher), render_target(&vmi, &migration, &Claims::new(), &launcher));
    assert_ne!(own.name_any(), target.name_any());
    assert_eq!(target.name_any(), target_name(&vmi, &migration));
    assert_eq!(target.labels()[labels::MIGRATION_JOB_UID], migration.uid().unwrap());
    assert_eq!(target.labels()[labels::CREATED_BY], vmi.uid().unwrap());
    assert!(!target.labels().contains_key(labels::MIGRATION_TARGET_NODE_NAME));
    assert_eq!(target.annotations()[annotations::MIGRATION_JOB_NAME], "move");
    let (own, target) = (own.spec.unwrap(), target.spec.unwrap());
    let selector = target.node_selector.unwrap();
    assert_eq!((selector["disk"].as_str(), selector["rack"].as_str()), ("fast", "7"), "the VM is right");
    assert_eq!(own.containers, target.containers);
    assert_eq!(own.volumes, target.volumes);
    let apart = target.affinity.unwrap().pod_anti_affinity.unwrap();
    let apart = apart.required_during_scheduling_ignored_during_execution.unwrap();
    let keys: Vec<&str> = apart.iter().map(|term| term.topology_key.as_str()).collect();
    assert_eq!(keys, ["zone", "kubernetes.io/hostname"], "what the VM asks for stays");
}
