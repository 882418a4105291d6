//! Moves, as a person sees them: how they go well, how they end otherwise, and that the VM is in one place whatever happens.

use api::condition;
use api::kubevirt::{InstancePhase, MigrationPhase, MigrationPriority, VirtualMachineInstance};
use api::names::{annotations, conditions, labels, objects};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use testkit::eventually;

use crate::moves::Migration;
use crate::support::{Cluster, INSTALLATION, instance, object};

async fn two_nodes() -> Cluster {
    let cluster = Cluster::with_controller().await;
    cluster.add_node("node02").await;
    cluster
}

/// The VM is where it was, and nothing of the move is left.
async fn unharmed(cluster: &Cluster, before: &VirtualMachineInstance, target: Option<&Pod>) {
    if let Some(target) = target {
        cluster.told_to_end(target).await;
        cluster.pod_goes(target).await;
    }
    let name = before.name_any();
    let vmi = eventually("the label of the target to be gone", async || {
        let vmi = cluster.instance(&name).await;
        (!vmi.labels().contains_key(labels::MIGRATION_TARGET_NODE_NAME)).then_some(vmi)
    })
    .await;
    let status = vmi.status.unwrap();
    assert_eq!(status.phase, Some(InstancePhase::Running));
    assert_eq!(status.node_name.as_deref(), Some("node01"));
    assert_eq!(vmi.metadata.labels.unwrap()[labels::NODE_NAME], "node01");
    cluster.ready(&name).await;
}

async fn failed(cluster: &Cluster, name: &str, why: &str) -> Migration {
    let failed = cluster.migration_phase(name, MigrationPhase::Failed).await;
    let state = failed.status.clone().unwrap().migration_state.unwrap();
    assert_eq!(state.failure_reason.as_deref(), Some(why));
    assert!(state.failed && state.completed);
    failed
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

#[tokio::test]
async fn a_vm_moves_there_and_back() {
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;
    for (index, (from, to)) in
        [("node01", "node02"), ("node02", "node01"), ("node01", "node02")].iter().enumerate()
    {
        let status = cluster.instance("wren").await.status.unwrap();
        assert_eq!(status.node_name.as_deref(), Some(*from));
        let left = status.migration_state.map(|state| state.target_pod.unwrap());
        let migration = cluster.migrate(&format!("move{index}"), "wren").await;
        cluster.brought_to(&migration, to, MigrationPhase::Succeeded).await;
        let state = cluster.instance("wren").await.status.unwrap().migration_state.unwrap();
        if let Some(left) = left {
            assert_eq!(state.source_pod, Some(left), "the pod that it came to is the one that it leaves");
        }
        let source = cluster.pods.get(&state.source_pod.unwrap()).await.unwrap();
        cluster.pod_ends(&source, "Succeeded").await;
        let vmi = cluster.ready("wren").await;
        assert_eq!(vmi.uid(), before.uid());
        assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some(*to));
    }
}

#[tokio::test]
async fn a_move_that_fails_leaves_the_vm_where_it_was_and_says_why() {
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;

    let migration = cluster.migrate("broken", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Running).await;
    let target = cluster.target_pod(&migration).await;
    cluster.source_fails("wren", "the peer closed the connection").await;
    failed(&cluster, "broken", "the peer closed the connection").await;
    unharmed(&cluster, &before, Some(&target)).await;

    let migration = cluster.migrate("ended", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::PreparingTarget).await;
    let target = cluster.target_pod(&migration).await;
    cluster.pod_ends(&target, "Failed").await;
    failed(&cluster, "ended", "Migration failed because target pod shutdown during migration").await;
    unharmed(&cluster, &before, None).await;

    let migration = cluster.migrate("removed", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Scheduling).await;
    let target = cluster.target_pod(&migration).await;
    cluster.pods.delete(&target.name_any(), &DeleteParams::default()).await.unwrap();
    failed(&cluster, "removed", "Migration target pod was removed during active migration.").await;
    unharmed(&cluster, &before, None).await;

    let migration = cluster.migrate("same-node", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Scheduling).await;
    let target = cluster.target_pod(&migration).await;
    cluster.run_pod(&target, "node01").await;
    failed(&cluster, "same-node", "the target pod was put on node node01, which the VM is to leave").await;
    unharmed(&cluster, &before, Some(&target)).await;

    // The target dies while memory moves: the source is asked, and says that the guest is still there.
    let migration = cluster.migrate("target-died", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Running).await;
    let target = cluster.target_pod(&migration).await;
    cluster.pod_ends(&target, "Failed").await;
    cluster.source_aborts("wren").await;
    let over = cluster.migration_phase("target-died", MigrationPhase::Failed).await.status.unwrap();
    let why = over.migration_state.unwrap().failure_reason;
    assert_eq!(why.as_deref(), Some("Migration failed because target pod shutdown during migration"));
    unharmed(&cluster, &before, None).await;

    // And after all that, the next attempt succeeds.
    let migration = cluster.migrate("well", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Succeeded).await;
}

