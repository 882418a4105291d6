//! Stock kubectl against the server and its controllers: what people type, and what they expect to read.

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::support::{Cluster, workload};

struct Kubectl {
    /// Kept for as long as its file is read.
    home: tempfile::TempDir,
}

impl Kubectl {
    async fn new(cluster: &Cluster) -> Self {
        let listening = cluster.server.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("kubeconfig"), &listening.kubeconfig).unwrap();
        tokio::spawn(listening.run(std::future::pending()));
        Self { home }
    }

    async fn run(&self, arguments: &str, input: &str) -> Output {
        let mut child = Command::new(testkit::kubectl())
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("kubectl runs");
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_mins(1), child.wait_with_output()).await;
        ended.unwrap_or_else(|_| panic!("kubectl {arguments} does not end")).unwrap()
    }

    /// What it prints when it succeeds.
    async fn ok(&self, arguments: &str) -> String {
        self.with(arguments, "").await
    }

    async fn with(&self, arguments: &str, input: &str) -> String {
        let output = self.run(arguments, input).await;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn apply(&self, kind: &str, mut object: serde_json::Value) {
        object["apiVersion"] = json!(if kind == "PodDisruptionBudget" { "policy/v1" } else { "apps/v1" });
        object["kind"] = json!(kind);
        self.with("apply -f -", &object.to_string()).await;
    }
}

#[tokio::test]
async fn rollouts_of_a_deployment() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply("Deployment", workload("web", "one", json!({"replicas": 3}))).await;
    let text = kubectl.ok("rollout status deployment/web --timeout=30s").await;
    assert!(text.contains("deployment \"web\" successfully rolled out"), "{text}");
    let text = kubectl.ok("wait --for=condition=Available deployment/web --timeout=30s").await;
    assert!(text.contains("condition met"), "{text}");
    let text = kubectl.ok("get pods -o wide --no-headers").await;
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.contains("1/1") && line.contains("Running")), "{text}");
    assert!(text.contains(" a ") && text.contains(" b "), "spread over the nodes: {text}");

    kubectl.ok("set image deployment/web c=two").await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    kubectl.ok("rollout restart deployment/web").await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    let text = kubectl.ok("rollout history deployment/web").await;
    assert!(["1", "2", "3"].iter().all(|number| text.lines().any(|line| line.starts_with(number))), "{text}");
    kubectl.ok("rollout undo deployment/web --to-revision=1").await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    let text = kubectl.ok("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}").await;
    assert_eq!(text, "one");
    let text = kubectl.ok("rollout history deployment/web").await;
    assert!(
        text.lines().any(|line| line.starts_with('4')) && !text.lines().any(|line| line.starts_with('1')),
        "{text}"
    );

    kubectl.ok("scale deployment/web --replicas=5").await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    let text = kubectl.ok("get deployment web --no-headers").await;
    assert_eq!(text.split_whitespace().collect::<Vec<_>>()[..4], ["web", "5/5", "5", "5"], "{text}");
}

#[tokio::test]
async fn a_rollout_that_fails_is_reported_as_such() {
    let cluster = Cluster::new(&["a"]).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply("Deployment", workload("web", "broken", json!({"progressDeadlineSeconds": 1}))).await;
    let output = kubectl.run("rollout status deployment/web --timeout=30s", "").await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("exceeded its progress deadline"), "{errors}");
}

#[tokio::test]
async fn rollouts_of_a_daemon_set() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply("DaemonSet", workload("agent", "one", json!({}))).await;
    let text = kubectl.ok("rollout status daemonset/agent --timeout=30s").await;
    assert!(text.contains("daemon set \"agent\" successfully rolled out"), "{text}");
    kubectl.ok("set image daemonset/agent c=two").await;
    kubectl.ok("rollout status daemonset/agent --timeout=30s").await;
    let text = kubectl.ok("rollout history daemonset/agent").await;
    assert!(["1", "2"].iter().all(|number| text.lines().any(|line| line.starts_with(number))), "{text}");
    let text = kubectl.ok("rollout history daemonset/agent --revision=1").await;
    assert!(text.contains("one"), "{text}");
    kubectl.ok("rollout undo daemonset/agent").await;
    kubectl.ok("rollout status daemonset/agent --timeout=30s").await;
    let text = kubectl.ok("get pods -o jsonpath={.items[*].spec.containers[*].image}").await;
    assert_eq!(text, "one one");
    let text = kubectl.ok("get daemonset agent --no-headers").await;
    assert_eq!(
        text.split_whitespace().collect::<Vec<_>>()[..6],
        ["agent", "2", "2", "2", "2", "2"],
        "{text}"
    );
}

#[tokio::test]
async fn cordon_and_drain_move_everything_but_daemons_within_the_budget() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply("Deployment", workload("web", "one", json!({"replicas": 2}))).await;
    kubectl.apply("DaemonSet", workload("agent", "one", json!({}))).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    kubectl.apply("PodDisruptionBudget", budget).await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    kubectl.ok("rollout status daemonset/agent --timeout=30s").await;
    kubectl.ok("wait --for=jsonpath={.status.disruptionsAllowed}=1 pdb/web --timeout=30s").await;
    kubectl.ok("cordon a").await;
    let text = kubectl.ok("get nodes --no-headers").await;
    assert!(
        text.lines().any(|line| line.starts_with("a ") && line.contains("Ready,SchedulingDisabled")),
        "{text}"
    );
    let text = kubectl.ok("drain a --ignore-daemonsets --timeout=60s").await;
    assert!(text.contains("node/a drained"), "{text}");
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    let text = kubectl.ok("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}").await;
    assert_eq!(text, "b b");
    let text = kubectl.ok("get pods -l app=agent -o jsonpath={.items[*].spec.nodeName}").await;
    assert_eq!(text.split_whitespace().count(), 2, "{text}");
    kubectl.ok("uncordon a").await;
    let text = kubectl.ok("describe node a").await;
    assert!(
        text.contains("Taints:             <none>") || text.contains("Unschedulable:      false"),
        "{text}"
    );
}

#[tokio::test]
async fn a_drain_waits_for_a_budget_that_allows_nothing() {
    let cluster = Cluster::new(&["a", "b"]).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply("Deployment", workload("web", "one", json!({"replicas": 2}))).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    kubectl.apply("PodDisruptionBudget", budget).await;
    kubectl.ok("rollout status deployment/web --timeout=30s").await;
    kubectl.ok("wait --for=jsonpath={.status.currentHealthy}=2 pdb/web --timeout=30s").await;
    let output = kubectl.run("drain a --timeout=3s", "").await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{errors}");
}
