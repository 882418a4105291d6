//! What the handler says of its node: that VMs can run there, and that the handler is alive.
//!
//! Only said, never taken back: a handler that ends leaves its VMs running. Who reads the heartbeat sees that it is old.

use std::time::Duration;

use api::names::{annotations, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use crate::error::chain;

/// As KubeVirt's.
const PERIOD: Duration = Duration::from_mins(1);
/// The node, or the API server, may not be there yet.
const RETRY: Duration = Duration::from_secs(2);

/// Goes on until it is dropped.
pub async fn beat(client: Client, node: &str) {
    let nodes: Api<Node> = Api::all(client);
    loop {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = json!({ "metadata": {
            "labels": { labels::SCHEDULABLE: "true" },
            "annotations": { annotations::HEARTBEAT: now },
        } });
        let written = nodes.patch_metadata(node, &PatchParams::default(), &Patch::Merge(patch)).await;
        let pause = match written {
            Ok(_) => PERIOD,
            Err(cause) => {
                tracing::warn!(node, cause = chain(&cause), "the heartbeat cannot be written; trying again");
                RETRY
            }
        };
        sleep(pause).await;
    }
}
