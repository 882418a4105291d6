//! Pods on several networks.

use api::multus::{NetworkAttachmentDefinition, parse_network_status};
use api::names::annotations::{NETWORK_STATUS, NETWORKS};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Cluster, condition, phase, run, sleeper, status, waiting};
use crate::fixture::isolated;

fn networks(pod: &Pod) -> Vec<(String, String, Vec<String>, bool)> {
    let annotation =
        pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(NETWORK_STATUS));
    let statuses = parse_network_status(annotation.map_or("", String::as_str)).unwrap();
    statuses
        .into_iter()
        .map(|status| (status.name, status.interface.unwrap(), status.ips, status.default))
        .collect()
}

fn on_networks(name: &str, networks: &str) -> serde_json::Value {
    let mut pod = sleeper(name);
    pod["metadata"]["annotations"] = json!({ NETWORKS: networks });
    pod
}

/// What `ip` says inside the pod's namespace.
fn ip(cluster: &Cluster, pod: &Pod, arguments: &[&str]) -> String {
    let netns = cluster.path("netns").join(pod.metadata.uid.as_ref().unwrap());
    run("nsenter", &[&[&format!("--net={}", netns.display()), "ip"], arguments].concat())
}

#[test]
fn a_pod_on_two_networks_says_so() {
    isolated("networks::a_pod_on_two_networks_says_so", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.define_networks().await;
        cluster.create_network("data", "data0", "10.99.0.0/24").await;
        let asked =
            r#"[{"name":"data","interface":"migration0","ips":["10.99.0.77/24"],"mac":"02:00:00:00:00:77"}]"#;
        cluster.create(on_networks("vm", asked)).await;
        let pod = cluster.running("vm").await;
        let own = status(&pod).pod_ip.unwrap();
        let expected = [
            ("pods".to_owned(), "eth0".to_owned(), vec![own.clone()], true),
            ("default/data".to_owned(), "migration0".to_owned(), vec!["10.99.0.77".to_owned()], false),
        ];
        assert_eq!(networks(&pod), expected);
        let link = ip(&cluster, &pod, &["-4", "addr", "show", "migration0"]);
        assert!(link.contains("10.99.0.77/24"), "{link}");
        assert!(ip(&cluster, &pod, &["link", "show", "migration0"]).contains("02:00:00:00:00:77"));
        assert!(ip(&cluster, &pod, &["link", "show", "lo"]).contains("LOWER_UP"));
        cluster.delete("vm", &DeleteParams::default()).await;
        assert!(cluster.leases("data").is_empty() && cluster.leases("pods").is_empty());
    });
}

#[test]
fn a_pod_waits_for_a_network_that_is_not_there_yet() {
    isolated("networks::a_pod_waits_for_a_network_that_is_not_there_yet", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.define_networks().await;
        cluster.create(on_networks("vm", "data@net7")).await;
        cluster.event("vm", &["FailedCreatePodSandBox", "default/vm", "default/data"]).await;
        let pod = cluster.get("vm").await;
        assert_eq!((phase(&pod).as_str(), waiting(&pod, "main").as_str()), ("Pending", "ContainerCreating"));
        assert_eq!(condition(&pod, "PodReadyToStartContainers"), "False");
        assert!(cluster.leases("pods").is_empty(), "what was attached before is undone");
        cluster.create_network("data", "data0", "10.99.0.0/24").await;
        let pod = cluster.running("vm").await;
        assert_eq!(networks(&pod)[1].1, "net7");
        cluster.delete("vm", &DeleteParams::default()).await;
    });
}

#[test]
fn a_plugin_that_fails_is_named_and_tried_again() {
    isolated("networks::a_plugin_that_fails_is_named_and_tried_again", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.define_networks().await;
        // Room for one pod: a network, a gateway, a broadcast, and one address.
        cluster.create_network("small", "small0", "10.99.1.0/30").await;
        cluster.create(on_networks("first", "small")).await;
        cluster.running("first").await;
        cluster.create(on_networks("second", "small")).await;
        cluster
            .event(
                "second",
                &["FailedCreatePodSandBox", "default/small", "CNI plugin bridge", "no IP addresses"],
            )
            .await;
        assert_eq!(cluster.leases("pods").len(), 1, "half of the second is undone");
        // The address is free again: the second gets it by itself.
        cluster.delete("first", &DeleteParams::default()).await;
        cluster.running("second").await;
        cluster.delete("second", &DeleteParams::default()).await;
    });
}

#[test]
fn the_default_route_goes_where_the_pod_wants_it() {
    isolated("networks::the_default_route_goes_where_the_pod_wants_it", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.define_networks().await;
        let definitions: Api<NetworkAttachmentDefinition> = Api::default_namespaced(cluster.client.clone());
        cluster.create_network("data", "data0", "10.99.0.0/24").await;
        // Without a default route of its own, which the first network has.
        let config = json!({ "cniVersion": "1.0.0", "type": "bridge", "bridge": "data0", "isGateway": true,
            "ipam": { "type": "host-local", "subnet": "10.99.0.0/24", "dataDir": cluster.path("ipam") } });
        let patch = json!({ "spec": { "config": config.to_string() } });
        definitions.patch("data", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        cluster.create(on_networks("vm", r#"[{"name":"data","default-route":["10.99.0.1"]}]"#)).await;
        let pod = cluster.running("vm").await;
        let routes = ip(&cluster, &pod, &["-4", "route", "show", "default"]);
        assert!(routes.starts_with("default via 10.99.0.1 dev net1"), "{routes}");
        assert_eq!(routes.lines().count(), 1);
        cluster.delete("vm", &DeleteParams::default()).await;
    });
}

#[test]
fn what_a_pod_got_is_in_its_files_when_it_starts() {
    isolated("networks::what_a_pod_got_is_in_its_files_when_it_starts", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = sleeper("vm");
        pod["metadata"]["annotations"] = json!({ "colour": "red" });
        pod["spec"]["containers"][0]["command"] = json!([
            "/bin/sh",
            "-c",
            "grep -q network-status /podinfo/annotations && echo networks are there; trap 'exit 0' TERM
             until grep blue /podinfo/annotations; do sleep 0.1; done; while :; do sleep 1000 & wait; done"
        ]);
        pod["spec"]["volumes"] = json!([{ "name": "podinfo", "downwardAPI": { "items": [
            { "path": "annotations", "fieldRef": { "fieldPath": "metadata.annotations" } }] } }]);
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "podinfo", "mountPath": "/podinfo" }]);
        cluster.create(pod).await;
        cluster.running("vm").await;
        let patch = json!({ "metadata": { "annotations": { "colour": "blue" } } });
        cluster.pods().patch("vm", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let follow = LogParams { follow: true, ..LogParams::default() };
        let log = crate::logs::lines_until(&cluster, "vm", &follow, "blue").await;
        assert_eq!(log, ["networks are there", "colour=\"blue\""]);
        cluster.delete("vm", &DeleteParams::default()).await;
    });
}
