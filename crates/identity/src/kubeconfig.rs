//! How a client finds a Kubernetes API server and shows who it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::Identity;

/// The kubeconfig of one user at one server: a secret. It is JSON, which every reader of YAML reads.
pub fn kubeconfig(context: &str, server: &str, authority: &str, user: &str, identity: &Identity) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context, "preferences": {},
        "clusters": [{ "name": context, "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{ "name": user, "user": {
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }}],
        "contexts": [{ "name": context, "context": { "cluster": context, "user": user } }],
    });
    format!("{config:#}\n")
}
