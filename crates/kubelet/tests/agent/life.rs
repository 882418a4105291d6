//! Pods from their start to their end.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, LogParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, condition, container, phase, run, script, sleeper, status, waiting};
use crate::fixture::{eventually, isolated};

#[test]
fn a_pod_runs_to_its_end() {
    isolated("life::a_pod_runs_to_its_end", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = script("job", "ip -4 addr show dev eth0; echo bye > /dev/termination-log");
        pod["spec"]["restartPolicy"] = json!("Never");
        cluster.create(pod).await;
        let pod = cluster.pod("job", "succeeded", |pod| phase(pod) == "Succeeded").await;
        let main = container(&pod, "main");
        let ended = main.state.unwrap().terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (0, Some("Completed")));
        assert_eq!(ended.message.as_deref(), Some("bye\n"));
        assert!(main.container_id.unwrap().starts_with("runc://"));
        assert!(!main.ready);
        assert!(status(&pod).pod_ip.unwrap().starts_with("10.88.0."));
        assert_eq!(status(&pod).host_ip.as_deref(), Some("127.0.0.1"));
        assert_eq!(condition(&pod, "Initialized"), "True");
        assert_eq!(condition(&pod, "Ready"), "False");
        for reason in ["Pulled", "Created", "Started"] {
            cluster.event("job", &[reason]).await;
        }
        // It is done: its address is free, although it is still there to be looked at.
        eventually("the address is free", || cluster.leases("pods").is_empty()).await;
        cluster.delete("job", &DeleteParams::default()).await;
    });
}

#[test]
fn a_failed_pod_says_why() {
    isolated("life::a_failed_pod_says_why", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = script("job", "echo the disk is full; exit 3");
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        cluster.create(pod).await;
        let pod = cluster.pod("job", "failed", |pod| phase(pod) == "Failed").await;
        let ended = container(&pod, "main").state.unwrap().terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
        assert_eq!(ended.message.as_deref(), Some("the disk is full\n"));
        cluster.delete("job", &DeleteParams::default()).await;
    });
}

#[test]
fn init_containers_come_first_and_in_order() {
    isolated("life::init_containers_come_first_and_in_order", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = sleeper("app");
        let init = |name: &str, text: &str| json!({ "name": name, "image": "host", "command": ["/bin/sh", "-c", text] });
        let mut sidecar = init("sidecar", "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done");
        sidecar["restartPolicy"] = json!("Always");
        pod["spec"]["initContainers"] = json!([init("one", "exit 0"), sidecar, init("two", "exit 0")]);
        cluster.create(pod).await;
        let pod = cluster.running("app").await;
        let ended = |name: &str| container(&pod, name).state.unwrap().terminated.unwrap();
        let since = |name: &str| container(&pod, name).state.unwrap().running.unwrap().started_at.unwrap();
        assert!(ended("one").finished_at.unwrap() <= since("sidecar"));
        assert!(since("sidecar") <= ended("two").started_at.unwrap());
        assert!(ended("two").finished_at.unwrap() <= since("main"));
        assert!(container(&pod, "sidecar").ready);
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

#[test]
fn a_container_that_fails_again_and_again_waits() {
    isolated("life::a_container_that_fails_again_and_again_waits", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.create(script("flaky", "exit 1")).await;
        let pod = cluster
            .pod("flaky", "waiting for its next start", |pod| waiting(pod, "main") == "CrashLoopBackOff")
            .await;
        let main = container(&pod, "main");
        assert_eq!(main.restart_count, 1, "the first restart is at once");
        assert_eq!(main.last_state.unwrap().terminated.unwrap().exit_code, 1);
        assert_eq!(phase(&pod), "Running");
        cluster.event("flaky", &["BackOff", "main"]).await;
        let pod =
            cluster.pod("flaky", "started again", |pod| container(pod, "main").restart_count == 2).await;
        let ended = container(&pod, "main").last_state.and_then(|state| state.terminated);
        assert!(ended.is_some_and(|ended| ended.exit_code == 1));
        cluster.delete("flaky", &DeleteParams::default()).await;
    });
}

#[test]
fn a_deleted_pod_ends_in_peace() {
    isolated("life::a_deleted_pod_ends_in_peace", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = script(
            "app",
            "trap 'sleep 1; echo done > /mark/done; exit 0' TERM; while :; do sleep 1000 & wait; done",
        );
        let mark = cluster.path("mark");
        std::fs::create_dir_all(&mark).unwrap();
        pod["spec"]["volumes"] = json!([{ "name": "mark", "hostPath": { "path": mark } }]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "mark", "mountPath": "/mark" }]);
        cluster.create(pod).await;
        cluster.running("app").await;
        cluster.delete("app", &DeleteParams::default()).await;
        assert_eq!(std::fs::read_to_string(mark.join("done")).unwrap(), "done\n", "it was given its time");
        assert!(cluster.leases("pods").is_empty(), "its address is free");
        cluster.event("app", &["Killing", "main"]).await;
    });
}

