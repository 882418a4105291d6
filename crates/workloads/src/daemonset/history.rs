//! The templates that a DaemonSet had: one ControllerRevision each, as `kubectl rollout history` and `undo` read them.
//!
//! Pure: which revision is the current one, which number it has, and which are too old to keep.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::template::HASH;
use crate::owner::template_hash;

/// A patch that makes the set's template what it is now.
fn snapshot(set: &DaemonSet) -> Value {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// What must be done so that the set's template has a revision, the newest one.
#[derive(Debug)]
pub enum Current {
    Is(Arc<ControllerRevision>),
    /// The template was there before: its revision gets the newest number.
    Renumber(Arc<ControllerRevision>, i64),
    Create(Box<ControllerRevision>),
}

pub fn current(set: &DaemonSet, revisions: &[Arc<ControllerRevision>]) -> Current {
    let data = snapshot(set);
    let same =
        |revision: &&Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|known| known.0 == data);
    let newest = revisions.iter().map(|revision| revision.revision).max().unwrap_or_default();
    match revisions.iter().filter(same).max_by_key(|revision| revision.revision) {
        Some(found) if found.revision == newest => Current::Is(found.clone()),
        Some(found) => Current::Renumber(found.clone(), newest + 1),
        None => Current::Create(Box::new(create(set, data, newest + 1))),
    }
}

fn create(set: &DaemonSet, data: Value, revision: i64) -> ControllerRevision {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&template, collisions);
    let mut labels = template.metadata.and_then(|meta| meta.labels).unwrap_or_default();
    labels.insert(HASH.into(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", set.name_any())),
            namespace: set.namespace(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: set.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

pub fn hash_of(revision: &ControllerRevision) -> &str {
    revision.metadata.labels.as_ref().and_then(|labels| labels.get(HASH)).map_or("", String::as_str)
}

/// Revisions beyond the limit, oldest first; never one that a pod is of, nor the current one.
pub fn expired(
    revisions: &[Arc<ControllerRevision>],
    current: &str,
    used: &BTreeSet<&str>,
    limit: usize,
) -> Vec<Arc<ControllerRevision>> {
    let is_free = |revision: &&Arc<ControllerRevision>| {
        revision.name_any() != current && !used.contains(hash_of(revision))
    };
    let mut free: Vec<_> = revisions.iter().filter(is_free).cloned().collect();
    free.sort_by_key(|revision| revision.revision);
    free.truncate(free.len().saturating_sub(limit));
    free
}
