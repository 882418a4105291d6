//! The ReplicaSets of a Deployment: which is the new one, which number its template has, what it looks like. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};

use super::rollout::Bounds;
use crate::owner::{amount, template_hash};
use crate::pods;

pub const HASH: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

pub type Annotations = BTreeMap<String, String>;

pub fn desired(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub fn recreates(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

pub fn bounds(deployment: &Deployment) -> Bounds {
    let desired = desired(deployment);
    if recreates(deployment) {
        return Bounds { desired, max_surge: 0, max_unavailable: desired };
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let numbers = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = amount(numbers.and_then(|numbers| numbers.max_surge.as_ref()), desired, true);
    let unavailable = amount(numbers.and_then(|numbers| numbers.max_unavailable.as_ref()), desired, false);
    Bounds::new(desired, surge, unavailable)
}

fn template(deployment: &Deployment) -> PodTemplateSpec {
    deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default()
}

/// The template of a set as the Deployment had it.
fn original(set: &ReplicaSet) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(HASH);
    }
    template
}

/// The set of the template as it is now, if there is one; the oldest, if there are several.
pub fn newest<'a>(deployment: &Deployment, sets: &'a [Arc<ReplicaSet>]) -> Option<&'a Arc<ReplicaSet>> {
    let wanted = template(deployment);
    let age =
        |set: &&Arc<ReplicaSet>| (pods::created(set.metadata.creation_timestamp.as_ref()), set.name_any());
    sets.iter().filter(|set| original(set) == wanted).min_by_key(age)
}

/// Whether a set is of the template as it is now.
pub fn is_of(deployment: &Deployment, set: &ReplicaSet) -> bool {
    original(set) == template(deployment)
}

pub fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|number| number.parse().ok()).unwrap_or_default()
}

pub fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// What a set says of its Deployment, so that scaling can be told from rolling out.
pub fn size_annotations(deployment: &Deployment) -> [(String, String); 2] {
    let bounds = bounds(deployment);
    [(DESIRED.into(), bounds.desired.to_string()), (MAXIMUM.into(), bounds.most().to_string())]
}

/// The annotations of the new set: those of the Deployment, its number and its size.
pub fn annotations(deployment: &Deployment, set: Option<&ReplicaSet>, number: i64) -> Annotations {
    let own = [REVISION, DESIRED, MAXIMUM, HISTORY, LAST_APPLIED, ROLLBACK];
    let mut all = set.map(|set| set.annotations().clone()).unwrap_or_default();
    let given = deployment.annotations().iter().filter(|(key, _)| !own.contains(&key.as_str()));
    all.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    if let Some(was) = set.map(revision).filter(|was| *was > 0 && *was != number) {
        let past = all.get(HISTORY).map(|past| format!("{past},")).unwrap_or_default();
        all.insert(HISTORY.into(), format!("{past}{was}"));
    }
    all.insert(REVISION.into(), number.to_string());
    all.extend(size_annotations(deployment));
    all
}

/// A set for the template as it is now, without pods yet.
pub fn create(deployment: &Deployment, number: i64) -> ReplicaSet {
    let mut template = template(deployment);
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&template, collisions);
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
    selector.match_labels.get_or_insert_default().insert(HASH.into(), hash.clone());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.name_any())),
            namespace: deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations(deployment, None, number)),
            owner_references: deployment.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds),
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// Empty old sets beyond the limit, the oldest template first.
pub fn expired(deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let limit = deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let is_empty = |set: &&Arc<ReplicaSet>| {
        wanted(set) == 0
            && set.metadata.deletion_timestamp.is_none()
            && set.status.as_ref().is_none_or(|status| status.replicas == 0)
    };
    let mut empty: Vec<_> = old.iter().filter(is_empty).cloned().collect();
    empty.sort_by_key(|set| revision(set));
    empty.truncate(empty.len().saturating_sub(limit.try_into().unwrap_or_default()));
    empty
}
