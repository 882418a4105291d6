//! The launcher pods of this node and their instances, as the API has them; and one task for each pod.
//!
//! It owns the watches and who runs. Instances are of this node when their guest is here, and when it is to come. What a task is told is always the latest: a pod, or that it is gone, and its
//! instance, if there is one. It decides nothing about either.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use api::kubevirt::VirtualMachineInstance;
use api::names::labels;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::chain;

/// What a task knows of its pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// None: it is gone.
    pub pod: Option<Arc<Pod>>,
    /// None: it is gone, or not of this node yet.
    pub instance: Option<Arc<VirtualMachineInstance>>,
}

/// Which pods are this node's launchers.
pub fn selection(node: &str) -> watcher::Config {
    watcher::Config::default()
        .labels(&format!("{}={}", labels::APP, labels::APP_LAUNCHER))
        .fields(&format!("spec.nodeName={node}"))
}

/// Whether nothing of the pod runs any more, or will.
pub fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Follows the pods of this node, and runs `attend` for each, from when it is first seen until the task ends. Ends only
/// by being dropped, which ends the tasks too.
pub async fn follow<F: Future<Output = ()> + Send + 'static>(
    client: Client,
    node: &str,
    mut attend: impl FnMut(Arc<Pod>, watch::Receiver<View>) -> F,
) {
    let pods = watcher(Api::<Pod>::all(client.clone()), selection(node)).default_backoff();
    let instances = |label: &str| {
        let labelled = watcher::Config::default().labels(&format!("{label}={node}"));
        watcher(Api::<VirtualMachineInstance>::all(client.clone()), labelled).default_backoff()
    };
    let (here, coming) = (instances(labels::NODE_NAME), instances(labels::MIGRATION_TARGET_NODE_NAME));
    futures::pin_mut!(pods, here, coming);
    let (mut known_pods, mut known_here, mut known_coming) =
        (Known::default(), Known::default(), Known::default());
    let mut tasks = JoinSet::new();
    let mut told: BTreeMap<String, Told> = BTreeMap::new();
    loop {
        tokio::select! {
            Some(event) = pods.next() => known_pods.take(event),
            Some(event) = here.next() => known_here.take(event),
            Some(event) = coming.next() => known_coming.take(event),
            Some(ended) = tasks.join_next() => {
                if let Err(cause) = ended {
                    tracing::error!(%cause, "the task of a launcher pod ended badly; it is started again");
                }
            }
            else => return,
        }
        // Before the first list is whole, a pod that is not there may just not have been told of.
        if !known_pods.complete {
            continue;
        }
        told.retain(|_, task| !task.view.is_closed());
        let newest = |uid: &String| {
            let (here, coming) = (known_here.all.get(uid), known_coming.all.get(uid));
            here.into_iter().chain(coming).max_by_key(|instance| version(instance)).cloned()
        };
        let look = |uid: &str, instance: Option<&String>| View {
            pod: known_pods.all.get(uid).cloned(),
            instance: instance.and_then(newest),
        };
        for (uid, task) in &told {
            let view = look(uid, task.instance.as_ref());
            task.view.send_if_modified(|now| std::mem::replace(now, view.clone()) != view);
        }
        for (uid, pod) in
            known_pods.all.iter().filter(|(uid, _)| !told.contains_key(*uid)).collect::<Vec<_>>()
        {
            let instance = instance_of(pod);
            let (view, receiver) = watch::channel(look(uid, instance.as_ref()));
            tasks.spawn(attend(Arc::clone(pod), receiver));
            told.insert(uid.clone(), Told { view, instance });
        }
    }
}

/// What the task of a pod is told of.
struct Told {
    view: watch::Sender<View>,
    /// UID of its instance, which matters to the last: also when the pod is gone.
    instance: Option<String>,
}

/// UID of the instance that a pod was made for.
pub fn instance_of(pod: &Pod) -> Option<String> {
    pod.labels().get(labels::CREATED_BY).cloned()
}

/// Versions grow, as those of every Kubernetes API server do.
pub fn version(instance: &VirtualMachineInstance) -> u64 {
    instance.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Objects of one kind, by UID.
#[derive(Debug)]
struct Known<K> {
    all: BTreeMap<String, Arc<K>>,
    listing: BTreeMap<String, Arc<K>>,
    complete: bool,
}

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), listing: BTreeMap::new(), complete: false }
    }
}

impl<K: Resource<DynamicType = ()> + Debug> Known<K> {
    fn take(&mut self, event: watcher::Result<Event<K>>) {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(object)) => {
                self.listing.insert(object.uid().unwrap_or_default(), Arc::new(object));
            }
            Ok(Event::InitDone) => {
                self.all = std::mem::take(&mut self.listing);
                self.complete = true;
            }
            Ok(Event::Apply(object)) => {
                self.all.insert(object.uid().unwrap_or_default(), Arc::new(object));
            }
            Ok(Event::Delete(object)) => _ = self.all.remove(&object.uid().unwrap_or_default()),
            Err(cause) => {
                tracing::warn!(kind = %K::kind(&()), cause = chain(&cause), "a watch failed; it is tried again");
            }
        }
    }
}
