//! Who controls what: controllers find their objects by owner reference and selector, take orphans in, and let go of
//! what they no longer select. Also the names and numbers that owners of pods share.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::cache::{Cache, Object};
use crate::pods::selects;

pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Pods by the UID of their controller; those without one under the empty string.
pub fn by_controller<K: Object>(objects: &[Arc<K>]) -> HashMap<String, Vec<Arc<K>>> {
    let mut index: HashMap<String, Vec<Arc<K>>> = HashMap::new();
    for object in objects {
        let owner = controller_of(object.meta()).map(|owner| owner.uid.clone()).unwrap_or_default();
        index.entry(owner).or_default().push(object.clone());
    }
    index
}

/// The objects that `owner` controls, after it took in orphans that it selects and let go of others.
pub async fn claim<O: Object, K: Object>(
    owner: &O,
    selector: Option<&LabelSelector>,
    cache: &Cache<K>,
    index: &HashMap<String, Vec<Arc<K>>>,
) -> Result<Vec<Arc<K>>, Error> {
    let uid = owner.uid().unwrap_or_default();
    let is_leaving = owner.meta().deletion_timestamp.is_some();
    let mut mine = Vec::new();
    for object in index.get(&uid).into_iter().flatten() {
        if selects(selector, object.labels()) {
            mine.push(object.clone());
        } else if !is_leaving {
            let left: Vec<_> = object.owner_references().iter().filter(|known| known.uid != uid).collect();
            cache.patch(object, json!({"metadata": {"ownerReferences": left}})).await?;
        }
    }
    let orphans = index.get("").into_iter().flatten().filter(|orphan| {
        !is_leaving
            && orphan.namespace() == owner.namespace()
            && orphan.meta().deletion_timestamp.is_none()
            && selects(selector, orphan.labels())
    });
    for orphan in orphans {
        let mut owners = orphan.owner_references().to_vec();
        owners.extend(owner.controller_owner_ref(&()));
        mine.push(cache.patch(orphan, json!({"metadata": {"ownerReferences": owners}})).await?);
    }
    Ok(mine)
}

/// A new pod of `owner` from its template.
pub fn pod_from<O: Object>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name_any())),
            namespace: owner.namespace(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: owner.controller_owner_ref(&()).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// A short name for a template: the same template has the same name, whoever asks, now and after a restart.
/// `collisions` makes another, for when that name is taken by something else.
pub fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    // Digits and letters that cannot spell a word.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = serde_json::to_vec(template).unwrap_or_default();
    let mut digest = Sha256::new().chain_update(text);
    if let Some(count) = collisions {
        digest.update(count.to_le_bytes());
    }
    digest
        .finalize()
        .iter()
        .take(10)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// A number, or a share of `total`.
pub fn amount(value: Option<&IntOrString>, total: i32, round_up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            let share = i64::from(total) * percent;
            let whole = if round_up { (share + 99).div_euclid(100) } else { share.div_euclid(100) };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

/// A count as the API writes it.
pub fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_as_asked() {
        let percent = |text: &str| IntOrString::String(text.into());
        for (value, total, up, expected) in [
            (Some(IntOrString::Int(3)), 10, true, 3),
            (Some(percent("25%")), 10, true, 3),
            (Some(percent("25%")), 10, false, 2),
            (Some(percent("100%")), 7, false, 7),
            (Some(percent("0%")), 7, true, 0),
            (Some(percent("1%")), 3, true, 1),
            (None, 3, true, 0),
        ] {
            assert_eq!(amount(value.as_ref(), total, up), expected, "{value:?} of {total}");
        }
    }

    #[test]
    fn a_template_has_one_name_until_that_is_taken() {
        let template = PodTemplateSpec::default();
        let name = template_hash(&template, None);
        assert_eq!(name, template_hash(&template.clone(), None));
        assert_ne!(name, template_hash(&template, Some(1)));
        assert_eq!(name.len(), 10);
    }
}
