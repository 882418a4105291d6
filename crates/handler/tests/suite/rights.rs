//! The manifest of the handler: its rights are what the handler uses, no more and no less.

use api::names::{annotations, labels};
use k8s_openapi::api::core::v1::{Node as ApiNode, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::Granted;

use crate::node::{NODE, Node, eventually, isolated};
use crate::road;

const MANIFEST: &str = include_str!("../../../../deploy/virt-handler.yaml");

#[test]
fn the_handler_has_every_right_that_it_uses_and_none_that_it_does_not() {
    isolated(
        "rights::the_handler_has_every_right_that_it_uses_and_none_that_it_does_not",
        |node| async move {
            road::install(&node.client, json!({ "disableTLS": true })).await;
            let used = node.start_observed_handler();
            // A machine that runs, and ends; another whose pod is lost.
            let pod = node.launcher_pod("vm", &["default"]).await;
            let mut launcher = pod.launcher().await;
            launcher.greet().await;
            launcher.status(json!({ "phase": "waiting" }));
            assert_eq!(launcher.hear().await["command"], "start");
            assert_eq!(pod.proxy().await.ask("add", "default").await["response"], "added");
            launcher.status(json!({ "phase": "running", "accelerator": "tcg" }));
            node.phase("vm", "Running").await;
            launcher.status(json!({ "phase": "cleaning-up", "ending": { "outcome": "failed", "reason": "Crashed", "message": "QEMU died." } }));
            node.phase("vm", "Failed").await;
            let lost = node.launcher_pod("lost", &["default"]).await;
            let mut launcher = lost.launcher().await;
            launcher.greet().await;
            node.lose_pod(&lost).await;
            node.phase("lost", "Failed").await;
            expects_a_guest_without_tls(&node).await;
            eventually("an event is written", || used.has("create", "events")).await;

            let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).unwrap();
            // An event is patched when it repeats, and nothing leaves from here.
            let unseen = |resource: &str, verb: &str| {
                matches!(
                    (resource, verb),
                    ("events" | "virtualmachineinstancemigrations/status", "patch")
                        | ("virtualmachineinstancemigrations", "list")
                )
            };
            Granted::by(&documents).are_exactly(&used, unseen);
        },
    );
}

/// The target of a move, up to the address that it publishes: it has read the token, and where the source sends from.
async fn expects_a_guest_without_tls(node: &Node) {
    let nodes: Api<ApiNode> = Api::all(node.client.clone());
    let report = json!({ "address": "192.0.2.9", "at": "2026-01-01T00:00:00Z" }).to_string();
    let source = json!({ "metadata": { "name": "source", "annotations": { annotations::MIGRATION_NETWORK_REPORT: report } } });
    nodes.create(&PostParams::default(), &serde_json::from_value(source).unwrap()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(node.client.clone(), "kubevirt-migrations");
    let secret =
        json!({ "metadata": { "name": "migration-m1" }, "stringData": { "token": "0f".repeat(32) } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();

    let pod = node.launcher_pod("comes", &["default"]).await;
    let as_merge = PatchParams::default();
    let of_move = json!({ "metadata": { "labels": { labels::MIGRATION_JOB_UID: "m1" } } });
    node.pods().patch(&pod.name, &as_merge, &Patch::Merge(of_move)).await.unwrap();
    let coming = json!({ "metadata": { "labels": { labels::NODE_NAME: "source", labels::MIGRATION_TARGET_NODE_NAME: NODE } } });
    node.instances().patch("comes", &as_merge, &Patch::Merge(coming)).await.unwrap();
    let state = json!({ "migrationUid": "m1", "sourceNode": "source", "sourcePod": "away", "targetNode": NODE,
        "targetPod": pod.name, "migrationConfiguration": { "disableTLS": true } });
    let status = json!({ "status": { "nodeName": "source", "phase": "Running", "migrationState": state } });
    node.instances().patch_status("comes", &as_merge, &Patch::Merge(status)).await.unwrap();
    for directory in [wire::MIGRATION_SOCKETS, wire::HYPERVISOR_SOCKET.split_once('/').unwrap().0] {
        std::fs::create_dir_all(pod.private.join(directory)).unwrap();
    }
    let mut launcher = pod.launcher().await;
    launcher.greet().await;
    launcher.status(json!({ "phase": "ready-for-migration" }));
    let address = |status: &Value| status["migrationState"]["targetNodeAddress"] == "127.0.0.1";
    node.instance("comes", "the address of the target", address).await;
}
