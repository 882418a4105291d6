//! The `KubeVirt` object, as it is now: its configuration is read by the reconcilers and by admission.

use std::sync::Arc;

use api::kubevirt::KubeVirt;
use futures::StreamExt as _;
use kube::api::ListParams;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};

use crate::admission::Rules;
use crate::error::Error;

/// What is known of it, and the work that keeps it so until dropped.
pub(crate) fn follow(client: Client, namespace: &str) -> (Store<KubeVirt>, impl Future<Output = ()> + use<>) {
    let installations: Api<KubeVirt> = Api::namespaced(client, namespace);
    let (store, writer) = reflector::store();
    let changes = watcher(installations, watcher::Config::default()).default_backoff().reflect(writer);
    let work = changes.for_each(async |change| {
        if let Err(error) = change {
            tracing::warn!(%error, "the KubeVirt object cannot be watched; what was known of it still counts");
        }
    });
    (store, work)
}

/// The one that counts, if there is one.
pub(crate) fn current(store: &Store<KubeVirt>) -> Option<Arc<KubeVirt>> {
    KubeVirt::in_charge(store.state())
}

/// The same, asked of the API server itself: what was written a moment ago counts.
pub(crate) async fn now(client: &Client, namespace: &str) -> Result<Option<KubeVirt>, Error> {
    let installations: Api<KubeVirt> = Api::namespaced(client.clone(), namespace);
    let all = installations.list(&ListParams::default()).await;
    let all = all.map_err(Error::api("listing", format!("KubeVirt objects of {namespace}")))?;
    Ok(KubeVirt::in_charge(all.items))
}

/// Whether its configuration was changed and its status does not speak of that yet.
pub(crate) fn is_behind(installation: &KubeVirt) -> bool {
    let seen = installation.status.as_ref().and_then(|status| status.observed_generation);
    matches!((seen, installation.metadata.generation), (Some(seen), Some(made)) if seen < made)
}

/// What the installation says about machines; without one, what it would say if it said nothing.
pub(crate) fn rules(store: &Store<KubeVirt>) -> Rules {
    current(store).map(|installation| Rules::of(&installation)).unwrap_or_default()
}
