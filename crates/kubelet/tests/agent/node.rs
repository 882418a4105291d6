//! The node's own object.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::cluster::{Cluster, NODE};
use crate::fixture::{LONG, isolated};

fn ready(node: &Node) -> (String, String, String) {
    let conditions = node.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap_or_default();
    (ready.status, ready.reason.unwrap_or_default(), ready.message.unwrap_or_default())
}

async fn wait(nodes: &Api<Node>, what: &str, holds: impl Fn(&Node) -> bool) -> Node {
    let waiting = await_condition(nodes.clone(), NODE, |node: Option<&Node>| node.is_some_and(&holds));
    tokio::time::timeout(LONG, waiting)
        .await
        .unwrap_or_else(|_| panic!("the node never was: {what}"))
        .unwrap()
        .unwrap()
}

#[test]
fn a_node_is_ready_once_it_has_a_network() {
    isolated("node::a_node_is_ready_once_it_has_a_network", |node| async {
        let mut cluster = Cluster::without_network(node).await;
        cluster.start_agent();
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let node = wait(&nodes, "not ready", |node| ready(node).0 == "False").await;
        let (_, reason, message) = ready(&node);
        assert_eq!(reason, "KubeletNotReady");
        assert!(message.contains("net.d"), "{message}");
        cluster.write_network();
        let node = wait(&nodes, "ready", |node| ready(node).0 == "True").await;
        let status = node.status.unwrap();
        assert_eq!(status.capacity.unwrap()["cpu"].0, "2");
        assert_eq!(status.addresses.unwrap()[0].address, "127.0.0.1");
        assert!(status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port > 0);
        assert!(status.node_info.unwrap().kubelet_version.starts_with("v1.36.0-godwit"));

        let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
        let renewed = |lease: Option<&Lease>| lease?.spec.clone()?.renew_time;
        let first = await_condition(leases.clone(), NODE, |lease: Option<&Lease>| renewed(lease).is_some());
        let first = tokio::time::timeout(LONG, first).await.unwrap().unwrap().unwrap();
        assert_eq!(first.metadata.owner_references.as_ref().unwrap()[0].name, NODE);
        let then = renewed(Some(&first));
        let next = await_condition(leases, NODE, |lease: Option<&Lease>| renewed(lease) > then);
        tokio::time::timeout(LONG, next).await.expect("the lease is renewed").unwrap();
    });
}

#[test]
fn what_others_say_of_a_node_stays() {
    isolated("node::what_others_say_of_a_node_stays", |node| async {
        let mut cluster = Cluster::start(node).await;
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        wait(&nodes, "ready", |node| ready(node).0 == "True").await;
        let theirs = json!({
            "metadata": { "labels": { "theirs": "1" } },
            "spec": { "unschedulable": true, "taints": [{ "key": "theirs", "effect": "NoSchedule" }] },
        });
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
        cluster.stop_agent().await;
        // A controller that misses the agent gives the node up.
        let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(lost)).await.unwrap();
        cluster.start_agent();
        let node = wait(&nodes, "ready again", |node| ready(node).0 == "True").await;
        let labels = node.metadata.labels.unwrap();
        assert_eq!((labels["theirs"].as_str(), labels["zone"].as_str()), ("1", "a"));
        let spec = node.spec.unwrap();
        assert_eq!(spec.unschedulable, Some(true));
        assert!(spec.taints.unwrap().iter().any(|taint| taint.key == "theirs"));

        // While the agent runs, too: it takes back what is not so, and comes back if it is deleted.
        let lost = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(lost)).await.unwrap();
        let node = wait(&nodes, "ready once more", |node| ready(node).0 == "True").await;
        nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
        wait(&nodes, "there again", |new| new.metadata.uid != node.metadata.uid && ready(new).0 == "True")
            .await;
    });
}
