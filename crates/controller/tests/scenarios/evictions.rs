//! A node is drained: evictions are answered with "later" until the VMs have left.

use api::condition;
use api::kubevirt::{InstancePhase, MigrationPhase, MigrationPriority, VirtualMachineInstance};
use api::names::{annotations, conditions, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{EvictParams, PostParams};
use serde_json::json;
use testkit::eventually;

use crate::moves::Migration;
use crate::support::{Cluster, instance, object};

/// A running instance with this strategy.
async fn runs(cluster: &Cluster, name: &str, strategy: &str) -> (VirtualMachineInstance, Pod) {
    let mut created = instance(name);
    created.spec.eviction_strategy = Some(object(json!(strategy)));
    cluster.instances.create(&PostParams::default(), &created).await.unwrap();
    let vmi = cluster.run(name).await;
    let pod = cluster.pod_of(&vmi).await;
    (vmi, pod)
}

async fn evict(cluster: &Cluster, pod: &Pod) -> Result<(), (u16, String)> {
    match cluster.pods.evict(&pod.name_any(), &EvictParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
        Err(error) => panic!("{error}"),
    }
}

async fn evacuation_of(cluster: &Cluster, instance: &str, known: &[String]) -> Migration {
    eventually("the migration of an evacuation", async || {
        let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap().items;
        all.into_iter().find(|made| made.spec.vmi_name == instance && !known.contains(&made.name_any()))
    })
    .await
}

#[tokio::test]
async fn a_taint_drains_a_node_of_what_may_move() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    runs(&cluster, "wren", "LiveMigrate").await;
    runs(&cluster, "stays", "None").await;
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(cluster.client.clone());
    let taint = |key: &str, effect: &str| {
        let taints = json!({ "spec": { "taints": [{ "key": key, "effect": effect }] } });
        (nodes.clone(), kube::api::Patch::Merge(taints))
    };
    for (key, effect) in [("other", "NoSchedule"), (annotations::DRAIN_TAINT, "NoSchedule")] {
        let (nodes, patch) = taint(key, effect);
        nodes.patch("node01", &kube::api::PatchParams::default(), &patch).await.unwrap();
    }
    let made = evacuation_of(&cluster, "wren", &[]).await;
    assert_eq!(made.annotations()[annotations::EVACUATION_MIGRATION], "node01");
    cluster.brought_to(&made, "node02", MigrationPhase::Succeeded).await;
    let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(all.iter().all(|migration| migration.spec.vmi_name == "wren"), "who has no strategy stays");
}

#[tokio::test]
async fn an_evicted_vm_moves_and_the_eviction_is_answered_with_later() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let (_, pod) = runs(&cluster, "wren", "LiveMigrate").await;

    let refusal = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: ";
    let text = "Eviction triggered evacuation of VMI \"default/wren\"";
    let dry = EvictParams {
        post_options: PostParams { dry_run: true, ..PostParams::default() },
        ..EvictParams::default()
    };
    let tried = cluster.pods.evict(&pod.name_any(), &dry).await.unwrap_err().to_string();
    assert!(tried.contains(text), "{tried}");
    assert_eq!(
        cluster.instance("wren").await.status.unwrap().evacuation_node_name,
        None,
        "it was only tried"
    );

    assert_eq!(evict(&cluster, &pod).await, Err((429, format!("{refusal}{text}"))));
    assert_eq!(evict(&cluster, &pod).await, Err((429, format!("{refusal}Evacuation in progress: {text}"))));
    eventually("the VM to say so", async || {
        let status = cluster.instance("wren").await.status.unwrap();
        assert_eq!(status.evacuation_node_name.as_deref(), Some("node01"));
        condition::is_true(&status.conditions, conditions::EVICTION_REQUESTED).then_some(())
    })
    .await;

    let made = evacuation_of(&cluster, "wren", &[]).await;
    assert!(made.name_any().starts_with(objects::EVACUATION_PREFIX));
    assert_eq!(made.spec.priority, Some(MigrationPriority::SystemCritical));
    assert_eq!(made.annotations()[annotations::EVACUATION_MIGRATION], "node01");
    cluster.brought_to(&made, "node02", MigrationPhase::Running).await;
    let target = cluster.target_pod(&made).await;
    assert_eq!(
        evict(&cluster, &target).await,
        Err((429, format!("{refusal}Eviction request for target Pod")))
    );
    cluster.brought_on(&made, MigrationPhase::Succeeded).await;
    let status = cluster.instance("wren").await.status.unwrap();
    assert_eq!((status.evacuation_node_name, status.node_name.as_deref()), (None, Some("node02")));
    assert_eq!(evict(&cluster, &pod).await, Ok(()), "the pod that was left may go");
}