#[tokio::test]
async fn a_target_pod_that_no_node_takes_ends_the_move_when_its_time_is_over() {
    let cluster = two_nodes().await;
    let mut impatient = instance("wren");
    impatient
        .annotations_mut()
        .insert(annotations::MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS.into(), "1".into());
    cluster.instances.create(&PostParams::default(), &impatient).await.unwrap();
    let before = cluster.run("wren").await;
    let migration = cluster.migrate("move", "wren").await;
    let target = cluster.target_pod(&migration).await;
    let refused = json!({ "phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available",
    }]});
    cluster.pod_status(&target, refused).await;
    failed(&cluster, "move", "no node took the target pod within 1 seconds: 0/2 nodes are available").await;
    unharmed(&cluster, &before, Some(&target)).await;
}

#[tokio::test]
async fn a_move_ends_with_its_vm() {
    let cluster = two_nodes().await;
    cluster.runs_on("wren", "node01").await;
    let migration = cluster.migrate("move", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Scheduling).await;
    let target = cluster.target_pod(&migration).await;
    cluster.handler_says("wren", InstancePhase::Succeeded).await;
    failed(&cluster, "move", "Migration failed vmi shutdown during migration.").await;
    cluster.told_to_end(&target).await;
    cluster.migrate("late", "nobody").await;
    failed(&cluster, "late", "Migration failed because vmi does not exist.").await;
}

#[tokio::test]
async fn a_vm_moves_once_at_a_time() {
    let cluster = two_nodes().await;
    cluster.runs_on("wren", "node01").await;
    let first = cluster.migrate("first", "wren").await;
    cluster.brought_to(&first, "node02", MigrationPhase::Running).await;
    cluster.migrate("second", "wren").await;
    let why = "VMI is not eligible for migration because another migration job is in progress.";
    failed(&cluster, "second", why).await;
    cluster.brought_on(&first, MigrationPhase::Succeeded).await;
}

#[tokio::test]
async fn a_move_is_cancelled_in_every_phase_by_deleting_it() {
    use MigrationPhase::{Pending, PreparingTarget, Running, Scheduling, TargetReady};
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;
    for phase in [Pending, Scheduling, PreparingTarget, TargetReady, Running] {
        let name = format!("cancelled-{phase}").to_lowercase();
        if phase == Pending {
            cluster.kill();
        }
        let migration = cluster.migrate(&name, "wren").await;
        if phase == Pending {
            cluster.cancel(&name).await;
            cluster.start();
            cluster.migration_gone(&name).await;
            continue;
        }
        cluster.brought_to(&migration, "node02", phase).await;
        let target = cluster.target_pod(&migration).await;
        cluster.cancel(&name).await;
        if matches!(phase, TargetReady | Running) {
            cluster.source_aborts("wren").await;
        }
        cluster.migration_gone(&name).await;
        unharmed(&cluster, &before, Some(&target)).await;
        let state = cluster.instance("wren").await.status.unwrap().migration_state;
        assert!(state.is_none_or(|state| state.completed && state.failed), "{phase}: the record is closed");
    }
    // Too late: the guest is there, and stays.
    let migration = cluster.migrate("too-late", "wren").await;
    cluster.brought_to(&migration, "node02", Running).await;
    cluster.guest_arrives("wren").await;
    cluster.cancel("too-late").await;
    cluster.source_is_done("wren").await;
    cluster.migration_gone("too-late").await;
    let vmi = cluster.instance("wren").await;
    assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some("node02"));
}

