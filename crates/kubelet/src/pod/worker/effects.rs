//! What a worker does. Each effect is a task whose end is [`News`]; none of them decides anything.

use k8s_openapi::api::core::v1::{Container, HostIP, LifecycleHandler, PodIP};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::Mutex;

use super::news::{Sandbox, SandboxError, StartError};
use super::{
    Agent, Arc, ContainerId, Duration, Exit, Made, News, Plan, Pod, Setup, Sight, State, StatusWrite,
    Timestamp, Worker, chain, containers, patch, probe,
};
use crate::environment::command_line;
use crate::pod::launch::{Provided, describe};
use crate::probe::Kind;
use crate::{images, provision, runtime};

/// How long the hook after a start may take.
const HOOK: Duration = Duration::from_mins(1);
/// What is kept of a termination log.
const MESSAGE_MAX: usize = 4096;

impl Worker {
    pub(super) fn make_sandbox(&mut self) {
        let (agent, pod) = (self.agent.clone(), self.pod.clone());
        self.tasks.spawn(async move {
            let made = async {
                let (since, made) = agent.network.make(&pod).await?;
                let pod = annotate(&agent, &pod, &made).await.map_err(SandboxError::Annotation)?;
                Ok(Sandbox { since, made, pod })
            };
            News::Sandbox(made.await)
        });
    }

    /// Sees to it that the API knows of the networks: the agent may have died before it could say so.
    pub(super) fn annotate(&mut self) {
        self.status = StatusWrite::Working(None);
        let (agent, pod, made) = (self.agent.clone(), self.pod.clone(), self.made.clone());
        self.tasks.spawn(async move { News::StatusWritten(annotate(&agent, &pod, &made).await.map(Some)) });
    }

    pub(super) fn start(&mut self, container: &str) {
        let Some(attempt) = self.seen.container(container).attempt else { return };
        let id = self.id(container, attempt);
        let (agent, pod, one) = (self.agent.clone(), self.pod_with_addresses(), self.publishing.clone());
        self.tasks.spawn(async move {
            let outcome = start(&agent, &pod, &one, &id).await;
            News::Started { id, outcome }
        });
        // The latest and the one before it can be asked about; what is older goes.
        if let Some(old) = attempt.checked_sub(2) {
            let (runtime, id) = (self.agent.runtime.clone(), self.id(container, old));
            self.tasks
                .spawn(async move { News::Tried(runtime.remove(&id).await.map_err(|cause| chain(&cause))) });
        }
    }

    /// Asks a container to end, after its own preparations if it has any.
    pub(super) fn stop(&mut self, container: &str, grace: Duration) {
        let Some(attempt) = self.seen.container(container).attempt else { return };
        let events = self.agent.events.about(&self.pod).container(container);
        events.normal("Killing", format!("stopping container {container}"));
        let spec = containers(&self.pod).get(container).copied().cloned().unwrap_or_default();
        let hook = spec.lifecycle.and_then(|lifecycle| lifecycle.pre_stop);
        let (agent, pod, id) = (self.agent.clone(), self.pod.clone(), self.id(container, attempt));
        self.tasks.spawn(async move {
            if let Some(hook) = hook.filter(|_| !grace.is_zero())
                && let Err(problem) = run_hook(&agent, &id, &hook, grace).await
            {
                let about = agent.events.about(&pod).container(&id.container);
                about.warning("FailedPreStopHook", problem);
            }
            News::Tried(signal(&agent, &id, Signal::SIGTERM).await)
        });
    }

    pub(super) fn kill(&mut self, container: &str) {
        let Some(attempt) = self.seen.container(container).attempt else { return };
        let (agent, id) = (self.agent.clone(), self.id(container, attempt));
        self.tasks.spawn(async move { News::Tried(signal(&agent, &id, Signal::SIGKILL).await) });
    }

    pub(super) fn publish_volumes(&mut self) {
        let published = self.publishing();
        self.tasks.spawn(async move { News::Volumes(published.await) });
    }

