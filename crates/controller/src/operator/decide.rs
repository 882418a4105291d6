//! What is to become of virt-handler, and what the installation's status says: a function of what is there.
//!
//! ```text
//!  template changed ──► canary: one pod at a time ──one updated pod is ready──► ten in a hundred ──all are──► they reach each other:
//!                            │                                                        │                      done, and one at a time again
//!                            └────────── an updated pod does not become ready ────────┴──► Degraded; nothing more is replaced
//! ```
//!
//! That handlers reach each other is asked once a roll-out: a node that is cut off later is named, and the others go on. A node that
//! does not answer keeps nobody waiting: nothing moves from it or to it, and its handler is looked at when it is back.
//!
//! Nothing is remembered: how far a roll-out is shows in the pods, each of which carries the hash of the template that it was made
//! from. The DaemonSet controller never takes away more than the pace allows, so a canary that fails stops the roll-out by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::condition::{self, ConditionStatus, Observed};
use api::godwit::RoadReport;
use api::kubevirt::{KubeVirt, KubeVirtPhase, KubeVirtStatus};
use api::multus::full_name;
use api::names::{annotations, conditions, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use super::network::{self, Judgement, Place};
use super::render::{Rendered, pace, render};
use crate::Error;
use crate::pod::is_ready;

/// How long an updated pod may take to become ready.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);
/// How soon it is looked again at what time alone changes: pods that take too long, reports that grow old.
const AGAIN: Duration = Duration::from_secs(10);
/// Why a container waits, if it does not get better by waiting.
const HOPELESS: [&str; 7] = [
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];
const CANARY: IntOrString = IntOrString::Int(1);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether the migration network's definition exists; true if none is asked for.
    pub definition_exists: bool,
    pub handlers: Option<DaemonSet>,
    /// The pods of the DaemonSet on nodes that answer.
    pub pods: Vec<Arc<Pod>>,
    /// Those on other nodes.
    pub lost: Vec<Arc<Pod>>,
    /// What nodes' handlers report, by node.
    pub reports: BTreeMap<String, RoadReport>,
}

/// What is to be done, and what to say.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The DaemonSet as it should be; none: it is left as it is.
    pub apply: Option<DaemonSet>,
    pub status: KubeVirtStatus,
    pub again: Duration,
}

/// How a roll-out goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Complete,
    /// And how far it is.
    Under(String),
    /// And why it cannot go on.
    Stuck(String),
}

/// Decides.
pub fn decide(installation: &KubeVirt, seen: &Seen, now: Timestamp) -> Result<Decision, Error> {
    let given = installation.spec.migration_network();
    let namespace = installation.namespace().unwrap_or_default();
    let wanted = given.map(|network| full_name(network, &namespace));
    let missing = wanted.as_deref().filter(|_| !seen.definition_exists);
    // Without its definition the network cannot be attached. Handlers are needed all the same; those that are there stay.
    let Rendered { mut set, id } = render(installation, given.filter(|_| missing.is_none()))?;
    let judgement = match missing {
        Some(network) => Judgement {
            status: ConditionStatus::False,
            reason: reasons::DEFINITION_NOT_FOUND,
            message: format!("The NetworkAttachmentDefinition {network} does not exist."),
        },
        None => judge(wanted.as_deref(), seen, &id, now),
    };
    let done = installation.status.as_ref().and_then(|status| status.observed_deployment_id.as_ref());
    let progress = match missing {
        Some(network) => Progress::Stuck(format!(
            "{}: the NetworkAttachmentDefinition {network} does not exist; make it, or name another",
            field(installation)
        )),
        None => match progress(seen, &id, now) {
            Progress::Complete if done != Some(&id) && judgement.status != ConditionStatus::True => {
                Progress::Under(format!("all virt-handler are ready. {}", judgement.message))
            }
            progress => progress,
        },
    };
    let ready = seen.pods.iter().filter(|pod| is_updated(pod, &id) && is_ready(pod)).count();
    pace(&mut set, pace_of(&progress, ready));
    let mut status = installation.status.clone().unwrap_or_default();
    describe(&mut status, &progress, &id, seen, now);
    status.observed_generation = installation.metadata.generation;
    observe(
        &mut status,
        conditions::MIGRATION_NETWORK_READY,
        judgement.status,
        judgement.reason,
        &judgement.message,
        now,
    );
    let apply = (missing.is_none() || seen.handlers.is_none()).then_some(set);
    Ok(Decision { apply, status, again: AGAIN })
}

