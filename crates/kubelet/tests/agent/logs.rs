//! Logs through the API server, as `kubectl logs` reads them.

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, LogParams};
use serde_json::json;

use crate::cluster::{Cluster, container, phase, script};
use crate::fixture::{LONG, isolated};

/// The lines of a log up to the first that holds this text.
pub async fn lines_until(cluster: &Cluster, pod: &str, parameters: &LogParams, text: &str) -> Vec<String> {
    let reading = async {
        let mut lines = cluster.pods().log_stream(pod, parameters).await.unwrap().lines();
        let mut read = Vec::new();
        while let Some(line) = lines.try_next().await.unwrap() {
            read.push(line);
            if read.last().unwrap().contains(text) {
                return read;
            }
        }
        panic!("the log ended without {text:?}: {read:?}");
    };
    tokio::time::timeout(LONG, reading).await.unwrap_or_else(|_| panic!("{text:?} never came"))
}

#[test]
fn a_log_is_read_and_followed() {
    isolated("logs::a_log_is_read_and_followed", |node| async {
        let cluster = Cluster::start(node).await;
        let mark = cluster.path("kubelet/go-on");
        let text = format!(
            "echo one; echo two >&2; until [ -e {} ]; do sleep 0.1; done; echo three",
            mark.display()
        );
        let mut pod = script("job", &text);
        pod["spec"]["restartPolicy"] = json!("Never");
        // The node's root is the image's: what the node makes in /run the container does not see, but this it does.
        pod["spec"]["volumes"] = json!([{ "name": "node", "hostPath": { "path": cluster.path("kubelet") } }]);
        pod["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "node", "mountPath": cluster.path("kubelet") }]);
        cluster.create(pod).await;
        cluster.running("job").await;
        let follow = LogParams { follow: true, ..LogParams::default() };
        assert_eq!(lines_until(&cluster, "job", &follow, "two").await, ["one", "two"]);

        let following = cluster.pods().log_stream("job", &follow).await.unwrap().lines();
        std::fs::write(mark, "").unwrap();
        let all: Vec<String> =
            tokio::time::timeout(LONG, following.try_collect()).await.expect("it ends").unwrap();
        assert_eq!(all, ["one", "two", "three"], "a log that is followed ends with its container");
        let tail = LogParams { tail_lines: Some(1), ..LogParams::default() };
        assert_eq!(cluster.pods().logs("job", &tail).await.unwrap(), "three\n");
        let stamped = LogParams { timestamps: true, tail_lines: Some(1), ..LogParams::default() };
        let line = cluster.pods().logs("job", &stamped).await.unwrap();
        assert!(line.starts_with("20") && line.ends_with("Z three\n"), "{line}");
        cluster.delete("job", &DeleteParams::default()).await;
    });
}

#[test]
fn the_log_of_the_run_before_is_kept() {
    isolated("logs::the_log_of_the_run_before_is_kept", |node| async {
        let cluster = Cluster::start(node).await;
        cluster.create(script("flaky", "echo \"$HOSTNAME died\"; exit 1")).await;
        cluster.pod("flaky", "started again", |pod| container(pod, "main").restart_count == 1).await;
        let previous = LogParams { previous: true, ..LogParams::default() };
        assert_eq!(cluster.pods().logs("flaky", &previous).await.unwrap(), "flaky died\n");
        let pod = cluster.get("flaky").await;
        assert_eq!(phase(&pod), "Running");
        cluster.delete("flaky", &DeleteParams::default()).await;
    });
}

#[test]
fn nobody_reads_without_a_certificate() {
    isolated("logs::nobody_reads_without_a_certificate", |node| async {
        let cluster = Cluster::start(node).await;
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(cluster.client.clone());
        let port = |node: Option<&k8s_openapi::api::core::v1::Node>| {
            Some(node?.status.as_ref()?.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port)
        };
        let known = kube::runtime::wait::await_condition(nodes, crate::cluster::NODE, |node: Option<&_>| {
            port(node).is_some()
        });
        let node = tokio::time::timeout(LONG, known).await.unwrap().unwrap();
        let url = format!("https://127.0.0.1:{}/pods", port(node.as_ref()).unwrap());
        let curl = std::process::Command::new("curl")
            .args(["--insecure", "--silent", "--show-error", &url])
            .output()
            .unwrap();
        assert!(!curl.status.success(), "{}", String::from_utf8_lossy(&curl.stdout));
        assert!(curl.stdout.is_empty());
    });
}
