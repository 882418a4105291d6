//! Pods get nodes, or say why not.

use serde_json::{Value, json};

use crate::support::{Cluster, SPACE};

fn asking(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

#[tokio::test]
async fn a_pod_goes_where_it_may() {
    let cluster = Cluster::new(&["a", "b"]).await;
    cluster.add_node("c", json!({"metadata": {"labels": {"disk": "fast"}}})).await;
    cluster.pod("p", json!({"spec": {"nodeSelector": {"disk": "fast"}}})).await;
    assert_eq!(cluster.node_of("p").await, "c");
}

#[tokio::test]
async fn a_pod_for_which_there_is_no_node_says_why_and_goes_when_there_is() {
    let cluster = Cluster::new(&["a", "b", "c"]).await;
    cluster.patch_node("a", json!({"spec": {"unschedulable": true}})).await;
    cluster.pod("p", asking("5")).await;
    let expected = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.";
    testkit::eventually("the reason", async || {
        let (reason, message) = cluster.waits_because("p").await;
        (reason == "Unschedulable" && message == expected).then_some(())
    })
    .await;
    let room = json!({"cpu": "8", "memory": "8Gi", "pods": "10"});
    cluster.add_node("d", json!({"status": {"capacity": room, "allocatable": room}})).await;
    assert_eq!(cluster.node_of("p").await, "d");
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(cluster.client.clone(), SPACE);
    testkit::eventually("both events", async || {
        let events = events.list(&kube::api::ListParams::default()).await.unwrap();
        let has = |reason: &str, note: &str| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.note.as_deref().is_some_and(|text| text.contains(note))
            })
        };
        (has("FailedScheduling", expected) && has("Scheduled", "Successfully assigned default/p to d"))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn pods_do_not_share_what_only_one_can_have() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let port = json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]}});
    for name in ["p", "q", "r"] {
        cluster.pod(name, port.clone()).await;
    }
    assert_ne!(cluster.node_of("p").await, cluster.node_of("q").await);
    let (_, message) = cluster.waits_because("r").await;
    assert_eq!(
        message,
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    );
}

#[tokio::test]
async fn a_gated_pod_waits_until_its_gates_are_gone() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", json!({"spec": {"schedulingGates": [{"name": "x.io/not-yet"}]}})).await;
    assert_eq!(cluster.waits_because("p").await.0, "SchedulingGated");
    cluster.patch::<k8s_openapi::api::core::v1::Pod>("p", json!({"spec": {"schedulingGates": []}})).await;
    assert_eq!(cluster.node_of("p").await, "a");
}

#[tokio::test]
async fn the_more_important_pod_gets_the_last_place() {
    let cluster = Cluster::new(&[]).await;
    cluster.pod("common", asking("3")).await;
    let mut important = asking("3");
    important["spec"]["priorityClassName"] = json!("system-node-critical");
    cluster.pod("important", important).await;
    cluster.waits_because("common").await;
    cluster.add_node("a", json!({})).await;
    assert_eq!(cluster.node_of("important").await, "a");
    let (_, message) = cluster.waits_because("common").await;
    assert!(message.starts_with("0/1 nodes are available: 1 "), "{message}");
}

#[tokio::test]
async fn another_schedulers_pod_is_left_alone() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("theirs", json!({"spec": {"schedulerName": "other"}})).await;
    cluster.pod("ours", json!({})).await;
    assert_eq!(cluster.node_of("ours").await, "a");
    let theirs = cluster.api::<k8s_openapi::api::core::v1::Pod>().get("theirs").await.unwrap();
    assert_eq!(theirs.spec.unwrap().node_name, None);
}

#[tokio::test]
async fn the_same_reason_again_counts_up_one_event() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.pod("p", json!({"spec": {"nodeSelector": {"no": "where"}}})).await;
    let (_, first) = cluster.waits_because("p").await;
    cluster.patch_node("a", json!({"spec": {"unschedulable": true}})).await;
    testkit::eventually("another reason", async || {
        (cluster.waits_because("p").await.1 != first).then_some(())
    })
    .await;
    cluster.patch_node("a", json!({"spec": {"unschedulable": null}})).await;
    testkit::eventually("two events, one of them twice", async || {
        let events = cluster.api::<k8s_openapi::api::events::v1::Event>();
        let events = events.list(&kube::api::ListParams::default()).await.unwrap();
        let told: Vec<_> =
            events.iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling")).collect();
        let again = told.iter().find(|event| event.note.as_ref() == Some(&first))?.series.as_ref()?.count;
        (told.len() == 2 && again == 2).then_some(())
    })
    .await;
}
