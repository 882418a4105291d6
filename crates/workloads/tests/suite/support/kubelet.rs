//! What a node's agent does, without a node: leases are renewed, pods run and are ready, deleted pods end.
//!
//! Pods of the image `broken` run but are never ready, those of `fails` end at once. A node that is switched off does
//! nothing more: neither for its pods nor for its lease.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub struct Kubelet {
    alive: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    pub fn start(client: Client) -> Self {
        let alive = Arc::new(Mutex::new(BTreeSet::<String>::new()));
        let nodes = alive.clone();
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(10));
            let mut renewal = 0_u32;
            loop {
                tick.tick().await;
                let alive = nodes.lock().unwrap().clone();
                if renewal.is_multiple_of(25) {
                    for node in &alive {
                        renew(&client, node).await;
                    }
                }
                renewal += 1;
                let pods: Api<Pod> = Api::all(client.clone());
                for pod in pods.list(&ListParams::default()).await.unwrap() {
                    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
                    if alive.contains(&node) {
                        attend(&client, &pod).await;
                    }
                }
            }
        });
        Self { alive, task }
    }

    pub fn kill(&self, node: &str) {
        self.alive.lock().unwrap().remove(node);
    }

    pub fn revive(&self, node: &str) {
        self.alive.lock().unwrap().insert(node.to_owned());
    }
}

async fn renew(client: &Client, node: &str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node},
        "spec": {"holderIdentity": node, "renewTime": format!("{:.6}", Timestamp::now()), "leaseDurationSeconds": 40},
    });
    leases.patch(node, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(known) = nodes.get_opt(node).await.unwrap() else { return };
    let ready =
        |known: &&k8s_openapi::api::core::v1::NodeCondition| known.type_ == "Ready" && known.status == "True";
    if known.status.unwrap_or_default().conditions.iter().flatten().find(ready).is_none() {
        let now = Timestamp::now().to_string();
        let status = json!({"status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }]}});
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    }
}

async fn attend(client: &Client, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        // It may be gone already.
        let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        return;
    }
    let image = pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let wanted = if image == "fails" { "Failed" } else { "Running" };
    let is_ready = image != "broken" && image != "fails";
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let shown = conditions.iter().any(|known| known.type_ == "Ready" && (known.status == "True") == is_ready);
    if phase == wanted && shown {
        return;
    }
    let now = Timestamp::now().to_string();
    let status: Value = json!({"status": {
        "phase": wanted, "podIP": address(&name), "podIPs": [{"ip": address(&name)}],
        "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }, "reason": null, "lastTransitionTime": now}],
        "containerStatuses": [{
            "name": "c", "image": image, "imageID": image, "ready": is_ready, "restartCount": 0, "state": {"running": {"startedAt": now}},
        }],
    }});
    // It may be gone already.
    let _ = pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await;
}

fn address(name: &str) -> String {
    let sum = name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [_, _, high, low] = sum.to_be_bytes();
    format!("10.1.{high}.{low}")
}