    /// Has volumes show what is true now.
    pub(super) fn refresh_volumes(&mut self) {
        if self.seen.volumes == Setup::Ready {
            let published = self.publishing();
            self.tasks.spawn(async move { News::Tried(published.await) });
        }
    }

    fn publishing(&self) -> impl Future<Output = Result<(), String>> + use<> {
        let (agent, pod, one) = (self.agent.clone(), self.pod_with_addresses(), self.publishing.clone());
        async move {
            let _alone = one.lock().await;
            agent.provisions.publish(&pod).await.map(drop).map_err(|cause| chain(&cause))
        }
    }

    /// The pod as its containers are to see it: with addresses that the API may not have yet.
    fn pod_with_addresses(&self) -> Arc<Pod> {
        let mut pod = Pod::clone(&self.pod);
        let (host, own) = (&self.agent.addresses, &self.made.addresses);
        let status = pod.status.get_or_insert_default();
        status.host_ip = host.first().map(ToString::to_string);
        status.host_ips = Some(host.iter().map(|ip| HostIP { ip: ip.to_string() }).collect());
        status.pod_ip = own.first().map(ToString::to_string);
        status.pod_ips = Some(own.iter().map(|ip| PodIP { ip: ip.to_string() }).collect());
        Arc::new(pod)
    }

    pub(super) fn release_volumes(&mut self) {
        let (agent, uid, one) = (self.agent.clone(), self.uid.clone(), self.publishing.clone());
        self.tasks.spawn(async move {
            let _alone = one.lock().await;
            News::VolumesReleased(agent.provisions.release(&uid).await.map_err(|cause| chain(&cause)))
        });
    }

    pub(super) fn remove_traces(&mut self) {
        let (agent, uid) = (self.agent.clone(), self.uid.clone());
        self.tasks.spawn(async move { News::TracesRemoved(agent.remove_traces(&uid).await) });
    }

    /// Starts the probes that are due: the startup probe alone until it has passed.
    pub(super) fn ask_probes(&mut self, container: &str, attempt: u32) {
        for earlier in self.probes.remove(container).unwrap_or_default() {
            earlier.abort();
        }
        let seen = self.seen.container(container);
        let Some(spec) = containers(&self.pod).get(container).copied().cloned() else { return };
        let kinds: &[Kind] = if seen.started { &[Kind::Liveness, Kind::Readiness] } else { &[Kind::Startup] };
        let mut handles = Vec::new();
        for kind in kinds {
            let Some(probe) = kind.of(&spec).cloned() else { continue };
            if !probe::is_supported(&probe) {
                let about = self.agent.events.about(&self.pod).container(container);
                about.warning(
                    "Unhealthy",
                    format!("{} probe: this node cannot ask by gRPC; it counts as passed", kind.name()),
                );
            }
            let asked = probe::Asked {
                container: self.id(container, attempt),
                kind: *kind,
                probe,
                spec: spec.clone(),
                address: self.made.addresses.first().copied(),
                runtime: self.agent.runtime.clone(),
            };
            handles.push(self.agent.spawn(probe::ask(asked, self.told.clone())));
        }
        self.probes.insert(container.to_owned(), handles);
    }

    /// What a container left for us to tell when it ended.
    pub(super) fn remember_message(&mut self, container: &str, attempt: u32, exit: &Exit) {
        let Some(spec) = containers(&self.pod).get(container).copied().cloned() else { return };
        let id = self.id(container, attempt);
        let log = self.agent.provisions.termination_log(&id);
        let mut message = std::fs::read(&log).unwrap_or_default();
        let falls_back = spec.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && falls_back && exit.code != 0 {
            message = crate::server::last_words(&self.agent.runtime.log(&id));
        }
        message.truncate(MESSAGE_MAX);
        if !message.is_empty() {
            let text = String::from_utf8_lossy(&message).into_owned();
            self.messages.insert((container.to_owned(), attempt), text);
        }
    }

