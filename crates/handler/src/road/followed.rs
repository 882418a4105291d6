//! Objects that the road depends on, as they are now.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::reflector::{self, Lookup};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::error::chain;

/// Shows all of them whenever they have changed and are whole: half a list is not all of them. While they cannot be watched, what
/// was shown last still counts. Ends only by being dropped.
pub async fn follow<K>(objects: Api<K>, what: &str, mut show: impl FnMut(Vec<Arc<K>>))
where
    K: Resource<DynamicType = ()>
        + Lookup<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    <K as Lookup>::DynamicType: Eq + Hash + Clone + Default,
{
    let (store, writer) = reflector::store();
    let changes = watcher(objects, watcher::Config::default()).default_backoff().reflect(writer);
    futures::pin_mut!(changes);
    while let Some(change) = changes.next().await {
        match change {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Ok(_) => show(store.state()),
            Err(error) => {
                tracing::warn!(
                    what,
                    cause = chain(&error),
                    "these cannot be watched; what is known of them still counts"
                );
            }
        }
    }
}
