//! Whether a request is one of a handler for its own node: a pure judgement on what the API server wrote down about who asked.

use api::names::{labels, objects};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// What a handler needs a certificate for.
const USAGES: [&str; 3] = ["digital signature", "server auth", "client auth"];
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// What is to become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Sign {
        /// The only node that the certificate may name.
        node: String,
    },
    Deny(String),
}

/// Whether nothing is left to be done.
pub fn is_answered(request: &CertificateSigningRequest) -> bool {
    let Some(status) = &request.status else { return false };
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().any(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
    refused || status.certificate.as_ref().is_some_and(|certificate| !certificate.0.is_empty())
}

/// Name and UID of the pod that asks, as the API server knows it from the pod's token.
pub fn pod_of(request: &CertificateSigningRequest) -> Option<(&str, &str)> {
    let extra = request.spec.extra.as_ref()?;
    let one = |key: &str| match extra.get(key).map(Vec::as_slice) {
        Some([value]) => Some(value.as_str()),
        _ => None,
    };
    Some((one(POD_NAME)?, one(POD_UID)?))
}

/// Judges a request. `name`: the one that it was made in; none if it cannot be read. `pod`: the one of the name that asks.
pub fn judge(
    request: &CertificateSigningRequest,
    name: Option<&str>,
    pod: Option<&Pod>,
    namespace: &str,
) -> Verdict {
    match node_of_handler(request, name, pod, namespace) {
        Ok(node) => Verdict::Sign { node },
        Err(why) => Verdict::Deny(why),
    }
}

fn node_of_handler(
    request: &CertificateSigningRequest,
    name: Option<&str>,
    pod: Option<&Pod>,
    namespace: &str,
) -> Result<String, String> {
    let handler = format!("system:serviceaccount:{namespace}:{}", objects::HANDLER);
    let who = request.spec.username.as_deref().unwrap_or_default();
    if who != handler {
        return Err(format!("only {handler} may have such a certificate, and {who} asks"));
    }
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    if let Some(other) = usages.iter().find(|usage| !USAGES.contains(&usage.as_str())) {
        return Err(format!("a handler needs no certificate for {other:?}"));
    }
    let name = name.ok_or("the request cannot be read, or is not signed with its own key")?;
    let (pod_name, uid) = pod_of(request).ok_or("the request does not come from a pod")?;
    let gone = || format!("the pod {namespace}/{pod_name} ({uid}) that asks is not there");
    let pod = pod.filter(|pod| pod.uid().as_deref() == Some(uid)).ok_or_else(gone)?;
    if pod.labels().get(labels::APP).map(String::as_str) != Some(labels::APP_HANDLER) {
        return Err(format!("the pod {namespace}/{pod_name} is not a handler"));
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if node != name {
        return Err(format!("the pod {namespace}/{pod_name} is on node {node:?} and asks for {name:?}"));
    }
    Ok(node.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::{Value, json};

    use super::*;

    fn request() -> Value {
        json!({
            "spec": {
                "request": "", "signerName": "godwit.dev/handler", "usages": ["digital signature", "server auth"],
                "username": "system:serviceaccount:kubevirt:virt-handler",
                "extra": { POD_NAME: ["virt-handler-1"], POD_UID: ["u1"], "other": ["x"] },
            },
        })
    }

    fn pod() -> Value {
        json!({
            "metadata": { "name": "virt-handler-1", "uid": "u1", "labels": { "kubevirt.io": "virt-handler" } },
            "spec": { "nodeName": "node01", "containers": [] },
        })
    }

    fn judged(request: Value, name: Option<&str>, pod: Option<Value>) -> Verdict {
        let request = serde_json::from_value(request).unwrap();
        let pod: Option<Pod> = pod.map(|pod| serde_json::from_value(pod).unwrap());
        judge(&request, name, pod.as_ref(), "kubevirt")
    }

    fn changed(mut value: Value, path: &str, new: Value) -> Value {
        *value.pointer_mut(path).unwrap() = new;
        value
    }

    #[test]
    fn a_handler_gets_a_certificate_for_its_own_node() {
        let verdict = judged(request(), Some("node01"), Some(pod()));
        assert_eq!(verdict, Verdict::Sign { node: "node01".into() });
    }

    #[test]
    fn nobody_else_gets_one_and_no_handler_one_for_another_node() {
        let extra = |extra: Value| changed(request(), "/spec/extra", extra);
        for (request, name, pod, said) in [
            (
                changed(request(), "/spec/username", json!("system:admin")),
                Some("node01"),
                Some(pod()),
                "system:admin",
            ),
            (
                changed(request(), "/spec/username", json!("system:serviceaccount:other:virt-handler")),
                Some("node01"),
                Some(pod()),
                "other",
            ),
            (
                changed(request(), "/spec/usages", json!(["cert sign"])),
                Some("node01"),
                Some(pod()),
                "cert sign",
            ),
            (request(), None, Some(pod()), "cannot be read"),
            (extra(json!({})), Some("node01"), Some(pod()), "not come from a pod"),
            (
                extra(json!({ POD_NAME: ["a", "b"], POD_UID: ["u1"] })),
                Some("node01"),
                Some(pod()),
                "not come",
            ),
            (request(), Some("node01"), None, "is not there"),
            (request(), Some("node01"), Some(changed(pod(), "/metadata/uid", json!("u2"))), "is not there"),
            (
                request(),
                Some("node01"),
                Some(changed(pod(), "/metadata/labels", json!({ "kubevirt.io": "virt-launcher" }))),
                "is not a handler",
            ),
            (request(), Some("node02"), Some(pod()), "asks for \"node02\""),
            (request(), Some(""), Some(changed(pod(), "/spec/nodeName", json!("node01"))), "asks for \"\""),
        ] {
            let verdict = judged(request, name, pod);
            assert!(matches!(&verdict, Verdict::Deny(why) if why.contains(said)), "{said}: {verdict:?}");
        }
    }

    #[test]
    fn a_request_is_answered_once() {
        let with = |status: Value| -> CertificateSigningRequest {
            let mut request = request();
            request["status"] = status;
            serde_json::from_value(request).unwrap()
        };
        let condition = |type_: &str| json!([{ "type": type_, "status": "True" }]);
        assert!(!is_answered(&with(json!({}))));
        assert!(
            !is_answered(&with(json!({ "conditions": condition("Approved") }))),
            "the certificate is missing"
        );
        assert!(is_answered(&with(json!({ "conditions": condition("Denied") }))));
        assert!(is_answered(&with(json!({ "certificate": "UEVN" }))));
    }
}