    /// Writes the status, unless the API has it or it is being written.
    pub(super) fn write_status(&mut self, plan: &Plan, now: Timestamp) {
        let due = match &self.status {
            StatusWrite::Idle => true,
            StatusWrite::Working(_) => false,
            StatusWrite::Failed { until } => now >= *until,
        };
        if !due || self.gone {
            return;
        }
        let same = |change: &serde_json::Value| {
            let now = self.pod.metadata.resource_version.as_ref();
            self.written
                .as_ref()
                .is_some_and(|(written, version)| written == change && version.as_ref() == now)
        };
        let Some(change) = self.status_change(plan, now).filter(|change| !same(change)) else {
            self.status = StatusWrite::Idle;
            return;
        };
        self.status = StatusWrite::Working(Some(change.clone()));
        let (agent, pod) = (self.agent.clone(), self.pod.clone());
        self.tasks.spawn(async move { News::StatusWritten(write_status(&agent, &pod, &change).await) });
    }

    fn status_change(&self, plan: &Plan, now: Timestamp) -> Option<serde_json::Value> {
        let messages = |name: &str, attempt: u32| self.messages.get(&(name.to_owned(), attempt)).cloned();
        let sight = Sight {
            pod: &self.pod,
            plan,
            seen: &self.seen,
            host: &self.agent.addresses,
            addresses: &self.made.addresses,
            messages: &messages,
            now,
        };
        patch(&self.pod, &sight.status()).unwrap_or_else(|cause| {
            tracing::error!(pod = self.name(), cause = chain(&cause), "its status cannot be put into words");
            None
        })
    }

    /// Tells the API that nothing is left, with the last status before.
    pub(super) fn finalise(&mut self) {
        if matches!(self.status, StatusWrite::Working(_)) {
            // Its end is news, and then it is decided again.
            return;
        }
        self.seen.farewell = Setup::Working;
        let change = self.status_change(&self.plan(), Timestamp::now());
        let (agent, pod) = (self.agent.clone(), self.pod.clone());
        self.tasks.spawn(async move {
            let told = async {
                if let Some(change) = change
                    && write_status(&agent, &pod, &change).await?.is_none()
                {
                    return Ok(());
                }
                delete(&agent, &pod).await
            };
            News::Finalised(told.await)
        });
    }
}

fn pods(agent: &Agent, pod: &Pod) -> (Api<Pod>, String) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    (Api::namespaced(agent.client.clone(), namespace), pod.metadata.name.clone().unwrap_or_default())
}

/// Whether the API answers that this pod, not only its name, is no more.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict())
}

async fn write_status(
    agent: &Agent,
    pod: &Pod,
    change: &serde_json::Value,
) -> kube::Result<Option<Arc<Pod>>> {
    let (pods, name) = pods(agent, pod);
    match pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(change)).await {
        Ok(pod) => Ok(Some(Arc::new(pod))),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Writes what the networks gave, if the API does not have it; the pod as it is then.
async fn annotate(agent: &Agent, pod: &Arc<Pod>, made: &Made) -> kube::Result<Arc<Pod>> {
    let key = api::names::annotations::NETWORK_STATUS;
    let known = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key));
    let Some(status) = made.network_status.as_ref().filter(|status| known != Some(status)) else {
        return Ok(pod.clone());
    };
    let (pods, name) = pods(agent, pod);
    let change = json!({ "metadata": { "uid": pod.metadata.uid, "annotations": { key: status } } });
    pods.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.map(Arc::new)
}

async fn delete(agent: &Agent, pod: &Pod) -> kube::Result<()> {
    let (pods, name) = pods(agent, pod);
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let parameters = DeleteParams::default().grace_period(0).preconditions(preconditions);
    match pods.delete(&name, &parameters).await {
        Err(cause) if is_gone(&cause) => Ok(()),
        outcome => outcome.map(drop),
    }
}

