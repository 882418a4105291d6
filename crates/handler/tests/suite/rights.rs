//! The manifest of the handler: its rights are what the handler uses, no more and no less.

use serde_json::{Value, json};
use testkit::Granted;

use crate::node::{eventually, isolated};

const MANIFEST: &str = include_str!("../../../../deploy/virt-handler.yaml");

#[test]
fn the_handler_has_every_right_that_it_uses_and_none_that_it_does_not() {
    isolated(
        "rights::the_handler_has_every_right_that_it_uses_and_none_that_it_does_not",
        |node| async move {
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
            eventually("an event is written", || used.has("create", "events")).await;

            let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).unwrap();
            // An event is patched when it repeats; nothing moves here, nobody signs, and there is no installation to watch.
            let unseen = |resource: &str, verb: &str| {
                matches!(
                    (resource, verb),
                    ("events" | "virtualmachineinstancemigrations/status", "patch")
                        | ("virtualmachineinstancemigrations", "list")
                        | ("kubevirts", "watch")
                        | ("nodes" | "certificatesigningrequests", "get")
                )
            };
            Granted::by(&documents, "kubevirt").are_exactly(&used, unseen);
        },
    );
}
