//! What a pod asks of its node, as far as decisions need it: a few plain values, read from the object once.
//!
//! Pure. What only the start of a container needs (images, environments, mounts) stays in the object.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::jiff::Timestamp;

/// Seconds that a pod has for its end unless it says otherwise.
const GRACE: i64 = 30;

/// A pod as decisions see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub init: Vec<Wanted>,
    pub main: Vec<Wanted>,
    pub restart: Restart,
    /// How long a container may take to end when it is asked to.
    pub grace: Duration,
    pub ending: Option<Ending>,
    /// When the pod has run long enough, whatever it does.
    pub deadline: Option<Timestamp>,
    /// The API says how the pod ended: nothing of it ever runs again.
    pub settled: Option<Outcome>,
}

/// A container as decisions see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    /// An init container that goes on beside the others.
    pub sidecar: bool,
    /// How long it may take to end after a probe found it dead; none: as long as the pod says.
    pub grace_when_unhealthy: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

/// Why a pod is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The API waits for us to say that it has.
    Deleted,
    /// The API knows it no longer.
    Gone,
}

/// How a pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
}

impl Plan {
    pub fn of(pod: &Pod, gone: bool) -> Self {
        let spec = pod.spec.as_ref();
        let containers = |of: Option<&Vec<Container>>| of.into_iter().flatten().map(Wanted::of).collect();
        let status = pod.status.as_ref();
        let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let allowed = spec.and_then(|spec| spec.active_deadline_seconds);
        let own_grace = spec.and_then(|spec| spec.termination_grace_period_seconds);
        let grace = pod.metadata.deletion_grace_period_seconds.or(own_grace).unwrap_or(GRACE);
        Self {
            init: containers(spec.and_then(|spec| spec.init_containers.as_ref())),
            main: containers(spec.map(|spec| &spec.containers)),
            restart: match spec.and_then(|spec| spec.restart_policy.as_deref()) {
                Some("OnFailure") => Restart::OnFailure,
                Some("Never") => Restart::Never,
                _ => Restart::Always,
            },
            grace: seconds(grace),
            ending: if gone {
                Some(Ending::Gone)
            } else {
                pod.metadata.deletion_timestamp.is_some().then_some(Ending::Deleted)
            },
            deadline: started.zip(allowed).map(|(started, allowed)| started + seconds(allowed)),
            settled: match status.and_then(|status| status.phase.as_deref()) {
                Some("Succeeded") => Some(Outcome::Succeeded),
                Some("Failed") => Some(Outcome::Failed),
                _ => None,
            },
        }
    }

    /// Init containers that end before the next begins.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = &Wanted> {
        self.init.iter().filter(|wanted| !wanted.sidecar)
    }

    pub fn sidecars(&self) -> impl DoubleEndedIterator<Item = &Wanted> {
        self.init.iter().filter(|wanted| wanted.sidecar)
    }
}

impl Wanted {
    fn of(container: &Container) -> Self {
        let of_probe = |probe: Option<&Probe>| probe?.termination_grace_period_seconds.map(seconds);
        Self {
            name: container.name.clone(),
            sidecar: container.restart_policy.as_deref() == Some("Always"),
            grace_when_unhealthy: of_probe(container.liveness_probe.as_ref())
                .or_else(|| of_probe(container.startup_probe.as_ref())),
        }
    }
}

/// The containers of a pod by name, init containers among them.
pub fn containers(pod: &Pod) -> BTreeMap<&str, &Container> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.map(|container| (container.name.as_str(), container)).collect()
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

/// Whether the pod has a container of this name.
pub fn has_container(pod: &Pod, name: &str) -> bool {
    containers(pod).contains_key(name)
}
