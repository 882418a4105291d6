//! The owner of one pod on this node: it sees, has [`decide`](super::decide) decide, acts, and tells the API.
//!
//! Everything that takes time is a task of its own whose end is news to the worker, so that it never waits for one thing
//! while another happens. A worker that is dropped leaves its pod running: the next life of the agent takes it over.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::adopt::adopt;
use super::decide::{Action, decide};
use super::plan::{Plan, containers};
use super::seen::{Container, Refusal, Run, Seen, Setup, Stopping, doubled};
use super::status::{Sight, patch};
use crate::agent::Agent;
use crate::board::Published;
use crate::error::chain;
use crate::network::{self, Made};
use crate::probe;
use crate::runtime::{ContainerId, Exit, State};

mod effects;
mod news;

use news::News;

/// Between tries of what failed: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// How often volumes look whether what they show has changed.
const REFRESH: Duration = Duration::from_secs(30);

/// What the API says of a pod.
#[derive(Debug, Clone)]
pub struct Assignment {
    pub pod: Arc<Pod>,
    /// The API knows it no longer.
    pub gone: bool,
}

pub(super) struct Worker {
    agent: Arc<Agent>,
    uid: String,
    pod: Arc<Pod>,
    gone: bool,
    seen: Seen,
    made: Made,
    /// Failures in a row of each kind of thing.
    failures: Failures,
    tasks: JoinSet<News>,
    probes: BTreeMap<String, Vec<AbortHandle>>,
    told: mpsc::UnboundedSender<probe::Told>,
    /// What containers left in their termination logs.
    messages: BTreeMap<(String, u32), String>,
    status: StatusWrite,
    /// The change of the status that was written last, and the version of the pod that came of it: asking for the same
    /// of the same would only be answered the same.
    written: Option<(Value, Option<String>)>,
    /// Volumes are made and refreshed by one task at a time.
    publishing: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Failures {
    volumes: u32,
    sandbox: u32,
    traces: u32,
    farewell: u32,
    status: u32,
}

/// Where the writing of the status is, and of which change. One at a time.
enum StatusWrite {
    Idle,
    Working(Option<Value>),
    Failed { until: Timestamp },
}

/// Runs a pod until nothing is left of it.
pub async fn run(agent: Arc<Agent>, mut assignment: watch::Receiver<Assignment>) {
    let Assignment { pod, gone } = assignment.borrow_and_update().clone();
    let (told, mut telling) = mpsc::unbounded_channel();
    let mut worker = Worker::adopt(agent, pod, gone, told).await;
    let mut definitions = None;
    let mut refresh = tokio::time::interval(REFRESH);
    refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while let ControlFlow::Continue(wake) = worker.step() {
        let waits_for_network = worker.failures.sandbox > 0;
        if !waits_for_network {
            definitions = None;
        } else if definitions.is_none() {
            definitions = Some(worker.agent.network.definitions());
        }
        tokio::select! {
            changed = assignment.changed() => {
                if changed.is_err() {
                    break;
                }
                let latest = assignment.borrow_and_update().clone();
                worker.assign(latest);
            }
            Some(ended) = worker.tasks.join_next() => match ended {
                Ok(news) => worker.hear(news),
                Err(cause) => tracing::error!(pod = worker.name(), cause = chain(&cause), "a task was lost"),
            },
            Some(told) = telling.recv() => worker.hear_probe(told),
            () = changed(definitions.as_mut()) => worker.try_network_now(),
            _ = refresh.tick() => worker.refresh_volumes(),
            () = until(wake) => {}
        }
    }
}

/// Resolves when a definition has changed; without a receiver never.
async fn changed(definitions: Option<&mut watch::Receiver<u64>>) {
    if let Some(definitions) = definitions
        && definitions.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

async fn until(wake: Option<Timestamp>) {
    match wake {
        // A little late rather than early: early would be a turn for nothing.
        Some(wake) => {
            let left = wake.duration_since(Timestamp::now());
            tokio::time::sleep(Duration::try_from(left).unwrap_or_default() + Duration::from_millis(1)).await;
        }
        None => std::future::pending().await,
    }
}

impl Worker {
    /// Takes over whatever there is of the pod.
    async fn adopt(
        agent: Arc<Agent>,
        pod: Arc<Pod>,
        gone: bool,
        told: mpsc::UnboundedSender<probe::Told>,
    ) -> Self {
        let now = Timestamp::now();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut worker = Self {
            seen: Seen::new(now),
            made: Made::default(),
            failures: Failures::default(),
            tasks: JoinSet::new(),
            probes: BTreeMap::new(),
            told,
            messages: BTreeMap::new(),
            status: StatusWrite::Idle,
            written: None,
            publishing: Arc::default(),
            agent,
            uid,
            pod,
            gone,
        };
        let traces = worker.traces().await;
        worker.seen.containers = adopt(&worker.pod, traces, now);
        match worker.agent.network.find(&worker.pod).await {
            Ok(Some((since, made))) => {
                (worker.seen.sandbox, worker.seen.sandbox_since) = (Setup::Ready, Some(since));
                worker.made = made;
                worker.annotate();
            }
            Ok(None) => {}
            Err(cause) => {
                tracing::warn!(pod = worker.name(), cause = chain(&cause), "its sandbox cannot be read");
            }
        }
        let adopted: Vec<(String, Container)> = worker.seen.containers.clone().into_iter().collect();
        for (name, container) in adopted {
            let Some(attempt) = container.attempt else { continue };
            match container.run {
                Run::Running { .. } => worker.watch(&name, attempt),
                Run::Ended(exit) => worker.remember_message(&name, attempt, &exit),
                _ => {}
            }
        }
        worker
    }

    /// What the runtime has of this pod. It is asked until it answers: to start on a guess would start containers twice.
    async fn traces(&self) -> Vec<(ContainerId, State)> {
        loop {
            match self.agent.runtime.list().await {
                Ok(all) => return all.into_iter().filter(|(id, _)| id.pod == self.uid).collect(),
                Err(cause) => {
                    tracing::warn!(pod = self.name(), cause = chain(&cause), "containers cannot be listed");
                    tokio::time::sleep(RETRY.0).await;
                }
            }
        }
    }

    fn name(&self) -> String {
        let metadata = &self.pod.metadata;
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
    }

    fn plan(&self) -> Plan {
        Plan::of(&self.pod, self.gone)
    }

    /// One turn. Tells when to look again at the latest, or that there is nothing more to do.
    fn step(&mut self) -> ControlFlow<(), Option<Timestamp>> {
        let (plan, now) = (self.plan(), Timestamp::now());
        let decision = decide(&plan, &self.seen, now);
        for action in decision.actions {
            if action == Action::Forget {
                return ControlFlow::Break(());
            }
            self.act(action, now);
        }
        let attempts =
            self.seen.containers.iter().filter_map(|(name, seen)| Some((name.clone(), seen.attempt?)));
        let published = Published { pod: self.pod.clone(), attempts: attempts.collect() };
        self.agent.board.publish(&self.uid, published);
        self.write_status(&plan, now);
        let status = if let StatusWrite::Failed { until } = self.status { Some(until) } else { None };
        ControlFlow::Continue([decision.wake, status].into_iter().flatten().min())
    }

    /// Takes what the API says now.
    fn assign(&mut self, latest: Assignment) {
        self.gone = latest.gone;
        if !latest.gone {
            self.take_pod(latest.pod);
        }
    }

    /// Takes a newer object. The watch and the answers to our own writes come by different ways.
    fn take_pod(&mut self, pod: Arc<Pod>) {
        let version =
            |pod: &Pod| pod.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        let older = version(&pod).zip(version(&self.pod)).is_some_and(|(new, known)| new < known);
        if !older && pod.metadata.uid == self.pod.metadata.uid {
            let before = std::mem::replace(&mut self.pod, pod);
            let shown = |pod: &Pod| (pod.metadata.annotations.clone(), pod.metadata.labels.clone());
            if shown(&before) != shown(&self.pod) {
                self.refresh_volumes();
            }
        }
    }

    /// A definition has changed: perhaps it is the one that was missing.
    fn try_network_now(&mut self) {
        if let Setup::Doubtful { until } = &mut self.seen.sandbox {
            *until = Timestamp::now();
        }
    }

    fn act(&mut self, action: Action, now: Timestamp) {
        tracing::debug!(pod = self.name(), ?action);
        match action {
            Action::PublishVolumes => {
                self.seen.volumes = Setup::Working;
                self.publish_volumes();
            }
            Action::MakeSandbox => {
                self.seen.sandbox = Setup::Working;
                self.make_sandbox();
            }
            Action::Start { container } => {
                self.seen.containers.entry(container.clone()).or_default().begin();
                self.start(&container);
            }
            Action::Stop { container, grace } => {
                if let Some(seen) = self.seen.containers.get_mut(&container) {
                    seen.stopping = Some(Stopping { since: now, grace, killed: false });
                }
                self.stop(&container, grace);
            }
            Action::Kill { container } => {
                if let Some(stopping) =
                    self.seen.containers.get_mut(&container).and_then(|seen| seen.stopping.as_mut())
                {
                    stopping.killed = true;
                }
                self.kill(&container);
            }
            Action::ReleaseSandbox => {
                self.seen.sandbox = Setup::Working;
                let (network, uid) = (self.agent.network.clone(), self.uid.clone());
                self.tasks.spawn(async move { News::SandboxReleased(network.release(&uid).await) });
            }
            Action::ReleaseVolumes => {
                self.seen.volumes = Setup::Working;
                self.release_volumes();
            }
            Action::RemoveTraces => {
                self.seen.traces = Setup::Working;
                self.remove_traces();
            }
            Action::Finalise => self.finalise(),
            Action::Forget => {}
        }
    }

    fn id(&self, container: &str, attempt: u32) -> ContainerId {
        ContainerId { pod: self.uid.clone(), container: container.to_owned(), attempt }
    }

    /// Waits for the container's end, and asks its probes until then.
    fn watch(&mut self, container: &str, attempt: u32) {
        let (runtime, id) = (self.agent.runtime.clone(), self.id(container, attempt));
        self.tasks.spawn(async move {
            let end = runtime.wait(&id).await;
            News::Exited { id, end }
        });
        self.ask_probes(container, attempt);
    }
}
