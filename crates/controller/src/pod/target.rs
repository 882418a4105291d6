//! The pod that a guest is to move to: the instance's own, on another node, marked with the migration that it is for.

use api::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::names::{annotations, labels};
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;

use super::{Claims, Launcher, name_for, render};

/// Nodes, by the label that tells them apart.
const EACH_NODE: &str = "kubernetes.io/hostname";

/// The pod that an instance moves to, with the claims of the one that it leaves.
pub fn render_target(
    vmi: &VirtualMachineInstance,
    migration: &VirtualMachineInstanceMigration,
    claims: &Claims,
    launcher: &Launcher,
) -> Pod {
    let mut pod = render(vmi, claims, launcher);
    pod.metadata.name = Some(target_name(vmi, migration));
    pod.labels_mut().insert(labels::MIGRATION_JOB_UID.into(), migration.uid().unwrap_or_default());
    pod.annotations_mut().insert(annotations::MIGRATION_JOB_NAME.into(), migration.name_any());
    let spec = pod.spec.get_or_insert_default();
    // What the migration asks for narrows the choice: where both speak of a label, the VM is right.
    let selector = spec.node_selector.get_or_insert_default();
    for (label, value) in &migration.spec.added_node_selector {
        selector.entry(label.clone()).or_insert_with(|| value.clone());
    }
    let pods_of_instance = LabelSelector {
        match_labels: Some([(labels::CREATED_BY.to_owned(), vmi.uid().unwrap_or_default())].into()),
        ..LabelSelector::default()
    };
    let affinity = spec.affinity.get_or_insert_default();
    let apart = affinity.pod_anti_affinity.get_or_insert_default();
    apart.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(PodAffinityTerm {
        label_selector: Some(pods_of_instance),
        topology_key: EACH_NODE.into(),
        ..PodAffinityTerm::default()
    });
    pod
}

/// Its name comes of the migration's UID: it is never made twice.
pub fn target_name(vmi: &VirtualMachineInstance, migration: &VirtualMachineInstanceMigration) -> String {
    name_for(vmi, &migration.uid().unwrap_or_default())
}
