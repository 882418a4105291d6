//! What workers let others see of their pods. Each worker writes its own entry; everybody may read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Pod;

/// One pod as others see it.
#[derive(Debug, Clone)]
pub struct Published {
    pub pod: Arc<Pod>,
    /// The latest attempt of every container that was started.
    pub attempts: BTreeMap<String, u32>,
}

/// All pods of this node, by UID. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<String, Published>>>);

impl Board {
    pub fn publish(&self, uid: &str, published: Published) {
        self.pods().insert(uid.to_owned(), published);
    }

    pub fn withdraw(&self, uid: &str) {
        self.pods().remove(uid);
    }

    pub fn all(&self) -> Vec<Published> {
        self.pods().values().cloned().collect()
    }

    pub fn uids(&self) -> BTreeSet<String> {
        self.pods().keys().cloned().collect()
    }

    /// The pod of this name; of two, one of which is ending, the other.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Published> {
        let is_it = |published: &&Published| {
            let metadata = &published.pod.metadata;
            metadata.namespace.as_deref() == Some(namespace) && metadata.name.as_deref() == Some(name)
        };
        let pods = self.pods();
        let born = |published: &&Published| published.pod.metadata.creation_timestamp.clone();
        pods.values().filter(is_it).max_by_key(born).cloned()
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        // Every change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
