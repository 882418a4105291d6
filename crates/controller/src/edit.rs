//! Writes that hold only for the object that was looked at: another version or another object of the name is a conflict, and the
//! decision is made anew.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::error::{Error, describe, named};

/// What the reconcilers need of a kind.
pub trait Object: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned> Object for K {}

/// Adds or removes a finalizer; the object as it is then.
pub async fn finalizer<K: Object>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    wanted: bool,
) -> Result<K, Error> {
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|present| present != finalizer);
    if wanted {
        finalizers.push(finalizer.to_owned());
    }
    metadata(api, object, json!({ "finalizers": finalizers })).await
}

/// Sets labels, or takes those without a value off; the object as it is then.
pub async fn labels<K: Object>(
    api: &Api<K>,
    object: &K,
    wanted: &[(&str, Option<&str>)],
) -> Result<K, Error> {
    let labels: serde_json::Map<String, serde_json::Value> = wanted
        .iter()
        .filter(|(name, value)| object.labels().get(*name).map(String::as_str) != *value)
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    if labels.is_empty() {
        return Ok(object.clone());
    }
    metadata(api, object, json!({ "labels": labels })).await
}

/// Sets annotations, or removes those without a value; the object as it is then.
pub async fn annotate<K: Object>(
    api: &Api<K>,
    object: &K,
    annotations: &[(&str, Option<&str>)],
) -> Result<K, Error> {
    let changes: serde_json::Map<_, _> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    metadata(api, object, json!({ "annotations": changes })).await
}

async fn metadata<K: Object>(api: &Api<K>, object: &K, mut change: serde_json::Value) -> Result<K, Error> {
    change["resourceVersion"] = json!(object.resource_version());
    let patch = Patch::Merge(json!({ "metadata": change }));
    api.patch(&object.name_any(), &PatchParams::default(), &patch)
        .await
        .map_err(Error::api("changing", describe(object)))
}

/// Writes the status of an object that has it already.
pub async fn status<K: Object>(api: &Api<K>, object: &K) -> Result<K, Error> {
    api.replace_status(&object.name_any(), &PostParams::default(), object)
        .await
        .map_err(Error::api("writing the status of", describe(object)))
}

/// Writes the status of an object whose kind keeps it beside everything else, as Harvester's kinds do.
pub async fn status_in_object<K: Object>(
    api: &Api<K>,
    object: &K,
    status: &impl Serialize,
) -> Result<(), Error> {
    let version = json!({ "resourceVersion": object.resource_version() });
    let patch = Patch::Merge(json!({ "metadata": version, "status": status }));
    api.patch(&object.name_any(), &PatchParams::default(), &patch)
        .await
        .map_err(Error::api("writing the status of", describe(object)))?;
    Ok(())
}

/// A pod of this name is there already. It is the one that was to be made if it has the same value of this label: the name comes of
/// that, but for five characters.
pub async fn already_made(pods: &Api<Pod>, pod: &Pod, mark: &str) -> Result<(), Error> {
    let there = pods.get_opt(&pod.name_any()).await.map_err(Error::api("reading", describe(pod)))?;
    let ours = there.is_none_or(|there| there.labels().get(mark) == pod.labels().get(mark));
    if ours { Ok(()) } else { Err(Error::PodTaken { object: describe(pod) }) }
}

/// Deletes this very object. One that is gone, or that made room for another of its name, is deleted.
pub async fn delete<K: Object>(api: &Api<K>, name: &str, uid: &str) -> Result<(), Error> {
    let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(exactly), ..DeleteParams::background() };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => Err(Error::api("deleting", named::<K>(api.namespace(), name))(source)),
    }
}
