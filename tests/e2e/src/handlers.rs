//! Handlers that are killed, and their certificates.

use std::time::Duration;

use serde_json::{Value, json};

use crate::engine::{Processes, Signal};
use crate::installation::Installation;
use crate::objects::Kind;

/// Nobody listens there, so no request for a certificate is let in.
pub const NO_REQUESTS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: { name: no-requests }
webhooks:
  - name: no-requests.test.dev
    clientConfig: { url: 'https://127.0.0.1:1/' }
    rules: [{ apiGroups: [certificates.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [certificatesigningrequests] }]
    failurePolicy: Fail
    sideEffects: None
    admissionReviewVersions: [v1]
    timeoutSeconds: 5
";

impl Installation {
    /// Sends a signal to the handler of a node.
    pub fn end_handler(&self, node: &str, signal: Signal) {
        let ended = self.end(node, "kubevirt", "kubevirt.io=virt-handler", "godwit", signal);
        assert!(ended > 0, "there is no handler on {node}\n{}", self.describe());
    }

    /// Sends a signal to the processes whose command begins so in pods of a node, and says to how
    /// many.
    pub fn end(&self, node: &str, namespace: &str, label: &str, process: &str, signal: Signal) -> usize {
        let pods = self.pods_on(node, namespace, label);
        let targets: Vec<_> = pods.iter().map(|pod| (pod, Processes::Named(process))).collect();
        self.signal(node, &targets, signal)
    }

    /// How long certificates of handlers that are asked for from now on are valid.
    pub fn certificates_live(&self, life: Option<Duration>) {
        let duration = life.map(|life| format!("{}s", life.as_secs()));
        let patch = json!({ "spec": { "certificateRotateStrategy": { "selfSigned": { "server": { "duration": duration } } } } });
        self.in_installation(&["patch", "kv", "kubevirt", "--type=merge", "-p", &patch.to_string()]);
        self.until_it_is_whole();
    }

    /// How many certificates the handler of a node was given.
    pub fn certificates_of(&self, node: &str) -> usize {
        let all = self.objects(Kind::CertificateSigningRequest, "");
        let begins = format!("virt-handler-{node}-");
        let of_node = |request: &&Value| {
            request["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&begins))
                && request["status"]["certificate"].is_string()
        };
        all.iter().filter(of_node).count()
    }
}