/// What a second installation is told.
pub fn stand_back(installation: &KubeVirt, active: &str, now: Timestamp) -> KubeVirtStatus {
    let mut status = installation.status.clone().unwrap_or_default();
    let message = format!("There is an active KubeVirt deployment: {active}. Remove one of them.");
    let reason = reasons::EXISTING_DEPLOYMENT;
    observe(&mut status, conditions::SYNCHRONIZED, ConditionStatus::False, reason, &message, now);
    status.observed_generation = installation.metadata.generation;
    status
}

/// The field that names the migration network.
pub fn field(installation: &KubeVirt) -> &'static str {
    let configuration = installation.spec.configuration.as_ref();
    let flat = configuration.and_then(|configuration| configuration.migrations.as_ref()?.network.as_deref());
    if flat.is_some_and(|network| !network.is_empty()) {
        "spec.configuration.migrations.network"
    } else {
        "spec.configuration.network.roles[0].networkAttachmentDefinition"
    }
}

fn pace_of(progress: &Progress, ready: usize) -> IntOrString {
    match progress {
        Progress::Under(_) if ready > 0 => IntOrString::String("10%".to_owned()),
        _ => CANARY,
    }
}

fn progress(seen: &Seen, id: &str, now: Timestamp) -> Progress {
    let of = desired(seen);
    let updated = || seen.pods.iter().filter(|pod| is_updated(pod, id));
    let ready = updated().filter(|pod| is_ready(pod)).count();
    if let Some(why) = updated().find_map(|pod| stuck(pod, seen, now)) {
        return Progress::Stuck(why);
    }
    let others = seen.pods.iter().any(|pod| !is_updated(pod, id));
    match of {
        Some(of) if ready >= of && !others => Progress::Complete,
        of => {
            let of = of.unwrap_or(seen.pods.len());
            Progress::Under(format!("{ready} of {of} virt-handler are updated and ready."))
        }
    }
}

/// How many pods there should be on nodes that answer; none while the DaemonSet controller has not looked at the DaemonSet as it is.
fn desired(seen: &Seen) -> Option<usize> {
    let set = seen.handlers.as_ref()?;
    let status =
        set.status.as_ref().filter(|status| status.observed_generation == set.metadata.generation)?;
    let of_all = usize::try_from(status.desired_number_scheduled).ok()?;
    Some(of_all.saturating_sub(seen.lost.len()))
}

fn is_updated(pod: &Pod, id: &str) -> bool {
    pod.annotations().get(annotations::INSTALL_STRATEGY_IDENTIFIER).is_some_and(|of| of == id)
}

/// Why a pod will not become ready, if it will not.
fn stuck(pod: &Pod, seen: &Seen, now: Timestamp) -> Option<String> {
    if is_ready(pod) || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
    let waiting = statuses.unwrap_or_default().iter().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        waiting.reason.as_deref().filter(|reason| HOPELESS.contains(reason))
    });
    let since = unready_since(pod)?;
    let late = now.duration_since(since) > PATIENCE;
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let reported = seen.reports.get(node).and_then(|report| report.problem.as_deref());
    let why = match (waiting, reported) {
        (Some(reason), _) => reason.to_owned(),
        _ if !late => return None,
        (None, reported) => {
            let said = unstarted(pod).or_else(|| reported.map(ToOwned::to_owned));
            said.unwrap_or_else(|| "it was not ready in time".to_owned())
        }
    };
    Some(format!("{} on {node} does not become ready: {why}", pod.name_any()))
}

