//! The status of a pod, as the API is to have it. Pure: made from what there is, never from what the status said before,
//! but for times that only it remembers.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::decide::{is_initialised, outcome};
use super::plan::{Outcome, Plan, Restart, Wanted};
use super::seen::{Container, Run, Seen, Setup};
use crate::runtime::{ContainerId, Exit};

mod conditions;
#[cfg(test)]
mod tests;

/// Everything that a status is made from.
pub struct Sight<'a> {
    pub pod: &'a Pod,
    pub plan: &'a Plan,
    pub seen: &'a Seen,
    /// Addresses of the node.
    pub host: &'a [IpAddr],
    /// Addresses of the pod; of a pod in the node's own network, the node's.
    pub addresses: &'a [IpAddr],
    /// What containers left in their termination logs, by name and attempt.
    pub messages: &'a dyn Fn(&str, u32) -> Option<String>,
    pub now: Timestamp,
}

impl Sight<'_> {
    pub fn status(&self) -> PodStatus {
        let spec = self.pod.spec.as_ref();
        let statuses = |of: Option<&Vec<k8s_openapi::api::core::v1::Container>>| {
            let list: Vec<ContainerStatus> =
                of.into_iter().flatten().map(|container| self.container(container)).collect();
            (!list.is_empty()).then_some(list)
        };
        let phase = self.phase();
        let overdue = phase == "Failed" && self.plan.deadline.is_some_and(|deadline| self.now >= deadline);
        let known = self.known();
        let (reason, message) = if overdue {
            let text = "the pod ran longer than spec.activeDeadlineSeconds allows";
            (Some("DeadlineExceeded".to_owned()), Some(text.to_owned()))
        } else {
            // Whoever evicted it said why.
            known.map(|known| (known.reason.clone(), known.message.clone())).unwrap_or_default()
        };
        PodStatus {
            phase: Some(phase.to_owned()),
            reason,
            message,
            start_time: known.and_then(|known| known.start_time.clone()).or(Some(Time(self.now))),
            host_ip: self.host.first().map(ToString::to_string),
            host_ips: Some(self.host.iter().map(|ip| HostIP { ip: ip.to_string() }).collect()),
            pod_ip: self.addresses.first().map(ToString::to_string),
            pod_ips: Some(self.addresses.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()),
            init_container_statuses: statuses(spec.and_then(|spec| spec.init_containers.as_ref())),
            container_statuses: statuses(spec.map(|spec| &spec.containers)),
            observed_generation: self.pod.metadata.generation,
            conditions: Some(self.conditions(phase)),
            ..PodStatus::default()
        }
    }

    /// What the API has now.
    fn known(&self) -> Option<&PodStatus> {
        self.pod.status.as_ref()
    }

    fn phase(&self) -> &'static str {
        // Until all that ran has ended, the pod is not done, whatever is already certain.
        match outcome(self.plan, self.seen, self.now).filter(|_| !self.seen.is_alive()) {
            Some(Outcome::Succeeded) => return "Succeeded",
            Some(Outcome::Failed) => return "Failed",
            None => {}
        }
        if self.plan.ending.is_some() && !self.seen.is_alive() && self.has_run() {
            // It was cut short: what did not end well did not succeed.
            return "Failed";
        }
        if self.has_run() { "Running" } else { "Pending" }
    }

    /// Whether the initialisation is behind it and every main container was at least once started.
    fn has_run(&self) -> bool {
        let main = || self.plan.main.iter().map(|wanted| self.seen.container(&wanted.name));
        let ran = |container: &Container| {
            matches!(container.run, Run::Running { .. } | Run::Ended(_)) || container.previous.is_some()
        };
        is_initialised(self.plan, self.seen) && main().all(|container| ran(&container))
    }

    fn container(&self, spec: &k8s_openapi::api::core::v1::Container) -> ContainerStatus {
        let container = self.seen.container(&spec.name);
        let attempt = container.attempt.unwrap_or_default();
        let state = self.state(&spec.name, &container);
        let is_waiting = state.waiting.is_some();
        let last = match (&container.run, &container.previous) {
            (Run::Ended(exit), _) if is_waiting => Some((exit, attempt)),
            (_, Some(exit)) => Some((exit, attempt.saturating_sub(1))),
            (_, None) => None,
        };
        let running = state.running.is_some();
        let step = self.plan.steps().any(|wanted| wanted.name == spec.name);
        let image = spec.image.clone().unwrap_or_default();
        let made = container.attempt.filter(|_| !matches!(container.run, Run::Refused(_)));
        ContainerStatus {
            name: spec.name.clone(),
            image_id: made.map(|_| image.clone()).unwrap_or_default(),
            image,
            container_id: made.map(|attempt| self.container_id(&spec.name, attempt)),
            ready: if step {
                container.exit().is_some_and(|exit| exit.code == 0)
            } else {
                running && container.ready
            },
            started: Some(running && container.started),
            restart_count: i32::try_from(attempt).unwrap_or(i32::MAX),
            // The API always has one, if only an empty one.
            last_state: Some(
                last.map(|(exit, attempt)| self.terminated(&spec.name, attempt, exit)).unwrap_or_default(),
            ),
            state: Some(state),
            ..ContainerStatus::default()
        }
    }

    fn state(&self, name: &str, container: &Container) -> ContainerState {
        match &container.run {
            Run::Running { since } => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
                ..ContainerState::default()
            },
            Run::Ended(exit) if !self.is_waiting_to_restart(name, container) => {
                self.terminated(name, container.attempt.unwrap_or_default(), exit)
            }
            Run::Ended(_) => waiting(
                "CrashLoopBackOff",
                format!(
                    "back-off {}s restarting failed container={name} pod={}",
                    container.delay().as_secs(),
                    self.name()
                ),
            ),
            Run::Refused(refusal) => waiting(refusal.reason, refusal.message.clone()),
            Run::Never | Run::Starting => {
                let main = self.plan.main.iter().any(|wanted| wanted.name == name);
                let initialising =
                    main && !self.plan.init.is_empty() && !is_initialised(self.plan, self.seen);
                let reason = if initialising || self.seen.sandbox == Setup::Ready && self.is_later_step(name)
                {
                    "PodInitializing"
                } else {
                    "ContainerCreating"
                };
                ContainerState {
                    waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message: None }),
                    ..ContainerState::default()
                }
            }
        }
    }

    /// Whether it is an init container whose turn is yet to come.
    fn is_later_step(&self, name: &str) -> bool {
        let waiting = |wanted: &&Wanted| self.seen.container(&wanted.name).run == Run::Never;
        let next = self.plan.init.iter().find(waiting);
        self.plan.init.iter().any(|wanted| wanted.name == name) && next.is_some_and(|next| next.name != name)
    }

    /// Whether it ended, is to run again, and waits for that.
    fn is_waiting_to_restart(&self, name: &str, container: &Container) -> bool {
        let Some(exit) = container.exit() else { return false };
        let over = self.plan.ending.is_some() || outcome(self.plan, self.seen, self.now).is_some();
        let again = match self.plan.restart {
            _ if self.plan.sidecars().any(|wanted| wanted.name == name) => true,
            Restart::Always => !(self.plan.steps().any(|wanted| wanted.name == name) && exit.code == 0),
            Restart::OnFailure => exit.code != 0,
            Restart::Never => false,
        };
        !over && again && !container.delay().is_zero()
    }

    fn terminated(&self, name: &str, attempt: u32, exit: &Exit) -> ContainerState {
        let terminated = ContainerStateTerminated {
            exit_code: exit.code,
            reason: Some(exit.reason.clone()),
            message: (self.messages)(name, attempt),
            started_at: Some(Time(exit.started)),
            finished_at: Some(Time(exit.finished)),
            container_id: Some(self.container_id(name, attempt)),
            signal: None,
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }

    fn container_id(&self, container: &str, attempt: u32) -> String {
        let pod = self.pod.metadata.uid.clone().unwrap_or_default();
        format!("runc://{}", ContainerId { pod, container: container.to_owned(), attempt })
    }

    fn name(&self) -> String {
        let metadata = &self.pod.metadata;
        format!(
            "{}_{}",
            metadata.name.as_deref().unwrap_or_default(),
            metadata.namespace.as_deref().unwrap_or_default()
        )
    }
}