#[tokio::test]
async fn a_guest_that_arrived_is_at_home_though_the_source_never_says_so() {
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;
    let source = cluster.pod_of(&before).await;
    let migration = cluster.migrate("move", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::Running).await;
    cluster.pod_ends(&source, "Failed").await;
    // It has been there for longer than the source has time to say so.
    cluster
        .record("wren", |state| {
            let seen = Timestamp::now() - SignedDuration::from_secs(20);
            state.target_node_domain_ready_timestamp = Some(Time(seen));
        })
        .await;
    let done = cluster.migration_phase("move", MigrationPhase::Succeeded).await.status.unwrap();
    assert!(done.migration_state.unwrap().end_timestamp.is_some());
    let vmi = cluster.ready("wren").await;
    assert_eq!(vmi.status.unwrap().node_name.as_deref(), Some("node02"));
}

#[tokio::test]
async fn a_move_without_tls_has_a_token_of_its_own_while_it_lasts() {
    let cluster = two_nodes().await;
    cluster.configure(json!({ "migrations": { "disableTLS": true, "completionTimeoutPerGiB": 7 } })).await;
    cluster
        .create_policy("patient", json!({ "completionTimeoutPerGiB": 900 }), json!({ "tier": "db" }))
        .await;
    let mut labelled = instance("wren");
    labelled.labels_mut().insert("tier".into(), "db".into());
    cluster.instances.create(&PostParams::default(), &labelled).await.unwrap();
    cluster.run("wren").await;
    let secrets: Api<Secret> =
        Api::namespaced(cluster.client.clone(), &objects::migration_tokens(INSTALLATION));
    for (name, cancelled) in [("given-up", true), ("move", false)] {
        let migration = cluster.migrate(name, "wren").await;
        cluster.brought_to(&migration, "node02", MigrationPhase::PreparingTarget).await;
        let token = format!("migration-{}", migration.uid().unwrap());
        let secret = secrets.get(&token).await.unwrap().data.unwrap();
        assert_eq!(secret["token"].0.len(), 64);
        assert!(secret["token"].0.iter().all(u8::is_ascii_hexdigit));
        let state = cluster.instance("wren").await.status.unwrap().migration_state.unwrap();
        assert_eq!(state.migration_policy_name.as_deref(), Some("patient"));
        let options = state.migration_configuration.unwrap();
        assert_eq!((options.completion_timeout_per_gib, options.disable_tls), (900, true));
        if cancelled {
            cluster.cancel(name).await;
            cluster.migration_gone(name).await;
            cluster.pod_goes(&cluster.target_pod(&migration).await).await;
        } else {
            cluster.brought_on(&migration, MigrationPhase::Succeeded).await;
        }
        assert!(secrets.get_opt(&token).await.unwrap().is_none(), "it is worth nothing any more, and gone");
    }
}

#[tokio::test]
async fn the_last_five_moves_of_a_vm_stay_as_a_record() {
    let cluster = two_nodes().await;
    cluster.migrate("other", "nobody").await;
    for index in 0..7 {
        let name = format!("move{index}");
        cluster.migrate(&name, "nobody-else").await;
        cluster.migration_phase(&name, MigrationPhase::Failed).await;
    }
    eventually("the oldest to be gone", async || {
        let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap();
        let (leaving, kept): (Vec<_>, Vec<_>) =
            all.items.iter().partition(|migration| migration.metadata.deletion_timestamp.is_some());
        assert!(kept.len() >= 6, "forgotten too many: {} are left", kept.len());
        (leaving.is_empty() && kept.len() == 6).then_some(())
    })
    .await;
    assert!(cluster.migrations().get_opt("move6").await.unwrap().is_some());
    assert!(cluster.migrations().get_opt("other").await.unwrap().is_some(), "each VM has its own");
}