/// Why a pod has not started, if it has not: without its networks, of which the first gives it its address, no container is made. What
/// is wrong with them is in its events alone.
fn unstarted(pod: &Pod) -> Option<String> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref());
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    address.is_none().then(|| {
        format!("its handler's pod has no network yet; `kubectl -n {namespace} describe pod {name}` says why")
    })
}

fn unready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let changed = ready.and_then(|condition| condition.last_transition_time.as_ref());
    changed.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// The conditions that KubeVirt has, as KubeVirt sets them.
fn describe(status: &mut KubeVirtStatus, progress: &Progress, id: &str, seen: &Seen, now: Timestamp) {
    use ConditionStatus::{False, True};
    let installed = status.observed_deployment_id.is_some();
    if seen.handlers.is_some() {
        let message = "All resources were created.";
        observe(status, conditions::CREATED, True, reasons::ALL_RESOURCES_CREATED, message, now);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    status.operator_version = Some(version.clone());
    status.target_kube_virt_version = Some(version.clone());
    status.target_deployment_id = Some(id.to_owned());
    let (reason, message, [available, progressing, degraded]) = match progress {
        Progress::Complete => {
            status.phase = Some(KubeVirtPhase::Deployed);
            status.observed_kube_virt_version = Some(version);
            status.observed_deployment_id = Some(id.to_owned());
            (reasons::ALL_COMPONENTS_READY, "All components are ready.".to_owned(), [True, False, False])
        }
        Progress::Under(how_far) if installed => {
            (reasons::UPDATE_IN_PROGRESS, format!("Updating: {how_far}"), [True, True, True])
        }
        Progress::Under(how_far) => {
            let message = format!("Deploying version {version}: {how_far}");
            (reasons::DEPLOYMENT_IN_PROGRESS, message, [False, True, False])
        }
        Progress::Stuck(why) => {
            let message = format!("An error occurred during deployment: {why}");
            (reasons::DEPLOYMENT_FAILED, message, [False, False, True])
        }
    };
    if status.phase.is_none() {
        status.phase = Some(KubeVirtPhase::Deploying);
    }
    observe(status, conditions::AVAILABLE, available, reason, &message, now);
    observe(status, conditions::PROGRESSING, progressing, reason, &message, now);
    observe(status, conditions::DEGRADED, degraded, reason, &message, now);
    // Set only when it does not hold, as KubeVirt does.
    if matches!(progress, Progress::Stuck(_)) {
        observe(status, conditions::SYNCHRONIZED, False, reason, &message, now);
    } else {
        condition::remove(&mut status.conditions, conditions::SYNCHRONIZED);
    }
}

fn judge(wanted: Option<&str>, seen: &Seen, id: &str, now: Timestamp) -> Judgement {
    let node_of = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    let present = seen.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let places: BTreeMap<String, Place> = present
        .filter_map(|pod| {
            let node = node_of(pod)?;
            let report = seen.reports.get(&node).cloned();
            Some((node, Place { updated: is_updated(pod, id), unstarted: unstarted(pod), report }))
        })
        .collect();
    let missing = desired(seen).unwrap_or_default().saturating_sub(places.len());
    let mut judgement = network::judge(wanted, &places, missing, now);
    let lost: Vec<String> = seen.lost.iter().filter_map(|pod| node_of(pod)).collect();
    if !lost.is_empty() {
        let told = judgement.message;
        judgement.message = format!("{told} Nodes that do not answer are not asked: {}.", lost.join(", "));
    }
    judgement
}

fn observe(
    status: &mut KubeVirtStatus,
    type_: &str,
    holds: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let observed = Observed { type_, status: holds, reason, message };
    condition::set(&mut status.conditions, &observed, now);
}

#[cfg(test)]
mod tests;
