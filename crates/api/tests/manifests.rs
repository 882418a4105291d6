//! Manifests of the shapes that users of the original projects write: admitted by the schemas, read into the types, and
//! written back without loss.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use api::{
    condition,
    godwit::AddressAllocation,
    harvester::{BondMode, ClusterNetwork, MigrationNetworkValue, Setting, VlanConfig, VlanStatus},
    ipam::IPAMClaim,
    kubevirt::{
        Datapath, DomainAttachmentType, EvictionStrategy, InstancePhase, InterfaceModel, KubeVirt,
        MigrationNetworkType, MigrationOptions, MigrationPhase, RunStrategy, VirtualMachine,
        VirtualMachineInstance, VirtualMachineInstanceMigration,
    },
    migrations::MigrationPolicy,
    multus::NetworkAttachmentDefinition,
    names::{channels, conditions},
    ovn::{ClusterTopology, ClusterUserDefinedNetwork, IpamLifecycle, UserDefinedNetwork},
    quantity,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "manifests"].iter().collect()
}

/// The documents of a file.
fn documents(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(directory().join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The object of this name in a file, after proof that writing it back loses nothing.
fn read<T: DeserializeOwned + Serialize>(file: &str, name: &str) -> T {
    let document = documents(file)
        .into_iter()
        .find(|document| document["metadata"]["name"] == name || document["metadata"]["generateName"] == name)
        .unwrap_or_else(|| panic!("{name} in {file}"));
    let object: T =
        serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    lossless(name, &document, &serde_json::to_value(&object).unwrap());
    object
}

/// Everything that was written is there again. Spellings that mean the same are the same.
fn lossless(path: &str, written: &Value, again: &Value) {
    match (written, again) {
        (Value::Object(written), _) => {
            for (key, value) in written {
                let says_nothing = value.is_null() || value == "" || value == &Value::Array(Vec::new());
                match again.get(key) {
                    Some(again) => lossless(&format!("{path}.{key}"), value, again),
                    None => assert!(says_nothing, "{path}.{key} was lost"),
                }
            }
        }
        (Value::Array(written), Value::Array(again)) => {
            assert_eq!(written.len(), again.len(), "{path}");
            for (index, (written, again)) in written.iter().zip(again).enumerate() {
                lossless(&format!("{path}[{index}]"), written, again);
            }
        }
        (Value::Number(number), Value::String(text)) => assert_eq!(&number.to_string(), text, "{path}"),
        (Value::String(written), Value::String(again)) => {
            let plain = |text: &str| text.to_lowercase().replace('-', ":");
            assert!(
                plain(written) == plain(again) || same_duration(written, again),
                "{path}: {written} became {again}"
            );
        }
        _ => assert_eq!(written, again, "{path}"),
    }
}

fn same_duration(left: &str, right: &str) -> bool {
    let parse = |text: &str| text.parse::<kube::core::Duration>().ok();
    parse(left).is_some() && parse(left) == parse(right)
}

/// What the API server would say of a value: unknown fields, missing fields, wrong types, values outside an enum.
fn admitted(path: &str, value: &Value, schema: &JSONSchemaProps, problems: &mut Vec<String>) {
    if let Some(allowed) = &schema.enum_
        && !allowed.iter().any(|allowed| allowed.0 == *value)
    {
        problems.push(format!("{path}: {value} is not in the enum"));
    }
    let kind = schema.type_.as_deref();
    let fits = match kind {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !fits {
        problems.push(format!("{path}: {value} is no {}", kind.unwrap_or_default()));
    }
    for required in schema.required.iter().flatten() {
        if value.get(required).is_none() {
            problems.push(format!("{path}: {required} is missing"));
        }
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        let property = schema.properties.as_ref().and_then(|properties| properties.get(key));
        match (property, &schema.additional_properties) {
            (Some(schema), _) => admitted(&path, value, schema, problems),
            (None, Some(JSONSchemaPropsOrBool::Schema(schema))) => admitted(&path, value, schema, problems),
            _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
            _ => problems.push(format!("{path} is unknown")),
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            admitted(&format!("{path}[{index}]"), value, schema, problems);
        }
    }
}

#[test]
fn schemas_admit_the_manifests() {
    let schemas: BTreeMap<String, JSONSchemaProps> = api::crds()
        .into_iter()
        .map(|crd| {
            let version = crd.spec.versions.into_iter().next().unwrap();
            let schema = version.schema.unwrap().open_api_v3_schema.unwrap();
            (format!("{}/{} {}", crd.spec.group, version.name, crd.spec.names.kind), schema)
        })
        .collect();
    let mut seen: BTreeMap<&String, usize> = schemas.keys().map(|kind| (kind, 0)).collect();
    let mut problems = Vec::new();
    for entry in fs::read_dir(directory()).unwrap() {
        for document in documents(entry.unwrap().file_name().to_str().unwrap()) {
            let kind = format!(
                "{} {}",
                document["apiVersion"].as_str().unwrap(),
                document["kind"].as_str().unwrap()
            );
            let mut body = document.as_object().unwrap().clone();
            for standard in ["apiVersion", "kind", "metadata"] {
                body.remove(standard);
            }
            admitted(&kind, &Value::Object(body), &schemas[&kind], &mut problems);
            *seen.get_mut(&kind).unwrap() += 1;
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    let unseen: Vec<_> = seen.iter().filter(|(_, count)| **count == 0).collect();
    assert!(unseen.is_empty(), "kinds without a manifest: {unseen:?}");
}

#[test]
fn installation() {
    let kubevirt: KubeVirt = read("kubevirt.yaml", "kubevirt");
    assert_eq!(kubevirt.spec.migration_network(), Some("migration-bridge"));
    assert_eq!(kubevirt.spec.cross_cluster_network(), Some("wan"));
    assert_eq!(kubevirt.spec.synchronization_port(), Ok(9185));
    let configuration = kubevirt.spec.configuration.as_ref().unwrap();
    assert_eq!(configuration.eviction_strategy, Some(EvictionStrategy::LiveMigrate));
    let binding = &configuration.network.as_ref().unwrap().binding["l2bridge"];
    assert_eq!(binding.domain_attachment_type, Some(DomainAttachmentType::ManagedTap));
    assert!(binding.migration.is_some());
    let migrations = configuration.migrations.as_ref().unwrap();
    assert_eq!(migrations.datapath(), Datapath::Proxy);
    let options = MigrationOptions::effective(Some(migrations), None);
    assert_eq!(options.bandwidth().unwrap().unwrap().get(), 1 << 30);
    assert_eq!((options.completion_timeout_per_gib, options.progress_timeout), (20, 150));
    assert!(condition::is_true(&kubevirt.status.unwrap().conditions, conditions::AVAILABLE));
}

#[test]
fn the_role_spelling_of_the_migration_network() {
    let mut kubevirt: KubeVirt = read("kubevirt.yaml", "kubevirt");
    let configuration = kubevirt.spec.configuration.as_mut().unwrap();
    configuration.migrations = None;
    assert_eq!(kubevirt.spec.migration_network(), Some("migration-bridge"));
    kubevirt.spec.configuration.as_mut().unwrap().network = None;
    assert_eq!(kubevirt.spec.migration_network(), None);
}

#[test]
fn machine() {
    let vm: VirtualMachine = read("virtualmachine.yaml", "ledger");
    assert_eq!(vm.spec.effective_run_strategy(), RunStrategy::RerunOnFailure);
    let metadata = vm.spec.template.metadata.as_ref().unwrap();
    assert_eq!(metadata.labels["app"], "ledger");
    assert!(metadata.annotations[api::names::annotations::ADDRESSES].contains("10.40.0.17"));
    let spec = &vm.spec.template.spec;
    assert_eq!(spec.domain.cpu.as_ref().unwrap().count(), 4);
    let resources = spec.domain.resources.as_ref().unwrap();
    assert_eq!(quantity::milli(&resources.requests["cpu"]), Ok(2000), "written as a number");
    assert_eq!(quantity::whole(&resources.limits["memory"]), Ok(9 << 30));
    let [default, storage] = spec.domain.devices.interfaces.as_slice() else { panic!() };
    assert!(default.masquerade.is_some() && spec.network_of(default).unwrap().pod.is_some());
    assert_eq!(storage.requested_mac().unwrap().to_string(), "de:ad:00:00:be:af");
    assert_eq!(storage.device_model(), InterfaceModel::E1000e);
    let multus = spec.network_of(storage).unwrap().multus.as_ref().unwrap();
    assert_eq!(multus.network_name, "infra/storage-vlan");
}

#[test]
fn instance_in_the_short_spelling() {
    let vmi: VirtualMachineInstance = read("virtualmachineinstance.yaml", "testvm");
    let [first, second, third] = vmi.spec.domain.devices.interfaces.as_slice() else { panic!() };
    assert_eq!(first.name, "default");
    assert_eq!(first.requested_mac().unwrap().to_string(), "02:00:00:00:00:2a");
    assert_eq!(
        (first.device_model(), second.device_model()),
        (InterfaceModel::E1000, InterfaceModel::Virtio)
    );
    assert!(vmi.spec.network_of(first).is_none(), "type: pod-network needs no entry in networks");
    assert!(vmi.spec.network_of(third).unwrap().multus.as_ref().unwrap().default.unwrap());

    let status = vmi.status.unwrap();
    assert_eq!(status.phase, Some(InstancePhase::Running));
    assert!(!InstancePhase::Running.is_final());
    assert_eq!(status.active_pods.len(), 2);
    let state = status.migration_state.unwrap();
    assert_eq!(state.migration_network_type, Some(MigrationNetworkType::Migration));
    let mut served: Vec<i32> = state.target_direct_migration_node_ports.into_values().collect();
    served.sort_unstable();
    assert_eq!(served, channels::ALL);
    assert_eq!(state.target_state.unwrap().common.node.as_deref(), Some("node01"));
    let frozen = state.migration_configuration.unwrap();
    assert_eq!(frozen.max_downtime_ms, 900, "what an older writer left out is the default");
}

#[test]
fn moves() {
    let here: VirtualMachineInstanceMigration = read("migrations.yaml", "ledger-");
    assert!(!here.spec.is_decentralized());
    let status = here.status.unwrap();
    assert_eq!(status.phase, Some(MigrationPhase::Running));
    assert!(condition::is_true(&status.conditions, conditions::MIGRATION_ABORT_REQUESTED));
    let progress = status.progress.unwrap();
    assert_eq!(api::kubevirt::MigrationProgress::new(progress.sample.clone()), progress);

    let leave: VirtualMachineInstanceMigration = read("migrations.yaml", "leave");
    let arrive: VirtualMachineInstanceMigration = read("migrations.yaml", "arrive");
    assert_eq!(leave.spec.migration_id(), arrive.spec.migration_id());
    assert!(leave.spec.is_decentralized() && arrive.spec.is_decentralized());
}

#[test]
fn policy() {
    let policy: MigrationPolicy = read("migrationpolicy.yaml", "databases");
    let options = MigrationOptions::effective(None, Some(&policy.spec));
    assert!(options.allow_post_copy && options.allow_workload_disruption);
    assert_eq!(options.bandwidth().unwrap().unwrap().get(), 4 << 30);
}

#[test]
fn networks() {
    let definition: NetworkAttachmentDefinition = read("networks.yaml", "migration-bridge");
    assert!(definition.config().unwrap().starts_with(r#"{"cniVersion": "1.0.0""#), "byte for byte");
    let elsewhere: NetworkAttachmentDefinition = read("networks.yaml", "on-the-node");
    assert_eq!(elsewhere.config(), None);

    let claim: IPAMClaim = read("networks.yaml", "ledger.storage");
    let status = claim.status.unwrap();
    assert_eq!(status.ips, ["10.40.0.17/24", "fd00:40::17/64"]);
    assert!(condition::is_true(&status.conditions, conditions::IPS_ALLOCATED));

    let blue: UserDefinedNetwork = read("networks.yaml", "blue");
    let layer2 = blue.spec.layer2.unwrap();
    assert_eq!(layer2.ipam.unwrap().lifecycle, Some(IpamLifecycle::Persistent));
    assert_eq!(layer2.default_gateway_ips.len(), 2);
    let racks: ClusterUserDefinedNetwork = read("networks.yaml", "racks");
    assert_eq!(racks.spec.network.topology, ClusterTopology::Localnet);
    assert_eq!(racks.spec.network.localnet.unwrap().vlan.unwrap().access.unwrap().id, 110);
}

#[test]
fn harvester() {
    let setting: Setting = read("harvester.yaml", "vm-migration-network");
    let value = MigrationNetworkValue::parse(setting.spec.effective_value()).unwrap().unwrap();
    assert_eq!((value.cluster_network.as_str(), value.vlan), ("mig", Some(200)));
    assert!(condition::is_true(&setting.status.unwrap().conditions, conditions::CONFIGURED));
    let network: ClusterNetwork = read("harvester.yaml", "mig");
    assert!(condition::is_true(&network.status.unwrap().conditions, conditions::HARVESTER_READY));
    let config: VlanConfig = read("harvester.yaml", "mig-all");
    assert_eq!(config.spec.uplink.bond_options.unwrap().mode, Some(BondMode::Ieee8023ad));
    let status: VlanStatus = read("harvester.yaml", "mig-all-node01");
    assert_eq!(status.status.unwrap().local_areas[0].vlan_id, 200);
}

#[test]
fn addresses() {
    let owned: AddressAllocation = read("addresses.yaml", "10-20-0-17.migration");
    let address = owned.spec.address.parse().unwrap();
    assert_eq!(api::godwit::allocation_name(&owned.spec.network, address).unwrap(), "10-20-0-17.migration");
    assert_eq!(owned.spec.rest_period().as_secs(), 60, "an object that does not say it");
    assert!(owned.spec.owner.unwrap().claim.is_some());
    let resting: AddressAllocation = read("addresses.yaml", "10-20-0-18.migration");
    assert!(resting.spec.released_at.is_some());
    assert_eq!(resting.spec.rest_period().as_secs(), 600);
}