fn waiting(reason: &str, message: String) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: Some(message) };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// What of the status is the node's to say.
const OURS: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "startTime",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
    "observedGeneration",
    "conditions",
];

/// The change from what the API has to what it should have, as a strategic merge patch; none: it has it.
pub fn patch(pod: &Pod, wanted: &PodStatus) -> Result<Option<Value>, serde_json::Error> {
    let known = serde_json::to_value(pod.status.clone().unwrap_or_default())?;
    let wanted = serde_json::to_value(wanted)?;
    let mut changed = Map::new();
    for key in OURS {
        // An empty list and none are the same to everyone.
        let value =
            |of: &Value| of.get(key).filter(|value| **value != json!([])).cloned().unwrap_or_default();
        let (known, mut wanted) = (value(&known), value(&wanted));
        if key == "conditions" {
            // Only those that changed: the others may be somebody else's.
            let known = known.as_array().cloned().unwrap_or_default();
            let list = wanted.as_array().cloned().unwrap_or_default().into_iter();
            let mut list: Vec<Value> = list.filter(|condition| !known.contains(condition)).collect();
            for condition in &mut list {
                // Merged by type: what is not said would stay as it was.
                for key in ["reason", "message"] {
                    if condition.get(key).is_none() {
                        condition[key] = Value::Null;
                    }
                }
            }
            if !list.is_empty() {
                changed.insert(key.to_owned(), Value::Array(list));
            }
            continue;
        }
        if known != wanted {
            if key == "podIPs"
                && let Some(list) = wanted.as_array_mut()
            {
                // Merged by address otherwise, so that an old one would stay.
                list.insert(0, json!({ "$patch": "replace" }));
            }
            changed.insert(key.to_owned(), wanted);
        }
    }
    if changed.is_empty() {
        return Ok(None);
    }
    // The name may be another pod's by the time that this arrives.
    Ok(Some(json!({ "metadata": { "uid": pod.metadata.uid }, "status": changed })))
}
