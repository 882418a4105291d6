//! Whose turn it is, as a person sees it.

use api::kubevirt::{MigrationPhase, MigrationPriority};
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::json;
use testkit::eventually;

use crate::moves::migration;
use crate::support::Cluster;

async fn started(cluster: &Cluster) -> Vec<String> {
    let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap();
    let begun = |phase: MigrationPhase| phase != MigrationPhase::Pending && !phase.is_final();
    let mut names: Vec<String> = all
        .items
        .iter()
        .filter(|migration| migration.status.as_ref().and_then(|status| status.phase).is_some_and(begun))
        .map(kube::ResourceExt::name_any)
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn so_many_leave_a_node_at_a_time_and_drains_come_first() {
    let cluster = Cluster::new().await;
    cluster.configure(json!({ "migrations": { "parallelOutboundMigrationsPerNode": 1 } })).await;
    cluster.start();
    cluster.add_node("node02").await;
    cluster.add_node("node03").await;
    for name in ["a", "b", "c"] {
        cluster.runs_on(name, "node01").await;
    }
    cluster.runs_on("elsewhere", "node02").await;
    let first = cluster.migrate("first", "a").await;
    cluster.migration_phase("first", MigrationPhase::Scheduling).await;
    cluster.migrate("second", "b").await;
    assert_eq!(cluster.waits_for("second").await, "ParallelOutboundMigrationsPerNode");
    let mut drain = migration("drain", "c");
    drain.spec.priority = Some(MigrationPriority::SystemCritical);
    let drain = cluster.migrations().create(&PostParams::default(), &drain).await.unwrap();
    assert_eq!(cluster.waits_for("drain").await, "ParallelOutboundMigrationsPerNode");
    cluster.migrate("other-node", "elsewhere").await;
    cluster.migration_phase("other-node", MigrationPhase::Scheduling).await;

    cluster.brought_to(&first, "node02", MigrationPhase::Succeeded).await;
    cluster.brought_to(&drain, "node03", MigrationPhase::Scheduling).await;
    assert_eq!(
        started(&cluster).await,
        ["drain", "other-node"],
        "the drain passed the one who waited longer"
    );
    cluster.brought_to(&drain, "node03", MigrationPhase::Succeeded).await;
    cluster.migration_phase("second", MigrationPhase::Scheduling).await;
}

#[tokio::test]
async fn so_many_move_in_the_cluster_and_so_many_arrive_at_a_node() {
    let cluster = Cluster::new().await;
    let limits = json!({ "migrations": {
        "parallelMigrationsPerCluster": 2, "parallelOutboundMigrationsPerNode": 9, "parallelInboundMigrationsPerNode": 1,
    }});
    cluster.configure(limits).await;
    cluster.start();
    cluster.add_node("node02").await;
    for name in ["a", "b", "c"] {
        cluster.runs_on(name, "node01").await;
    }
    let a = cluster.migrate("move-a", "a").await;
    cluster.brought_to(&a, "node02", MigrationPhase::Scheduling).await;
    let b = cluster.migrate("move-b", "b").await;
    cluster.brought_to(&b, "node02", MigrationPhase::Scheduling).await;
    let c = cluster.migrate("move-c", "c").await;
    assert_eq!(cluster.waits_for("move-c").await, "ParallelMigrationsPerCluster");

    cluster.run_pod(&cluster.target_pod(&a).await, "node02").await;
    cluster.migration_phase("move-a", MigrationPhase::PreparingTarget).await;
    cluster.run_pod(&cluster.target_pod(&b).await, "node02").await;
    assert_eq!(cluster.waits_for("move-b").await, "ParallelInboundMigrationsPerNode");
    cluster.migration_phase("move-b", MigrationPhase::Scheduled).await;

    // A place that becomes free is taken, also by a controller that was not there when it was full.
    cluster.restart();
    cluster.brought_on(&a, MigrationPhase::Succeeded).await;
    cluster.migration_phase("move-b", MigrationPhase::PreparingTarget).await;
    cluster.brought_on(&b, MigrationPhase::Succeeded).await;
    cluster.brought_to(&c, "node02", MigrationPhase::Succeeded).await;
    let waiting = cluster.migrations().get("move-c").await.unwrap().status.unwrap().conditions;
    assert!(api::condition::find(&waiting, "migrationQueued").is_none(), "it does not wait any more");
    eventually("all to be at home", async || {
        let all = cluster.instances.list(&kube::api::ListParams::default()).await.unwrap();
        let home =
            |vmi: &api::kubevirt::VirtualMachineInstance| vmi.labels()["kubevirt.io/nodeName"] == "node02";
        all.items.iter().all(home).then_some(())
    })
    .await;
}

#[tokio::test]
async fn limits_hold_when_everybody_asks_at_once() {
    let cluster = Cluster::new().await;
    cluster.add_node("node02").await;
    cluster.start();
    for index in 0..6 {
        cluster.runs_on(&format!("vm{index}"), "node01").await;
    }
    cluster.kill();
    for index in 0..6 {
        cluster.migrate(&format!("move{index}"), &format!("vm{index}")).await;
    }
    cluster.start();
    // They may all be of the same second: which two come first is nobody's promise.
    let waiting = eventually("four to wait", async || {
        let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap().items;
        let reasons = all.into_iter().filter_map(|migration| {
            let conditions = migration.status?.conditions;
            api::condition::find(&conditions, "migrationQueued")?.reason.clone()
        });
        let reasons: Vec<String> = reasons.collect();
        (reasons.len() == 4).then_some(reasons)
    })
    .await;
    assert_eq!(waiting, ["ParallelOutboundMigrationsPerNode"; 4]);
    eventually("two to begin", async || (started(&cluster).await.len() == 2).then_some(())).await;
}

#[tokio::test]
async fn nothing_begins_while_the_installation_is_being_changed() {
    let cluster = Cluster::new().await;
    cluster.configure(json!({})).await;
    cluster.installation_says("False", "DeploymentInProgress").await;
    cluster.start();
    cluster.add_node("node02").await;
    cluster.runs_on("wren", "node01").await;
    let made = cluster.migrate("move", "wren").await;
    assert_eq!(cluster.waits_for("move").await, "InstallationNotReady");
    cluster.installation_says("True", "AllComponentsReady").await;
    cluster.brought_to(&made, "node02", MigrationPhase::Succeeded).await;
}
