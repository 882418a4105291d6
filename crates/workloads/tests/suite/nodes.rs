//! Nodes come, go silent, are cordoned and deleted.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testkit::eventually;
use workloads::PodNetwork;

use crate::support::{Cluster, is_leaving, soon};

async fn taints(cluster: &Cluster, node: &str) -> Vec<(String, String)> {
    let taints: Vec<Taint> = cluster.node(node).await.spec.unwrap_or_default().taints.unwrap_or_default();
    let mut taints: Vec<_> = taints.into_iter().map(|taint| (taint.key, taint.effect)).collect();
    taints.sort();
    taints
}

async fn has_taints(cluster: &Cluster, node: &str, wanted: &[(&str, &str)]) {
    let wanted: Vec<(String, String)> =
        wanted.iter().map(|(key, effect)| (format!("node.kubernetes.io/{key}"), (*effect).into())).collect();
    eventually(&format!("{node} to have the taints {wanted:?}"), async || {
        (taints(cluster, node).await == wanted).then_some(())
    })
    .await;
}

fn condition(object: &Value, type_: &str) -> (String, String) {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.into_iter().find(|known| known["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

async fn pod_condition(cluster: &Cluster, pod: &str, type_: &str) -> (String, String) {
    let pod = cluster.api::<Pod>().get(pod).await.unwrap();
    condition(&serde_json::to_value(pod).unwrap(), type_)
}

fn tolerating(seconds: i64) -> Value {
    let toleration = json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!({"spec": {"tolerations": [toleration]}})
}

#[tokio::test]
async fn every_node_gets_its_own_part_of_the_pod_network_and_keeps_it() {
    let networks = vec![
        PodNetwork { range: "10.244.0.0/16".parse().unwrap(), node_prefix: 24 },
        PodNetwork { range: "fd10:244::/48".parse().unwrap(), node_prefix: 64 },
    ];
    let mut cluster =
        Cluster::with(workloads::Options { pod_networks: networks, ..soon() }, &["a", "b"]).await;
    let range = async |cluster: &Cluster, name: &str| {
        eventually("a range", async || cluster.node(name).await.spec?.pod_cidr).await
    };
    assert_eq!(range(&cluster, "a").await, "10.244.0.0/24");
    assert_eq!(range(&cluster, "b").await, "10.244.1.0/24");
    assert_eq!(
        cluster.node("b").await.spec.unwrap().pod_cidrs.unwrap(),
        ["10.244.1.0/24", "fd10:244:0:1::/64"]
    );
    cluster.stop_controllers().await;
    cluster.start_controllers();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    cluster.add_node("c", json!({})).await;
    assert_eq!(range(&cluster, "c").await, "10.244.0.0/24", "what is free is given again");
    assert_eq!(range(&cluster, "b").await, "10.244.1.0/24");
}

#[tokio::test]
async fn a_lost_node_is_marked_and_its_pods_leave_when_their_time_is_up() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("patient", json!({})).await;
    cluster.pod("short", tolerating(1)).await;
    for pod in ["patient", "short"] {
        cluster.node_of(pod).await;
        eventually("the pod to be ready", async || {
            (pod_condition(&cluster, pod, "Ready").await.0 == "True").then_some(())
        })
        .await;
    }
    cluster.kubelet.kill("a");
    has_taints(&cluster, "a", &[("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]).await;
    let node = serde_json::to_value(cluster.node("a").await).unwrap();
    assert_eq!(condition(&node, "Ready"), ("Unknown".into(), "NodeStatusUnknown".into()));
    eventually("the pods not to be ready", async || {
        (pod_condition(&cluster, "patient", "Ready").await == ("False".into(), "NodeNotReady".into()))
            .then_some(())
    })
    .await;
    eventually("the short one to leave", async || {
        is_leaving(&cluster.api::<Pod>().get("short").await.unwrap()).then_some(())
    })
    .await;
    assert_eq!(
        pod_condition(&cluster, "short", "DisruptionTarget").await,
        ("True".into(), "DeletionByTaintManager".into())
    );
    assert!(!is_leaving(&cluster.api::<Pod>().get("patient").await.unwrap()));
    // Nobody else can say that its containers have ended.
    cluster.kubelet.revive("a");
    has_taints(&cluster, "a", &[]).await;
    eventually("the short one to be gone", async || {
        cluster.api::<Pod>().get_opt("short").await.unwrap().is_none().then_some(())
    })
    .await;
    eventually("the patient one to be ready again", async || {
        (pod_condition(&cluster, "patient", "Ready").await.0 == "True").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_leaves_a_lost_node_is_there_until_the_node_is_deleted() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", tolerating(0)).await;
    cluster.node_of("p").await;
    cluster.kubelet.kill("a");
    eventually("the pod to leave", async || {
        is_leaving(&cluster.api::<Pod>().get("p").await.unwrap()).then_some(())
    })
    .await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    assert!(leases.get_opt("a").await.unwrap().is_some());
    assert!(cluster.api::<Pod>().get_opt("p").await.unwrap().is_some());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the pod and the lease to be gone", async || {
        let pod = cluster.api::<Pod>().get_opt("p").await.unwrap();
        (pod.is_none() && leases.get_opt("a").await.unwrap().is_none()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_that_says_it_is_not_ready_gets_no_pods() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.kubelet.kill("a");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "lastHeartbeatTime": jiff::Timestamp::now().to_string()}]}});
    nodes
        .patch_status("a", &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(status))
        .await
        .unwrap();
    cluster.pod("p", json!({})).await;
    let (_, message) = cluster.waits_because("p").await;
    assert_eq!(
        message,
        "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
    );
    cluster.kubelet.revive("a");
    assert_eq!(cluster.node_of("p").await, "a");
}

#[tokio::test]
async fn a_cordoned_node_keeps_its_pods_and_gets_no_more() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", json!({})).await;
    cluster.node_of("p").await;
    cluster.patch_node("a", json!({"spec": {"unschedulable": true}})).await;
    has_taints(&cluster, "a", &[("unschedulable", "NoSchedule")]).await;
    cluster.pod("q", json!({})).await;
    let (_, message) = cluster.waits_because("q").await;
    assert_eq!(message, "0/1 nodes are available: 1 node(s) were unschedulable.");
    assert!(!is_leaving(&cluster.api::<Pod>().get("p").await.unwrap()));
    cluster.patch_node("a", json!({"spec": {"unschedulable": null}})).await;
    assert_eq!(cluster.node_of("q").await, "a");
    has_taints(&cluster, "a", &[]).await;
}

#[tokio::test]
async fn a_taint_that_executes_drives_out_who_does_not_tolerate_it() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("stays", json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}})).await;
    cluster.pod("goes", json!({})).await;
    cluster.node_of("stays").await;
    cluster.node_of("goes").await;
    cluster.patch_node("a", json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})).await;
    eventually("the pod to be gone", async || {
        cluster.api::<Pod>().get_opt("goes").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(!is_leaving(&cluster.api::<Pod>().get("stays").await.unwrap()));
}

#[tokio::test]
async fn a_replacement_goes_elsewhere_when_a_node_is_lost() {
    let options = workloads::Options { node_grace: Duration::from_secs(2), ..soon() };
    let cluster = Cluster::with(options, &["a", "b"]).await;
    let spec = json!({"replicas": 2, "template": tolerating(1)});
    cluster
        .create::<k8s_openapi::api::apps::v1::ReplicaSet>(crate::support::workload("web", "one", spec))
        .await;
    let placed = async || {
        let pods = cluster.pods().await;
        let nodes: Vec<String> = pods
            .iter()
            .filter(|pod| !is_leaving(pod))
            .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
            .collect();
        nodes
    };
    eventually("one pod on each node", async || {
        let mut nodes = placed().await;
        nodes.sort();
        (nodes == ["a", "b"]).then_some(())
    })
    .await;
    cluster.kubelet.kill("a");
    eventually("both pods on the node that is left", async || (placed().await == ["b", "b"]).then_some(()))
        .await;
}