#[tokio::test]
async fn an_evacuation_that_fails_is_tried_again_later() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let (_, pod) = runs(&cluster, "wren", "LiveMigrate").await;
    evict(&cluster, &pod).await.unwrap_err();
    let first = evacuation_of(&cluster, "wren", &[]).await;
    cluster.brought_to(&first, "node02", MigrationPhase::Running).await;
    cluster.source_fails("wren", "no route").await;
    cluster.migration_phase(&first.name_any(), MigrationPhase::Failed).await;
    cluster.pod_goes(&cluster.target_pod(&first).await).await;
    // Twenty seconds, of which most are over.
    cluster.turn_back_the_clock(&first.name_any(), 19).await;
    let second = evacuation_of(&cluster, "wren", &[first.name_any()]).await;
    cluster.brought_to(&second, "node02", MigrationPhase::Succeeded).await;
}

/// Takes the mark of the eviction away.
async fn unmark(cluster: &Cluster, name: &str) {
    let unmark = json!({ "status": { "evacuationNodeName": null } });
    let params = kube::api::PatchParams::default();
    cluster.instances.patch_status(name, &params, &kube::api::Patch::Merge(&unmark)).await.unwrap();
}

#[tokio::test]
async fn an_evacuation_is_cancelled_by_taking_its_mark_away() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let (_, wren) = runs(&cluster, "wren", "LiveMigrate").await;
    let (_, lark) = runs(&cluster, "lark", "LiveMigrate").await;
    evict(&cluster, &wren).await.unwrap_err();
    evict(&cluster, &lark).await.unwrap_err();
    let waiting = evacuation_of(&cluster, "wren", &[]).await;
    let moving = evacuation_of(&cluster, "lark", &[]).await;
    cluster.brought_to(&moving, "node02", MigrationPhase::Running).await;
    unmark(&cluster, "wren").await;
    unmark(&cluster, "lark").await;
    // One that has not begun is gone at once; the source of the other is asked, and its guest stays.
    cluster.migration_gone(&waiting.name_any()).await;
    cluster.source_aborts("lark").await;
    cluster.migration_gone(&moving.name_any()).await;
    for name in ["wren", "lark"] {
        eventually("the VM to be as it was", async || {
            let status = cluster.instance(name).await.status.unwrap();
            let requested = condition::is_true(&status.conditions, conditions::EVICTION_REQUESTED);
            (!requested && status.node_name.as_deref() == Some("node01")).then_some(())
        })
        .await;
    }
    // Whoever evicts it again means it.
    evict(&cluster, &wren).await.unwrap_err();
    let again = evacuation_of(&cluster, "wren", &[waiting.name_any()]).await;
    cluster.brought_to(&again, "node02", MigrationPhase::Succeeded).await;
}

#[tokio::test]
async fn what_the_last_eviction_was_for_is_what_counts() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let (_, pod) = runs(&cluster, "wren", "LiveMigrate").await;
    let rebalance = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": { "name": pod.name_any(), "annotations": { "requested-by": "sigs.k8s.io/descheduler" } },
    });
    let params = PostParams::default();
    cluster
        .pods
        .create_subresource::<_, serde_json::Value>("eviction", &pod.name_any(), &params, &rebalance)
        .await
        .unwrap_err();
    let first = evacuation_of(&cluster, "wren", &[]).await;
    assert_eq!(first.spec.priority, Some(MigrationPriority::SystemMaintenance));
    unmark(&cluster, "wren").await;
    cluster.migration_gone(&first.name_any()).await;
    evict(&cluster, &pod).await.unwrap_err();
    let second = evacuation_of(&cluster, "wren", &[first.name_any()]).await;
    assert_eq!(second.spec.priority, Some(MigrationPriority::SystemCritical), "now the node is drained");
}

