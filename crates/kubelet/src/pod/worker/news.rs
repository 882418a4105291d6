//! What a worker hears, and how that changes its sight of the pod. No effects here but events and the next probes.

use super::{
    Arc, Container, ContainerId, Duration, Exit, Made, Pod, RETRY, Refusal, Run, Setup, State, StatusWrite,
    Timestamp, Worker, chain, doubled, network, probe,
};
use crate::probe::{Health, Kind};
use crate::runtime;

/// The end of something that took time.
pub(super) enum News {
    Volumes(Result<(), String>),
    VolumesReleased(Result<(), String>),
    Sandbox(Result<Sandbox, SandboxError>),
    SandboxReleased(Result<(), network::Error>),
    Started {
        id: ContainerId,
        outcome: Result<State, StartError>,
    },
    Exited {
        id: ContainerId,
        end: Result<Exit, runtime::Error>,
    },
    /// Something that is tried once, and whose failure changes nothing: what had failed.
    Tried(Result<(), String>),
    TracesRemoved(Result<(), String>),
    /// The pod as the API has it now; none: the API has it no longer.
    StatusWritten(Result<Option<Arc<Pod>>, kube::Error>),
    Finalised(Result<(), kube::Error>),
}

/// A sandbox that was made.
pub(super) struct Sandbox {
    pub since: Timestamp,
    pub made: Made,
    /// The pod, which knows of its networks now.
    pub pod: Arc<Pod>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    #[error(transparent)]
    Network(#[from] network::Error),
    #[error("its network-status annotation cannot be written")]
    Annotation(#[source] kube::Error),
}

/// Why a container did not start.
pub(super) struct StartError {
    pub reason: &'static str,
    pub message: String,
}

/// When to try again after so many failures in a row.
pub(super) fn retry(failures: u32) -> Duration {
    doubled(RETRY.0, failures.saturating_sub(1), RETRY.1)
}

/// What becomes of a setup whose making or undoing ended.
fn after(failures: &mut u32, failed: bool, otherwise: Setup) -> Setup {
    if failed {
        *failures = failures.saturating_add(1);
        Setup::Doubtful { until: Timestamp::now() + retry(*failures) }
    } else {
        *failures = 0;
        otherwise
    }
}

impl Worker {
    pub(super) fn hear(&mut self, news: News) {
        let failures = &mut self.failures;
        match news {
            News::Volumes(outcome) => {
                self.seen.volumes = after(&mut failures.volumes, outcome.is_err(), Setup::Ready);
                self.tell_failure("FailedMount", "volumes", outcome.err());
            }
            News::VolumesReleased(outcome) => {
                self.seen.volumes = after(&mut failures.volumes, outcome.is_err(), Setup::Absent);
                self.tell_failure("FailedUnmount", "releasing volumes", outcome.err());
            }
            News::Sandbox(outcome) => {
                self.seen.sandbox = after(&mut failures.sandbox, outcome.is_err(), Setup::Ready);
                match outcome {
                    Ok(Sandbox { since, made, pod }) => {
                        (self.seen.sandbox_since, self.made) = (Some(since), made);
                        self.take_pod(pod);
                    }
                    Err(cause) => {
                        self.tell_failure("FailedCreatePodSandBox", "its network", Some(chain(&cause)));
                    }
                }
            }
            News::SandboxReleased(outcome) => {
                self.seen.sandbox = after(&mut failures.sandbox, outcome.is_err(), Setup::Absent);
                let failure = outcome.err().map(|cause| chain(&cause));
                self.tell_failure("FailedKillPod", "releasing its network", failure);
            }
            News::Started { id, outcome } => self.hear_start(&id, outcome),
            News::Exited { id, end } => self.hear_exit(&id, end),
            News::Tried(Ok(())) => {}
            News::Tried(Err(failure)) => tracing::warn!(pod = self.name(), failure),
            News::TracesRemoved(outcome) => {
                self.seen.traces = after(&mut failures.traces, outcome.is_err(), Setup::Absent);
                self.tell_failure("FailedKillPod", "removing its containers", outcome.err());
            }
            News::StatusWritten(outcome) => self.hear_status(outcome),
            News::Finalised(outcome) => {
                self.seen.farewell = after(&mut failures.farewell, outcome.is_err(), Setup::Ready);
                if let Err(cause) = outcome {
                    tracing::warn!(
                        pod = self.name(),
                        cause = chain(&cause),
                        "the API cannot be told that it ended"
                    );
                }
            }
        }
    }

    /// Tells what failed for the pod, if something did.
    fn tell_failure(&self, reason: &'static str, what: &str, failure: Option<String>) {
        let Some(failure) = failure else { return };
        let message = format!("pod {}: {what}: {failure}", self.name());
        tracing::warn!(reason, message);
        if !self.gone {
            self.agent.events.about(&self.pod).warning(reason, message);
        }
    }

    fn hear_status(&mut self, outcome: Result<Option<Arc<Pod>>, kube::Error>) {
        let working = std::mem::replace(&mut self.status, StatusWrite::Idle);
        match outcome {
            Ok(pod) => {
                self.failures.status = 0;
                if let Some(pod) = pod {
                    if let StatusWrite::Working(Some(change)) = working {
                        self.written = Some((change, pod.metadata.resource_version.clone()));
                    }
                    self.take_pod(pod);
                }
            }
            Err(cause) => {
                self.failures.status = self.failures.status.saturating_add(1);
                tracing::warn!(pod = self.name(), cause = chain(&cause), "its status cannot be written");
                self.status = StatusWrite::Failed { until: Timestamp::now() + retry(self.failures.status) };
            }
        }
    }

    /// The container that this is about, unless it is of an attempt that is behind us.
    fn current(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.seen.containers.get_mut(&id.container).filter(|container| container.attempt == Some(id.attempt))
    }

    fn hear_start(&mut self, id: &ContainerId, outcome: Result<State, StartError>) {
        let started = matches!(outcome, Ok(State::Running { .. } | State::Exited(_)));
        let spec =
            super::containers(&self.pod).get(id.container.as_str()).copied().cloned().unwrap_or_default();
        let Some(container) = self.current(id) else { return };
        match outcome {
            Ok(State::Running { started, .. }) => {
                container.run = Run::Running { since: started };
                (container.started, container.ready) =
                    (spec.startup_probe.is_none(), spec.readiness_probe.is_none());
                self.watch(&id.container, id.attempt);
            }
            Ok(State::Exited(exit)) => self.hear_exit(id, Ok(exit)),
            Ok(State::Created) => {
                self.refuse(id, "CreateContainerError", "its start was given up half-way".to_owned());
            }
            Err(StartError { reason, message }) => self.refuse(id, reason, message),
        }
        if started {
            let about = self.agent.events.about(&self.pod).container(&id.container);
            about.normal("Started", format!("started container {}", id.container));
        }
    }

    fn refuse(&mut self, id: &ContainerId, reason: &'static str, message: String) {
        let about = self.agent.events.about(&self.pod).container(&id.container);
        about.warning("Failed", format!("{reason}: {message}"));
        let Some(container) = self.current(id) else { return };
        let times = container.refused.saturating_add(1);
        container.refused = times;
        let until = Timestamp::now() + retry(times);
        container.run = Run::Refused(Refusal { reason, message, until });
    }

    fn hear_exit(&mut self, id: &ContainerId, end: Result<Exit, runtime::Error>) {
        let exit = match end {
            Ok(exit) => exit,
            Err(cause) => {
                // All that is sure is that nobody can say anything of it any more.
                tracing::warn!(%id, cause = chain(&cause), "how it ended is not known");
                let Some(Run::Running { since }) = self.current(id).map(|container| container.run.clone())
                else {
                    return;
                };
                let reason = "ContainerStatusUnknown".to_owned();
                Exit { code: 137, started: since, finished: Timestamp::now(), reason }
            }
        };
        for probe in self.probes.remove(&id.container).unwrap_or_default() {
            probe.abort();
        }
        self.remember_message(&id.container, id.attempt, &exit);
        let ending = self.plan().ending.is_some();
        let Some(container) = self.current(id) else { return };
        container.end(exit);
        container.refused = 0;
        let delay = container.delay();
        if !ending && !delay.is_zero() {
            let about = self.agent.events.about(&self.pod).container(&id.container);
            let text = format!("back-off {} s restarting failed container {}", delay.as_secs(), id.container);
            about.warning("BackOff", text);
        }
    }

    pub(super) fn hear_probe(&mut self, told: probe::Told) {
        let kind = told.kind;
        let Some(container) = self.current(&told.container).filter(|container| container.is_alive()) else {
            return;
        };
        let mut failed = false;
        match told.news {
            probe::News::Failed(cause) => {
                let about = self.agent.events.about(&self.pod).container(&told.container.container);
                about.warning("Unhealthy", format!("{} probe failed: {cause}", kind.name()));
            }
            probe::News::Health(health) => {
                let good = health == Health::Success;
                match kind {
                    Kind::Readiness => container.ready = good,
                    Kind::Startup if good => container.started = true,
                    Kind::Startup | Kind::Liveness => (container.unhealthy, failed) = (!good, !good),
                }
                if kind == Kind::Startup && good {
                    self.ask_probes(&told.container.container, told.container.attempt);
                }
            }
        }
        if failed {
            let name = &told.container.container;
            let text = format!(
                "container {name} failed its {} probe and will be stopped",
                kind.name().to_lowercase()
            );
            self.agent.events.about(&self.pod).container(name).normal("Killing", text);
        }
    }
}