#[test]
fn a_pod_that_does_not_listen_is_killed() {
    isolated("life::a_pod_that_does_not_listen_is_killed", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.create(script("deaf", "trap '' TERM; while :; do sleep 1; done")).await;
        cluster.running("deaf").await;
        cluster.delete("deaf", &DeleteParams::default().grace_period(1)).await;
    });
}

#[test]
fn a_pod_that_vanished_is_ended_too() {
    isolated("life::a_pod_that_vanished_is_ended_too", |node| async {
        let cluster = Cluster::start(node).await;
        let pod = cluster.create(sleeper("app")).await;
        cluster.running("app").await;
        cluster.delete("app", &DeleteParams::default().grace_period(0)).await;
        let netns = cluster.path("netns").join(pod.metadata.uid.unwrap());
        eventually("its network is gone", || !netns.exists() && cluster.leases("pods").is_empty()).await;
        let logs = cluster.path("state/logs");
        eventually("its logs are gone", || {
            std::fs::read_dir(&logs).is_ok_and(|mut files| files.next().is_none())
        })
        .await;
    });
}

#[test]
fn an_unknown_image_is_waited_for() {
    isolated("life::an_unknown_image_is_waited_for", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = sleeper("app");
        pod["spec"]["containers"][0]["image"] = json!("shop/app:1");
        cluster.create(pod).await;
        let pod = cluster
            .pod("app", "waiting for its image", |pod| waiting(pod, "main") == "ErrImageNeverPull")
            .await;
        assert_eq!(phase(&pod), "Pending");
        cluster.event("app", &["Failed", "shop/app:1"]).await;
        kubelet::images::Images::at(cluster.path("images"))
            .register("shop/app:1", std::path::Path::new("/"))
            .unwrap();
        let pod = cluster.running("app").await;
        assert_eq!(container(&pod, "main").restart_count, 0);
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

#[test]
fn a_pod_on_the_nodes_network_has_the_nodes_address() {
    isolated("life::a_pod_on_the_nodes_network_has_the_nodes_address", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = sleeper("app");
        pod["spec"]["hostNetwork"] = json!(true);
        cluster.create(pod).await;
        let pod = cluster.running("app").await;
        assert_eq!(status(&pod).pod_ip.as_deref(), Some("127.0.0.1"));
        assert!(cluster.leases("pods").is_empty());
        assert!(!run("ip", &["link"]).contains("veth"), "nothing was made for it");
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

#[test]
fn a_container_has_what_its_pod_promises() {
    isolated("life::a_container_has_what_its_pod_promises", |node| async {
        let cluster = Cluster::start(node).await;
        let text = "env | sort; cat /etc/hosts /etc/hostname /config/greeting; test -s $TOKEN && echo token";
        let mut pod = script("job", text);
        pod["spec"]["restartPolicy"] = json!("Never");
        pod["spec"]["containers"][0]["env"] = json!([
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            { "name": "WHERE", "value": "$(IP) on $(NODE)" },
            { "name": "TOKEN", "value": "/token/token" },
        ]);
        pod["spec"]["volumes"] = json!([
            { "name": "config", "configMap": { "name": "greetings" } },
            { "name": "token", "projected": { "sources": [{ "serviceAccountToken": { "path": "token" } }] } },
        ]);
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "config", "mountPath": "/config" }, { "name": "token", "mountPath": "/token" }]);
        cluster.create(pod).await;
        cluster.event("job", &["FailedMount", "greetings"]).await;
        let map = json!({ "metadata": { "name": "greetings" }, "data": { "greeting": "hello\n" } });
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        let pod = cluster.pod("job", "succeeded", |pod| phase(pod) == "Succeeded").await;
        let log = cluster.pods().logs("job", &LogParams::default()).await.unwrap();
        let ip = status(&pod).pod_ip.unwrap();
        for line in [
            format!("WHERE={ip} on node1"),
            "KUBERNETES_SERVICE_HOST=127.0.0.1".to_owned(),
            format!("{ip}\tjob"),
            "job".to_owned(),
            "hello".to_owned(),
            "token".to_owned(),
        ] {
            assert!(log.lines().any(|known| known == line), "{line:?} is not in:\n{log}");
        }
        cluster.delete("job", &DeleteParams::default()).await;
    });
}
