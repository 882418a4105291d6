//! All pods that the API assigns to this node, each with its worker.
//!
//! One task owns the map from pods to workers. It starts workers and tells them what the API says; it never touches a
//! pod itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::worker::{self, Assignment};
use crate::agent::Agent;
use crate::error::chain;

pub(crate) struct Workers {
    agent: Arc<Agent>,
    /// By UID.
    assignments: BTreeMap<String, watch::Sender<Assignment>>,
    running: JoinSet<String>,
    /// What a list that is being read has named so far.
    listed: Option<BTreeSet<String>>,
    /// True once the first list is whole: before, what is not known may only be not known yet.
    complete: watch::Sender<bool>,
}

impl Workers {
    pub fn new(agent: Arc<Agent>, complete: watch::Sender<bool>) -> Self {
        Self { agent, assignments: BTreeMap::new(), running: JoinSet::new(), listed: None, complete }
    }

    /// Follows the API for as long as it is polled.
    pub async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.agent.client.clone());
        let ours = Config::default().fields(&format!("spec.nodeName={}", self.agent.name));
        let mut events = std::pin::pin!(watcher(pods, ours).default_backoff());
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.hear(event),
                    Some(Err(cause)) => tracing::warn!(cause = chain(&cause), "pods cannot be watched"),
                    None => return,
                },
                Some(ended) = self.running.join_next() => match ended {
                    Ok(uid) => _ = self.assignments.remove(&uid),
                    Err(cause) => tracing::error!(cause = chain(&cause), "the worker of a pod was lost"),
                },
            }
        }
    }

    fn hear(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => self.assign(pod),
            Event::Delete(pod) => self.gone(&pod.metadata.uid.unwrap_or_default()),
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(pod) => {
                if let Some(listed) = &mut self.listed {
                    listed.extend(pod.metadata.uid.clone());
                }
                self.assign(pod);
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let missing: Vec<String> =
                    self.assignments.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                for uid in missing {
                    self.gone(&uid);
                }
                self.complete.send_replace(true);
            }
        }
    }

    fn assign(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let assignment = Assignment { pod: Arc::new(pod), gone: false };
        if let Some(known) = self.assignments.get(&uid) {
            // No receiver: its worker has just ended, and with it everything of the pod.
            known.send_replace(assignment);
            return;
        }
        let (sender, receiver) = watch::channel(assignment);
        self.assignments.insert(uid.clone(), sender);
        let agent = self.agent.clone();
        self.running.spawn(async move {
            worker::run(agent, receiver).await;
            uid
        });
    }

    fn gone(&mut self, uid: &str) {
        if let Some(known) = self.assignments.get(uid) {
            known.send_modify(|assignment| assignment.gone = true);
        }
    }
}
