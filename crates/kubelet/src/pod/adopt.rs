//! What a worker takes over from an earlier life of the agent: containers of which there is a trace on the node, and those
//! of which only the API still knows. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;

use super::plan::containers;
use super::seen::{Container, Run};
use crate::runtime::{ContainerId, Exit, State};

#[cfg(test)]
mod tests;

/// The reason of an end that nobody saw.
const UNKNOWN: &str = "ContainerStatusUnknown";

/// The containers of a pod. `traces` are all that the runtime has of this pod.
pub fn adopt(
    pod: &Pod,
    mut traces: Vec<(ContainerId, State)>,
    now: Timestamp,
) -> BTreeMap<String, Container> {
    traces.sort_by_key(|(id, _)| id.attempt);
    let mut adopted = BTreeMap::new();
    for (name, spec) in containers(pod) {
        let known = status_of(pod, name);
        let own: Vec<&(ContainerId, State)> = traces.iter().filter(|(id, _)| id.container == name).collect();
        let container = match own.as_slice() {
            [] => known.and_then(|known| from_api(known, now)),
            [earlier @ .., (id, state)] => {
                let previous = earlier.last().and_then(|(_, state)| match state {
                    State::Exited(exit) => Some(exit.clone()),
                    _ => None,
                });
                let mut container = from_trace(id.attempt, state, previous);
                // Probes that had passed are not asked to pass again: nothing has changed for the container.
                let was = |flag: Option<bool>| known.is_some() && flag.unwrap_or_default();
                container.started =
                    spec.startup_probe.is_none() || was(known.and_then(|known| known.started));
                container.ready = spec.readiness_probe.is_none() || was(known.map(|known| known.ready));
                Some(container)
            }
        };
        adopted.extend(container.map(|container| (name.to_owned(), container)));
    }
    adopted
}

fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.rfind(|status| status.name == name)
}

fn from_trace(attempt: u32, state: &State, previous: Option<Exit>) -> Container {
    let mut container =
        Container { attempt: Some(attempt), previous, streak: attempt, ..Container::default() };
    match state {
        // Its start is made again, under the same number.
        State::Created => {}
        State::Running { started, .. } => container.run = Run::Running { since: *started },
        State::Exited(exit) => container.end(exit.clone()),
    }
    container
}

/// A container that was started once and has left no trace: it ended, and all that is known of that is what the API knows.
fn from_api(known: &ContainerStatus, now: Timestamp) -> Option<Container> {
    let attempt = u32::try_from(known.restart_count).unwrap_or_default();
    let state = known.state.as_ref();
    let last =
        known.last_state.as_ref().and_then(|state| state.terminated.as_ref()).map(|last| exit(last, now));
    let terminated = state.and_then(|state| state.terminated.as_ref()).map(|end| exit(end, now));
    let running = state.and_then(|state| state.running.as_ref()).map(|running| Exit {
        code: 137,
        started: running.started_at.as_ref().map_or(now, |time| time.0),
        finished: now,
        reason: UNKNOWN.to_owned(),
    });
    let (end, previous) = match terminated.or(running) {
        Some(end) => (end, last),
        // It waits for its next start: what it had before is its latest.
        None => (last?, None),
    };
    let mut container =
        Container { attempt: Some(attempt), previous, streak: attempt, ..Container::default() };
    container.end(end);
    Some(container)
}

fn exit(end: &ContainerStateTerminated, now: Timestamp) -> Exit {
    Exit {
        code: end.exit_code,
        started: end.started_at.as_ref().map_or(now, |time| time.0),
        finished: end.finished_at.as_ref().map_or(now, |time| time.0),
        reason: end.reason.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
    }
}
