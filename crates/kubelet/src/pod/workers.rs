//! All pods that the API assigns to this node, each with its worker.
//!
//! One task owns the map from pods to workers. It starts workers and tells them what the API says; it never touches a
//! pod itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::worker::{self, Assignment};
use crate::agent::Agent;
use crate::board::Published;
use crate::error::chain;

pub(crate) struct Workers {
    agent: Arc<Agent>,
    /// By UID.
    assignments: BTreeMap<String, watch::Sender<Assignment>>,
    running: JoinSet<()>,
    /// Whose worker a task is.
    uids: HashMap<Id, String>,
    /// What a list that is being read has named so far.
    listed: Option<BTreeSet<String>>,
    /// True once the first list is whole: before, what is not known may only be not known yet.
    complete: watch::Sender<bool>,
}

impl Workers {
    pub fn new(agent: Arc<Agent>, complete: watch::Sender<bool>) -> Self {
        let (assignments, uids) = (BTreeMap::new(), HashMap::new());
        Self { agent, assignments, running: JoinSet::new(), uids, listed: None, complete }
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
                Some(ended) = self.running.join_next_with_id() => self.ended(ended),
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
            known.send_replace(assignment);
            return;
        }
        let (sender, receiver) = watch::channel(assignment);
        self.assignments.insert(uid.clone(), sender);
        self.start(uid, receiver);
    }

    fn start(&mut self, uid: String, assignment: watch::Receiver<Assignment>) {
        // Before its worker does anything, and before garbage is looked for again.
        let pod = assignment.borrow().pod.clone();
        self.agent.board.publish(&uid, Published { pod, attempts: BTreeMap::new() });
        let task = self.running.spawn(worker::run(self.agent.clone(), assignment));
        self.uids.insert(task.id(), uid);
    }

    /// A worker has ended: it is done, or the API has named its pod again meanwhile, or it was lost.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, lost) = match ended {
            Ok((id, ())) => (id, None),
            Err(cause) => (cause.id(), Some(cause)),
        };
        let Some(uid) = self.uids.remove(&id) else { return };
        let Some(assignment) = self.assignments.get(&uid) else { return };
        if let Some(cause) = &lost {
            tracing::error!(uid, cause = chain(cause), "the worker of a pod was lost; it gets another");
        }
        if lost.is_some() || !assignment.borrow().gone {
            let again = assignment.subscribe();
            self.start(uid, again);
        } else {
            self.assignments.remove(&uid);
            self.agent.board.withdraw(&uid);
        }
    }

    fn gone(&mut self, uid: &str) {
        if let Some(known) = self.assignments.get(uid) {
            known.send_modify(|assignment| assignment.gone = true);
        }
    }
}
