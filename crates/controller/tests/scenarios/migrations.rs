//! Moves, as a person sees them: how they go well, how they end otherwise, and that the VM is in one place whatever happens.

use api::condition::{self, ConditionEntry as _};
use api::kubevirt::{InstancePhase, MigrationPhase};
use api::names::{annotations, conditions, labels};
use kube::ResourceExt as _;

use crate::support::Cluster;

async fn two_nodes() -> Cluster {
    let cluster = Cluster::with_controller().await;
    cluster.add_node("node02").await;
    cluster
}

#[tokio::test]
async fn a_vm_moves_and_its_new_home_is_the_target() {
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;
    let source = cluster.pod_of(&before).await;
    let migration = cluster.migrate("move", "wren").await;

    cluster.brought_to(&migration, "node02", MigrationPhase::Scheduling).await;
    let target = cluster.target_pod(&migration).await;
    assert_eq!(target.annotations()[annotations::MIGRATION_JOB_NAME], "move");
    assert_eq!(target.labels()[labels::CREATED_BY], before.uid().unwrap());
    let apart = target.spec.clone().unwrap().affinity.unwrap().pod_anti_affinity.unwrap();
    let apart = apart.required_during_scheduling_ignored_during_execution.unwrap();
    assert_eq!(apart[0].topology_key, "kubernetes.io/hostname");

    cluster.run_pod(&target, "node02").await;
    cluster.migration_phase("move", MigrationPhase::PreparingTarget).await;
    let vmi = cluster.instance("wren").await;
    assert_eq!(vmi.labels()[labels::MIGRATION_TARGET_NODE_NAME], "node02");
    assert_eq!(vmi.labels()[labels::NODE_NAME], "node01");
    let state = vmi.status.unwrap().migration_state.unwrap();
    assert_eq!(state.source_pod, source.metadata.name);
    assert_eq!(state.target_pod, target.metadata.name);
    assert_eq!(
        (state.source_node.as_deref(), state.target_node.as_deref()),
        (Some("node01"), Some("node02"))
    );
    assert_eq!(state.target_state.unwrap().common.migration_uid, migration.uid());
    assert_eq!(state.migration_configuration.unwrap().completion_timeout_per_gib, 150);

    cluster.target_listens("wren").await;
    cluster.migration_phase("move", MigrationPhase::TargetReady).await;
    cluster.source_begins("wren").await;
    cluster.migration_phase("move", MigrationPhase::Running).await;
    let vmi = cluster.instance("wren").await;
    assert_eq!(vmi.status.as_ref().unwrap().active_pods.len(), 2);
    assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some("node01"), "the guest is still at the source");
    cluster.guest_arrives("wren").await;
    cluster.source_is_done("wren").await;

    let done = cluster.migration_phase("move", MigrationPhase::Succeeded).await.status.unwrap();
    let phases: Vec<String> =
        done.phase_transition_timestamps.iter().map(|transition| transition.phase.to_string()).collect();
    let way =
        ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"];
    assert_eq!(phases, way);
    assert!(done.migration_state.unwrap().completed);
    let vmi = cluster.instance("wren").await;
    assert_eq!(vmi.labels()[labels::NODE_NAME], "node02");
    assert!(!vmi.labels().contains_key(labels::MIGRATION_TARGET_NODE_NAME));
    assert_eq!(vmi.status.as_ref().unwrap().node_name.as_deref(), Some("node02"));
    let target = cluster.pods.get(&target.name_any()).await.unwrap();
    assert!(target.annotations().contains_key(annotations::MIGRATION_TARGET_READY_TIMESTAMP));

    // The source ends by itself, and the instance runs on in the pod that was the target.
    cluster.pod_ends(&source, "Succeeded").await;
    let vmi = cluster.ready("wren").await;
    assert_eq!(vmi.status.unwrap().phase, Some(InstancePhase::Running));
}