async fn signal(agent: &Agent, id: &ContainerId, signal: Signal) -> Result<(), String> {
    agent.runtime.signal(id, signal as i32).await.map_err(|cause| chain(&cause))
}

async fn start(agent: &Agent, pod: &Pod, one: &Mutex<()>, id: &ContainerId) -> Result<State, StartError> {
    let spec = containers(pod).get(id.container.as_str()).copied().cloned().unwrap_or_default();
    let about = || agent.events.about(pod).container(&id.container);
    let refused = |cause: runtime::Error| StartError { reason: reason(&cause), message: chain(&cause) };
    let name = spec.image.clone().unwrap_or_default();
    let image = agent.runtime.images().get(&name).map_err(|cause| refused(cause.into()))?;
    about().normal("Pulled", format!("image {name:?} is on this node"));
    let provided = provide(agent, pod, &spec, &image.configuration, one, id)
        .await
        .map_err(|cause| StartError { reason: "CreateContainerConfigError", message: chain(&cause) })?;
    agent.runtime.start(&describe(pod, &spec, id.clone(), provided)).await.map_err(refused)?;
    about().normal("Created", format!("created container {}", id.container));
    if let Some(hook) = spec.lifecycle.and_then(|lifecycle| lifecycle.post_start)
        && let Err(problem) = run_hook(agent, id, &hook, HOOK).await
    {
        about().warning("FailedPostStartHook", problem);
        signal(agent, id, Signal::SIGKILL)
            .await
            .map_err(|message| StartError { reason: "PostStartHookError", message })?;
    }
    match agent.runtime.state(id).await.map_err(refused)? {
        Some(state) => Ok(state),
        None => Err(StartError {
            reason: "RunContainerError",
            message: "it is gone right after its start".to_owned(),
        }),
    }
}

/// What `kubectl get pod` shows for a container that did not start.
fn reason(error: &runtime::Error) -> &'static str {
    match error {
        runtime::Error::Image(images::Error::Unknown { .. }) => "ErrImageNeverPull",
        runtime::Error::Image(images::Error::Name { .. }) => "InvalidImageName",
        runtime::Error::Run { .. } => "RunContainerError",
        _ => "CreateContainerError",
    }
}

async fn provide(
    agent: &Agent,
    pod: &Pod,
    spec: &Container,
    image: &images::Configuration,
    one: &Mutex<()>,
    id: &ContainerId,
) -> Result<Provided, provision::Error> {
    let provisions = &agent.provisions;
    let environment = provisions.environment(pod, spec).await?;
    let mounts = {
        let _alone = one.lock().await;
        // Once more: what the networks gave is in its files when it starts.
        let published = provisions.publish(pod).await?;
        provisions.mounts(pod, spec, id, &published, &environment)?
    };
    Ok(Provided {
        command: command_line(spec, image, &environment),
        environment,
        mounts,
        network: agent.network.namespace(pod),
        hostname: provisions.hostname(pod),
    })
}

/// Runs what a container wants run inside it around its start and stop.
async fn run_hook(
    agent: &Agent,
    id: &ContainerId,
    hook: &LifecycleHandler,
    limit: Duration,
) -> Result<(), String> {
    if let Some(sleep) = &hook.sleep {
        let wanted = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default());
        tokio::time::sleep(wanted.min(limit)).await;
        return Ok(());
    }
    let Some(exec) = &hook.exec else {
        return Err("this node runs hooks by exec and sleep only".to_owned());
    };
    let command = exec.command.clone().unwrap_or_default();
    match agent.runtime.exec(id, &command, limit).await {
        Ok(result) if result.code == 0 => Ok(()),
        Ok(result) => {
            let output = String::from_utf8_lossy(&result.output);
            Err(format!("{command:?} ended with code {}: {}", result.code, output.trim()))
        }
        Err(cause) => Err(chain(&cause)),
    }
}
