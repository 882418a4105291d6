//! Tells when what a migration network must fit changes: nodes come, cluster networks are attached to them, or are no longer ready.
//!
//! It says that something changed, not what: whoever is told looks at all of it. Each kind is watched by itself, so that one that is
//! not served keeps nobody from hearing of the others. It reads nothing but metadata.

use std::collections::BTreeMap;
use std::fmt::Debug;

use api::harvester::{ClusterNetwork, VlanConfig, VlanStatus};
use futures::channel::mpsc;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};

/// What of an object counts.
type Digest = fn(&ObjectMeta) -> String;

/// An item for every change, or several; and the work that finds them.
pub fn follow(client: &Client) -> (mpsc::Receiver<()>, impl Future<Output = ()> + use<>) {
    let (touch, touched) = mpsc::channel(1);
    let nodes = tell::<Node>(client.clone(), labels, touch.clone());
    let networks = tell::<ClusterNetwork>(client.clone(), version, touch.clone());
    let configs = tell::<VlanConfig>(client.clone(), version, touch.clone());
    let statuses = tell::<VlanStatus>(client.clone(), version, touch);
    (touched, async move {
        tokio::join!(nodes, networks, configs, statuses);
    })
}

/// Of a node, by which it is chosen: its handler and its kubelet write the rest of it many times a minute.
fn labels(of: &ObjectMeta) -> String {
    serde_json::to_string(&of.labels).unwrap_or_default()
}

/// All of it.
fn version(of: &ObjectMeta) -> String {
    of.resource_version.clone().unwrap_or_default()
}

async fn tell<K>(client: Client, digest: Digest, mut touch: mpsc::Sender<()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(client);
    let changes = watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(changes);
    let mut known = Known { digest, objects: BTreeMap::new() };
    while let Some(change) = changes.next().await {
        let changed = match change {
            Ok(Event::InitApply(object) | Event::Apply(object)) => known.note(&object.metadata),
            Ok(Event::Delete(object)) => known.forget(&object.metadata),
            // What went while nobody watched is found by the next look, which comes anyway.
            Ok(Event::Init | Event::InitDone) => false,
            Err(error) => {
                let kind = K::kind(&());
                tracing::debug!(%error, %kind, "cannot be watched; it is looked at from time to time");
                false
            }
        };
        if changed {
            // A full channel says already that something changed.
            let _ = touch.try_send(());
        }
    }
}

/// What was last seen of each object, by name: the kinds are the cluster's, not a namespace's.
struct Known {
    digest: Digest,
    objects: BTreeMap<String, String>,
}

impl Known {
    /// Whether that is news.
    fn note(&mut self, metadata: &ObjectMeta) -> bool {
        let now = (self.digest)(metadata);
        let before = self.objects.insert(metadata.name.clone().unwrap_or_default(), now.clone());
        before != Some(now)
    }

    fn forget(&mut self, metadata: &ObjectMeta) -> bool {
        self.objects.remove(metadata.name.as_deref().unwrap_or_default()).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::{Value, json};

    use super::*;

    fn metadata(metadata: Value) -> ObjectMeta {
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn a_node_is_news_when_it_comes_goes_or_is_labelled_otherwise() {
        let mut known = Known { digest: labels, objects: BTreeMap::new() };
        let node = |labels: Value, version: &str| {
            metadata(json!({ "name": "n1", "labels": labels, "resourceVersion": version }))
        };
        assert!(known.note(&node(json!({}), "1")));
        assert!(!known.note(&node(json!({}), "2")), "a heartbeat");
        assert!(known.note(&node(json!({ "rack": "1" }), "3")));
        assert!(known.note(&metadata(json!({ "name": "n2" }))));
        assert!(known.forget(&node(json!({}), "4")));
        assert!(!known.forget(&node(json!({}), "4")));
        assert!(known.note(&node(json!({ "rack": "1" }), "5")));
    }

    #[test]
    fn anything_else_is_news_whenever_it_is_written() {
        let mut known = Known { digest: version, objects: BTreeMap::new() };
        let status = |version: &str| metadata(json!({ "name": "mig-n1", "resourceVersion": version }));
        assert!(known.note(&status("1")));
        assert!(!known.note(&status("1")), "listed again");
        assert!(known.note(&status("2")));
    }
}