#[tokio::test]
async fn a_target_that_does_not_get_ready_is_given_up_when_its_time_is_over() {
    let cluster = two_nodes().await;
    let before = cluster.runs_on("wren", "node01").await;
    let migration = cluster.migrate("move", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::PreparingTarget).await;
    let target = cluster.target_pod(&migration).await;
    cluster.turn_back_the_clock("move", 301).await;
    failed(&cluster, "move", "the handler of node node02 did not get the target ready within 5 minutes")
        .await;
    unharmed(&cluster, &before, Some(&target)).await;

    let migration = cluster.migrate("again", "wren").await;
    cluster.brought_to(&migration, "node02", MigrationPhase::TargetReady).await;
    let target = cluster.target_pod(&migration).await;
    cluster.turn_back_the_clock("again", 121).await;
    cluster.source_aborts("wren").await;
    let over = cluster.migration_phase("again", MigrationPhase::Failed).await.status.unwrap();
    let asked = condition::find(&over.conditions, conditions::MIGRATION_ABORT_REQUESTED).unwrap();
    let why = "the handler of node node01 did not begin to send within 2 minutes";
    assert_eq!(asked.message.as_deref(), Some(why));
    unharmed(&cluster, &before, Some(&target)).await;
}

#[tokio::test]
async fn a_migration_is_filled_in_and_refused_by_whoever_looks_at_it() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let refused = async |migration: Migration| match cluster
        .migrations()
        .create(&PostParams::default(), &migration)
        .await
    {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("expected a refusal, got {other:?}"),
    };
    let missing = refused(crate::moves::migration("move", "wren")).await;
    assert!(missing.contains("the VMI \"default/wren\" does not exist"), "{missing}");
    cluster.create_instance("wren").await;
    let early = refused(crate::moves::migration("move", "wren")).await;
    assert!(early.contains("does not run"), "{early}");
    cluster.run("wren").await;

    let made = cluster.migrate("move", "wren").await;
    assert_eq!(made.spec.priority, Some(MigrationPriority::UserTriggered));
    assert_eq!(made.labels()[labels::VMI_NAME], "wren");
    assert!(made.finalizers().contains(&"kubevirt.io/migrationJobFinalize".to_owned()));
    let second = refused(crate::moves::migration("second", "wren")).await;
    let text = format!(
        "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI wren.",
        made.uid().unwrap()
    );
    assert!(second.contains(&text), "{second}");
    let change = kube::api::Patch::Merge(json!({ "spec": { "vmiName": "finch" } }));
    let changed = cluster.migrations().patch("move", &kube::api::PatchParams::default(), &change).await;
    assert!(changed.unwrap_err().to_string().contains("cannot be changed"));
    cluster.brought_to(&made, "node02", MigrationPhase::Succeeded).await;

    let mut bound = instance("finch");
    bound.spec = object(json!({
        "domain": { "memory": { "guest": "64Mi" }, "cpu": { "model": "host-passthrough" }, "devices": {} },
    }));
    cluster.instances.create(&PostParams::default(), &bound).await.unwrap();
    cluster.run("finch").await;
    let refused_bound = refused(crate::moves::migration("third", "finch")).await;
    assert!(refused_bound.contains("Cannot migrate VMI, Reason: "), "{refused_bound}");

    // While the installation is being changed nothing moves.
    cluster.configure(json!({})).await;
    cluster.installation_says("True", "UpdateInProgress").await;
    let wait = async || refused(crate::moves::migration("fourth", "wren")).await;
    eventually("the roll-out to be known", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        cluster.migrations().create(&dry, &crate::moves::migration("fourth", "wren")).await.err()
    })
    .await;
    let rolling = wait().await;
    assert!(rolling.contains("AllComponentsReady"), "{rolling}");
    cluster.installation_says("True", "AllComponentsReady").await;
    eventually("migrations to be taken again", async || {
        cluster
            .migrations()
            .create(&PostParams::default(), &crate::moves::migration("fourth", "wren"))
            .await
            .ok()
    })
    .await;

    let bad =
        cluster.try_policy("bad", json!({ "bandwidthPerMigration": "-1Gi" }), json!({ "a b": "c" })).await;
    let bad = bad.unwrap_err().to_string();
    assert!(
        bad.contains("spec.bandwidthPerMigration") && bad.contains("\"a b\" cannot be the name"),
        "{bad}"
    );
}
