//! Services know where their pods are.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, workload};

async fn slices(cluster: &Cluster, service: &str) -> Vec<EndpointSlice> {
    let of = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    cluster.api::<EndpointSlice>().list(&of).await.unwrap().items
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

#[tokio::test]
async fn a_service_lists_its_pods_and_which_are_ready() {
    let cluster = Cluster::new(&["a"]).await;
    let ports = json!([{"name": "http", "containerPort": 8080}]);
    let container = json!([{"name": "c", "image": "one", "ports": ports}]);
    cluster
        .create::<ReplicaSet>(workload(
            "web",
            "one",
            json!({"replicas": 2, "template": {"spec": {"containers": container}}}),
        ))
        .await;
    eventually("both pods: an orphan that comes earlier would be taken for one of them", async || {
        let pods = cluster.api::<Pod>().list(&ListParams::default()).await.unwrap();
        (pods.items.len() == 2).then_some(())
    })
    .await;
    cluster.pod("sick", json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "broken"}]}})).await;
    let port = json!([{"name": "web", "port": 80, "targetPort": "http"}]);
    cluster
        .create::<Service>(
            json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": port}}),
        )
        .await;
    let ready = async |number: usize| {
        eventually("the endpoints", async || {
            let slices = slices(&cluster, "web").await;
            let all: Vec<&Endpoint> =
                slices.iter().flat_map(|slice| slice.endpoints.iter().flatten()).collect();
            (all.iter().filter(|endpoint| is_ready(endpoint)).count() == number).then_some(slices.clone())
        })
        .await
    };
    let found = ready(2).await;
    let named =
        found.iter().find(|slice| slice.ports.as_ref().is_some_and(|ports| !ports.is_empty())).unwrap();
    let port = &named.ports.as_ref().unwrap()[0];
    assert_eq!(
        (port.name.as_deref(), port.port, port.protocol.as_deref()),
        (Some("web"), Some(8080), Some("TCP"))
    );
    assert_eq!(named.owner_references()[0].name, "web");
    let endpoint = &named.endpoints.as_ref().unwrap()[0];
    let pod =
        cluster.api::<Pod>().get(endpoint.target_ref.as_ref().unwrap().name.as_ref().unwrap()).await.unwrap();
    assert_eq!(endpoint.addresses[0], pod.status.unwrap().pod_ip.unwrap());
    assert_eq!(endpoint.node_name.as_deref(), Some("a"));
    cluster.patch::<ReplicaSet>("web", json!({"spec": {"replicas": 1}})).await;
    ready(1).await;
    cluster.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    eventually("the slices to go with the service", async || {
        slices(&cluster, "web").await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn slices_that_others_made_are_left_alone() {
    let cluster = Cluster::new(&["a"]).await;
    cluster.create::<Service>(json!({"metadata": {"name": "own"}, "spec": {"ports": [{"port": 80}]}})).await;
    cluster
        .create::<EndpointSlice>(json!({
            "metadata": {"name": "own-1", "labels": {"kubernetes.io/service-name": "own"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}],
        }))
        .await;
    // What comes after shows that the controller was there.
    cluster
        .create::<Service>(json!({"metadata": {"name": "probe"}, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}))
        .await;
    eventually("the other service's slice", async || {
        (slices(&cluster, "probe").await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(slices(&cluster, "own").await.len(), 1);
}