#[tokio::test]
async fn what_an_eviction_does_is_the_vms_choice() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    let (_, none) = runs(&cluster, "none", "None").await;
    assert_eq!(evict(&cluster, &none).await, Ok(()));
    let (_, external) = runs(&cluster, "external", "External").await;
    let (code, message) = evict(&cluster, &external).await.unwrap_err();
    assert_eq!(code, 429);
    assert!(message.ends_with("Eviction triggered evacuation of VMI \"default/external\""), "{message}");
    let bound = async |name: &str, strategy: &str| {
        let mut created = instance(name);
        created.spec.domain.cpu = object(json!({ "model": "host-passthrough" }));
        created.spec.eviction_strategy = Some(object(json!(strategy)));
        cluster.instances.create(&PostParams::default(), &created).await.unwrap();
        let vmi = cluster.run(name).await;
        cluster.pod_of(&vmi).await
    };
    let stuck = bound("stuck", "LiveMigrate").await;
    let (code, message) = evict(&cluster, &stuck).await.unwrap_err();
    assert_eq!(code, 429);
    let text = "VMI stuck is configured with an eviction strategy but is not live-migratable";
    assert!(message.ends_with(text), "{message}");
    let possible = bound("possible", "LiveMigrateIfPossible").await;
    assert_eq!(evict(&cluster, &possible).await, Ok(()), "it cannot move, and may end");
    let status = cluster.instance("external").await.status.unwrap();
    assert_eq!(status.evacuation_node_name.as_deref(), Some("node01"));
    let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap().items;
    assert!(all.is_empty(), "somebody else moves it: {all:?}");
}

#[tokio::test]
async fn a_node_with_six_vms_is_drained_within_the_limits() {
    let cluster = Cluster::new().await;
    cluster.start_with_webhooks().await;
    cluster.add_node("node02").await;
    let mut pods = Vec::new();
    for index in 0..6 {
        pods.push(runs(&cluster, &format!("vm{index}"), "LiveMigrate").await);
    }
    let mut left: Vec<&(VirtualMachineInstance, Pod)> = pods.iter().collect();
    let mut rounds = 0;
    while !left.is_empty() {
        for (_, pod) in &left {
            evict(&cluster, pod).await.unwrap_err();
        }
        for (vmi, _) in &left {
            evacuation_of(&cluster, &vmi.name_any(), &[]).await;
        }
        let begun = eventually("two to be on their way", async || {
            let all = cluster.migrations().list(&kube::api::ListParams::default()).await.unwrap().items;
            let phase = |made: &Migration| made.status.as_ref().and_then(|status| status.phase);
            let begun: Vec<Migration> = all
                .into_iter()
                .filter(|made| {
                    phase(made).is_some_and(|phase| phase != MigrationPhase::Pending && !phase.is_final())
                })
                .collect();
            assert!(begun.len() <= 2, "two may leave a node at a time");
            (begun.len() == 2).then_some(begun)
        })
        .await;
        for made in &begun {
            cluster.brought_to(made, "node02", MigrationPhase::Succeeded).await;
        }
        for (_, pod) in
            left.extract_if(.., |(vmi, _)| begun.iter().any(|made| made.spec.vmi_name == vmi.name_any()))
        {
            cluster.pod_ends(pod, "Succeeded").await;
            assert_eq!(evict(&cluster, pod).await, Ok(()), "it has left");
        }
        rounds += 1;
    }
    assert_eq!(rounds, 3);
    for (vmi, _) in &pods {
        let status = cluster.ready(&vmi.name_any()).await.status.unwrap();
        assert_eq!(
            (status.node_name.as_deref(), status.phase),
            (Some("node02"), Some(InstancePhase::Running))
        );
    }
}
