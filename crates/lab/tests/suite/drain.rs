//! `kubectl drain` on the lab: pods move, and a webhook that says "not now" is heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use testkit::{TestLab, Webhook};

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 4
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: host
        command: [sleep, infinity]
";

/// How often the webhook refuses an eviction before it lets them pass.
const REFUSALS: usize = 3;

fn nodes_of(lab: &TestLab, label: &str) -> Vec<String> {
    let path = "jsonpath={range .items[*]}{.spec.nodeName}{\"\\n\"}{end}";
    let said =
        lab.kubectl_ok(&["get", "pods", "-l", label, "--field-selector=status.phase=Running", "-o", path]);
    said.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_moves_pods_away_and_honours_a_webhook_that_refuses() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 2 }]");
    lab.apply(WEB);
    lab.kubectl_ok(&["rollout", "status", "deploy/web", "--timeout=60s"]);
    assert!(nodes_of(&lab, "app=web").contains(&"node-1".to_owned()));

    // The API server is on the fabric, and so must be whom it calls.
    let fabric = net::Namespace::of_process(lab.processes("lab init")[0].try_into().unwrap()).unwrap();
    let socket = fabric.run(|| std::net::TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_nonblocking(true).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let webhook = Webhook::serve_on(tokio::net::TcpListener::from_std(socket).unwrap(), move |_| {
        if count.fetch_add(1, Ordering::SeqCst) < REFUSALS {
            json!({ "allowed": false, "status": { "code": 429, "message": "the guest is still moving" } })
        } else {
            json!({ "allowed": true })
        }
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "evictions" },
        "webhooks": [{
            "name": "evictions.godwit.dev", "clientConfig": webhook.client_config(),
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"] }],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        }],
    });
    lab.apply(&configuration.to_string());

    let said = tokio::task::spawn_blocking(move || {
        let drained = lab.kubectl(&[
            "drain",
            "node-1",
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=90s",
        ]);
        let text = [drained.stdout, drained.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(drained.status.success(), "{text}");
        lab.kubectl_ok(&["rollout", "status", "deploy/web", "--timeout=60s"]);
        assert_eq!(nodes_of(&lab, "app=web"), vec!["node-2"; 4]);
        let nodes = lab.kubectl_ok(&["get", "node", "node-1", "--no-headers"]);
        assert!(nodes.contains("SchedulingDisabled"), "{nodes}");
        lab.kubectl_ok(&["uncordon", "node-1"]);
        text
    })
    .await
    .unwrap();
    assert!(said.contains("the guest is still moving"), "{said}");
    assert!(asked.load(Ordering::SeqCst) > REFUSALS, "the eviction was tried again after it was refused");
}
