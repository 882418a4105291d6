//! Probes, asked of real containers.

use kube::api::DeleteParams;
use serde_json::json;

use crate::cluster::{Cluster, container, is_ready, phase, script, sleeper};
use crate::fixture::isolated;

#[test]
fn a_pod_is_ready_when_it_says_so() {
    isolated("probes::a_pod_is_ready_when_it_says_so", |node| async {
        let cluster = Cluster::start(node).await;
        let text = "trap 'exit 0' TERM; sleep 2; touch /tmp/ready; sleep 3; rm /tmp/ready; while :; do sleep 1000 & wait; done";
        let mut pod = script("app", text);
        pod["spec"]["containers"][0]["readinessProbe"] = json!({ "exec": { "command": ["test", "-e", "/tmp/ready"] }, "periodSeconds": 1, "failureThreshold": 1 });
        cluster.create(pod).await;
        let pod = cluster
            .pod("app", "running and not ready", |pod| phase(pod) == "Running" && !is_ready(pod))
            .await;
        assert!(!container(&pod, "main").ready);
        cluster.running("app").await;
        cluster.pod("app", "not ready again", |pod| phase(pod) == "Running" && !is_ready(pod)).await;
        cluster.event("app", &["Unhealthy", "Readiness"]).await;
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

#[test]
fn a_container_that_is_dead_is_started_again() {
    isolated("probes::a_container_that_is_dead_is_started_again", |node| async {
        let cluster = Cluster::start(node).await;
        let mut pod = sleeper("app");
        // It listens only the second time.
        pod["spec"]["containers"][0]["livenessProbe"] =
            json!({ "tcpSocket": { "port": 81 }, "periodSeconds": 1, "failureThreshold": 2 });
        cluster.create(pod).await;
        let pod = cluster.pod("app", "started again", |pod| container(pod, "main").restart_count >= 1).await;
        let last = container(&pod, "main").last_state.unwrap().terminated.unwrap();
        assert_eq!(last.exit_code, 0, "it was asked to end, and did");
        cluster.event("app", &["Unhealthy", "Liveness", "81"]).await;
        cluster.event("app", &["Killing", "liveness"]).await;
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

#[test]
fn a_web_server_is_asked_once_it_has_started() {
    isolated("probes::a_web_server_is_asked_once_it_has_started", |node| async {
        let cluster = Cluster::start(node).await;
        let text = "trap 'exit 0' TERM; sleep 1
            printf '#!/bin/sh\\nread line\\nprintf \"HTTP/1.1 200 OK\\\\r\\\\nContent-Length: 0\\\\r\\\\n\\\\r\\\\n\"\\n' > /tmp/answer
            chmod +x /tmp/answer; cat /tmp/answer; socat TCP-LISTEN:8080,fork,reuseaddr EXEC:/tmp/answer & wait";
        let mut pod = script("web", text);
        let probe = json!({ "httpGet": { "path": "/index.html", "port": "http" }, "periodSeconds": 1, "failureThreshold": 30 });
        pod["spec"]["containers"][0]["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
        pod["spec"]["containers"][0]["startupProbe"] = probe.clone();
        pod["spec"]["containers"][0]["readinessProbe"] = probe;
        cluster.create(pod).await;
        let pod =
            cluster.pod("web", "not started", |pod| container(pod, "main").started == Some(false)).await;
        assert!(!is_ready(&pod));
        let pod = cluster.running("web").await;
        assert_eq!(container(&pod, "main").started, Some(true));
        assert_eq!(container(&pod, "main").restart_count, 0);
        cluster.delete("web", &DeleteParams::default()).await;
    });
}
