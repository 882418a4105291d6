//! Pods get an account, and a way to use it: what Kubernetes' admission of the same name does.

use serde_json::{Value, json};

use super::Registry;
use crate::kinds::Kind;
use crate::object;
use crate::status::{ApiError, ApiResult};

/// Where clients in a pod look for their token.
const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour, and a little, by which tokens that were not asked for are told apart.
const LIFE: u64 = 3607;

/// Gives a new pod its account, and its containers the account's token unless someone does not want it.
pub(super) fn admit(registry: &Registry, kind: &Kind, pod: &mut Value) -> ApiResult<()> {
    if kind.storage.as_ref() != "pods" || !registry.service_accounts {
        return Ok(());
    }
    let (namespace, name) = (object::namespace(pod).to_owned(), object::name(pod).to_owned());
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let account = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or("default").to_owned();
    let view = registry.store.view();
    let stored = view.get("serviceaccounts", &super::key(&namespace, &account)).map(|stored| stored.value());
    let Some(stored) = stored else {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        );
        return Err(ApiError::forbidden("", "pods", &name, &why));
    };
    spec.insert("serviceAccountName".into(), json!(account));
    spec.insert("serviceAccount".into(), json!(account));
    let wanted = spec.get("automountServiceAccountToken").or(stored.get("automountServiceAccountToken"));
    if wanted == Some(&Value::Bool(false)) {
        return Ok(());
    }
    let volume = format!("kube-api-access-{}", super::write::suffix());
    let mut mounted = false;
    for containers in ["initContainers", "containers"] {
        let containers = spec.get_mut(containers).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == PLACE) {
                mounts.push(json!({ "name": volume, "mountPath": PLACE, "readOnly": true }));
                mounted = true;
            }
        }
    }
    if mounted {
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(token_volume(&volume));
        }
    }
    Ok(())
}

fn token_volume(name: &str) -> Value {
    json!({ "name": name, "projected": { "defaultMode": 0o644, "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": LIFE } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [
            { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
        ] } },
    ] } })
}
