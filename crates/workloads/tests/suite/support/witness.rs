//! Sees every state that the pods of an owner go through, one change at a time.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::ResourceExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::task::JoinHandle;

use super::is_leaving;

/// The most and the fewest that were ever seen at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extremes {
    /// Pods that are neither ended nor on their way out.
    pub most: usize,
    /// Pods that are ready, and not on their way out.
    pub fewest_ready: usize,
}

pub struct Witness {
    seen: Arc<Mutex<Extremes>>,
    task: JoinHandle<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Witness {
    /// Watches the pods with the label `app: NAME`, of which there are some already.
    pub async fn of(pods: Api<Pod>, app: &str) -> Self {
        let (ready, started) = tokio::sync::oneshot::channel();
        let seen = Arc::new(Mutex::new(Extremes { most: 0, fewest_ready: usize::MAX }));
        let (shared, config) = (seen.clone(), watcher::Config::default().labels(&format!("app={app}")));
        let task = tokio::spawn(async move {
            let mut ready = Some(ready);
            let mut known: BTreeMap<String, Pod> = BTreeMap::new();
            let mut events = pin!(watcher(pods, config));
            while let Some(event) = events.next().await {
                match event.expect("a watch that does not break") {
                    Event::Init => continue,
                    Event::InitApply(pod) => {
                        known.insert(pod.name_any(), pod);
                        continue;
                    }
                    Event::InitDone => {}
                    Event::Apply(pod) => {
                        known.insert(pod.name_any(), pod);
                    }
                    Event::Delete(pod) => {
                        known.remove(&pod.name_any());
                    }
                }
                let staying = || known.values().filter(|pod| !is_leaving(pod));
                let mut seen = shared.lock().unwrap();
                seen.most = seen.most.max(staying().count());
                seen.fewest_ready = seen.fewest_ready.min(staying().filter(|pod| is_ready(pod)).count());
                if !known.is_empty()
                    && let Some(ready) = ready.take()
                {
                    let _ = ready.send(());
                }
            }
        });
        started.await.expect("the witness sees the first state");
        Self { seen, task }
    }

    pub fn seen(&self) -> Extremes {
        *self.seen.lock().unwrap()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status == "True")
}
