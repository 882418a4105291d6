//! What to do about the migration network next: a function of what is there.
//!
//! ```text
//!  a network is wanted                                 none is wanted
//!    does not fit ─► Validating: nothing changes
//!    a VM moves ───► Applying: waits                     a VM moves ─► Applying: waits
//!    Define, Use ──► Applying                            Leave ──────► Applying
//!    handlers move ► RollingOut 2/5                      handlers leave ► RollingOut 2/5
//!    not proved ───► Verifying                           not ready ──► Verifying
//!    Undefine the old ones, Record ► Ready               Undefine all, Record ► Ready
//! ```
//!
//! Every step is told from the objects alone, so whoever comes after a kill goes on with the same step. What is in effect is never
//! undone because the cluster changed around it: that is said, and left to a person. An old definition goes only from `Ready`,
//! when the new network has been proved and no pod names the old one.

use std::collections::BTreeSet;
use std::time::Duration;

use api::condition::{self, ConditionEntry as _};
use api::harvester::Setting;
use api::kubevirt::KubeVirt;
use api::multus::{NetworkAttachmentDefinition, parse_networks};
use api::names::{annotations, conditions, labels, reasons};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::definition;
use super::phase::Phase;
use crate::admission::Cause;
use crate::admission::setting::{Cluster, MigrationNetwork, read, rules};
use crate::installation::is_behind;
use crate::pod;

/// When to look again for the end of migrations: they change too often to be watched, and are over soon.
const MOVING: Duration = Duration::from_secs(5);
/// And whatever else is waited for. It need not grow: what a phase depends on is watched, so this finds only what slipped by, and
/// other settings and service ranges, which nobody waits for by the second. What fails is tried again sooner, and ever more seldom.
const RESTING: Duration = Duration::from_mins(1);

/// Everything that a decision is made of.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    pub setting: &'a Setting,
    /// Of the installation.
    pub namespace: &'a str,
    pub cluster: &'a Cluster,
    /// Definitions of this setting, wanted and old.
    pub definitions: &'a [NetworkAttachmentDefinition],
    /// Pods of the installation's namespace.
    pub pods: &'a [Pod],
    /// Migrations whose bytes may be under way.
    pub moving: &'a [String],
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the definition.
    Define(Box<NetworkAttachmentDefinition>),
    /// Have `KubeVirt` use this definition.
    Use { installation: Installation, definition: String },
    /// Have `KubeVirt` use none of ours.
    Leave { installation: Installation },
    /// Delete a definition.
    Undefine { name: String, uid: String },
    /// Note on the setting what is in effect.
    Record { hash: Option<String>, definition: Option<String> },
}

/// A `KubeVirt` object: this very one, not another of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub name: String,
    pub uid: String,
}

impl Installation {
    fn of(object: &KubeVirt) -> Self {
        Self { name: object.name_any(), uid: object.uid().unwrap_or_default() }
    }
}

/// What to do, in this order, and what to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub actions: Vec<Action>,
    pub phase: Phase,
    /// In what the network no longer fits its cluster, while it is in effect.
    pub attention: Vec<Cause>,
    /// When to look again if nothing is heard.
    pub again: Duration,
}

impl Decision {
    fn wait(phase: Phase) -> Self {
        Self { actions: Vec::new(), phase, attention: Vec::new(), again: RESTING }
    }

    /// Nothing is written under the feet of what moves.
    fn wait_for(moving: &[String]) -> Self {
        Self { again: MOVING, ..Self::wait(Phase::Applying { waiting_for: moving.to_vec() }) }
    }

    fn act(actions: Vec<Action>) -> Self {
        Self { actions, ..Self::wait(Phase::Applying { waiting_for: Vec::new() }) }
    }
}

pub fn decide(situation: &Situation<'_>) -> Decision {
    let body = &situation.setting.spec;
    let root = if body.value.is_empty() { "default" } else { "value" };
    match read(body.effective_value(), root) {
        Err(causes) => Decision::wait(Phase::Invalid(causes)),
        Ok(None) => remove(situation),
        Ok(Some(network)) => match &situation.cluster.installation {
            Some(installation) => establish(situation, &network, installation, root),
            None => Decision::wait(Phase::NoInstallation),
        },
    }
}

/// A network is wanted.
fn establish(
    situation: &Situation<'_>,
    network: &MigrationNetwork,
    installation: &KubeVirt,
    root: &str,
) -> Decision {
    let name = definition::name(network);
    let in_use = used(installation, situation.namespace) == Some(name.as_str());
    let unfit = rules::judge(network, situation.cluster, root);
    if !in_use && !unfit.is_empty() {
        return Decision::wait(Phase::Validating(unfit));
    }
    if !in_use && !situation.moving.is_empty() {
        return Decision::wait_for(situation.moving);
    }
    let mut decision = Decision::act(Vec::new());
    // Without its cluster network nobody can tell what the definition is to say; it stays as it is.
    if let Some(cluster_network) = situation.cluster.cluster_network(&network.cluster_network) {
        let wanted = definition::render(network, cluster_network, situation.namespace);
        if !situation
            .definitions
            .iter()
            .any(|there| there.name_any() == name && definition::says(there, &wanted))
        {
            decision.actions.push(Action::Define(Box::new(wanted)));
        }
    }
    if !in_use {
        let installation = Installation::of(installation);
        decision.actions.push(Action::Use { installation, definition: name.clone() });
    }
    decision.attention = unfit;
    if !decision.actions.is_empty() {
        return decision;
    }
    let (left, hosts) = missing(situation, &name);
    if !left.is_empty() {
        return Decision { phase: rolling_out(left, hosts, Some(installation)), ..decision };
    }
    if let Some(why) = unproved(installation, true) {
        return Decision { phase: Phase::Verifying(why), ..decision };
    }
    let in_effect = (network.hash(), format!("{}/{name}", situation.namespace));
    let text = format!(
        "virt-handler on {hosts} of {hosts} nodes has an address of {} on {}.",
        network.networks(),
        network.segment()
    );
    finish(situation, Some(&name), Some(in_effect), text, decision)
}

/// No network is wanted.
fn remove(situation: &Situation<'_>) -> Decision {
    let installation = situation.cluster.installation.as_ref();
    let uses_ours =
        |installation: &&KubeVirt| used(installation, situation.namespace).is_some_and(definition::is_ours);
    if let Some(installation) = installation.filter(uses_ours) {
        if !situation.moving.is_empty() {
            return Decision::wait_for(situation.moving);
        }
        return Decision::act(vec![Action::Leave { installation: Installation::of(installation) }]);
    }
    let somebodys = installation.and_then(|installation| {
        let network = installation.spec.migration_network()?;
        Some(format!("{network}, which KubeVirt {} names", installation.name_any()))
    });
    let road = somebodys.unwrap_or_else(|| "the pod network".to_owned());
    let text = format!("No migration network is set: virtual machines move over {road}.");
    let decision = Decision::act(Vec::new());
    if situation.definitions.is_empty() {
        return finish(situation, None, None, text, decision);
    }
    let handlers: Vec<&Pod> = situation.pods.iter().filter(|pod| is_handler(pod)).collect();
    let on_ours =
        |pod: &&&Pod| networks(pod, situation.namespace).iter().any(|name| definition::is_ours(name));
    let still: Vec<String> = handlers.iter().filter(on_ours).map(|pod| place(pod)).collect();
    if !still.is_empty() {
        return Decision { phase: rolling_out(still, handlers.len(), installation), ..decision };
    }
    if let Some(why) = installation.and_then(|installation| unproved(installation, false)) {
        return Decision { phase: Phase::Verifying(why), ..decision };
    }
    finish(situation, None, None, text, decision)
}

/// The wanted state is in effect: what is left of older ones goes, and it is noted.
fn finish(
    situation: &Situation<'_>,
    keep: Option<&str>,
    in_effect: Option<(String, String)>,
    text: String,
    mut decision: Decision,
) -> Decision {
    for old in situation.definitions.iter().filter(|old| Some(old.name_any().as_str()) != keep) {
        let name = old.name_any();
        let on_it = |pod: &&Pod| networks(pod, situation.namespace).contains(&name);
        if let Some(pod) = situation.pods.iter().find(on_it) {
            decision.actions.clear();
            decision.phase = Phase::Verifying(format!("pod {} has not left {name} yet", pod.name_any()));
            return decision;
        }
        if old.metadata.deletion_timestamp.is_none() {
            decision.actions.push(Action::Undefine { name, uid: old.uid().unwrap_or_default() });
        }
    }
    let (hash, definition) = in_effect.unzip();
    let noted = |name: &str| situation.setting.annotations().get(name);
    if noted(annotations::MIGRATION_NETWORK_HASH) != hash.as_ref()
        || noted(annotations::MIGRATION_NETWORK_DEFINITION) != definition.as_ref()
    {
        decision.actions.push(Action::Record { hash, definition });
    }
    Decision { phase: Phase::Ready(text), ..decision }
}

/// The definition that `KubeVirt` uses, if it is of its own namespace.
pub(super) fn used<'a>(installation: &'a KubeVirt, namespace: &str) -> Option<&'a str> {
    let network = installation.spec.migration_network()?;
    match network.split_once('/') {
        Some((of, name)) => (of == namespace).then_some(name),
        None => Some(network),
    }
}

fn is_handler(pod: &Pod) -> bool {
    is_alive(pod) && pod.labels().get(labels::APP).is_some_and(|app| app == labels::APP_HANDLER)
}

/// Whether it may still have its interfaces.
fn is_alive(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The definitions of the installation's namespace that a pod of it names. One that cannot be read names none: no runtime could
/// have attached it.
fn networks(pod: &Pod, namespace: &str) -> BTreeSet<String> {
    let asked = pod.annotations().get(annotations::NETWORKS).filter(|_| is_alive(pod));
    let read = asked.and_then(|asked| parse_networks(asked).ok()).unwrap_or_default();
    let here = |of: &Option<String>| of.as_deref().is_none_or(|of| of == namespace);
    read.into_iter().filter(|network| here(&network.namespace)).map(|network| network.name).collect()
}

/// Where a pod is, or else which it is.
fn place(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    node.unwrap_or_else(|| format!("pod {}", pod.name_any()))
}

/// How far handlers are, and why they come no further, if the installation has given up.
fn rolling_out(left: Vec<String>, of: usize, installation: Option<&KubeVirt>) -> Phase {
    // What it says of an earlier configuration says nothing of this one.
    let stuck = installation.filter(|installation| !is_behind(installation)).and_then(|installation| {
        let said = &installation.status.as_ref()?.conditions;
        let failed = [conditions::AVAILABLE, conditions::DEGRADED]
            .into_iter()
            .filter_map(|type_| condition::find(said, type_))
            .find(|condition| condition.reason() == reasons::DEPLOYMENT_FAILED)?;
        Some(format!("KubeVirt {} says {}: {}", installation.name_any(), failed.reason(), failed.message()))
    });
    Phase::RollingOut { done: of.saturating_sub(left.len()), of, left, stuck }
}

/// The nodes that need the network and have no ready handler with it, and how many need it.
fn missing(situation: &Situation<'_>, name: &str) -> (Vec<String>, usize) {
    let hosts: BTreeSet<String> = situation.cluster.hosts().map(kube::ResourceExt::name_any).collect();
    let there: BTreeSet<&str> = situation
        .pods
        .iter()
        .filter(|pod| is_handler(pod))
        .filter(|pod| pod::is_ready(pod))
        .filter(|pod| networks(pod, situation.namespace).contains(name))
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    let of = hosts.len();
    (hosts.into_iter().filter(|host| !there.contains(host.as_str())).collect(), of)
}

/// Why the installation has not shown that its network works. None: it has.
fn unproved(installation: &KubeVirt, on_network: bool) -> Option<String> {
    let name = installation.name_any();
    let status = installation.status.clone().unwrap_or_default();
    if is_behind(installation) {
        return Some(format!("KubeVirt {name} has not acted on its configuration yet"));
    }
    let say = |type_: &str| {
        let found = condition::find(&status.conditions, type_);
        let why = found.map(|found| [found.reason(), found.message()].join(" ")).unwrap_or_default();
        let state = found.map_or("not there", |found| found.status().as_str());
        format!("condition {type_} of KubeVirt {name} is {state} {}", why.trim()).trim_end().to_owned()
    };
    if !status.all_components_ready() {
        return Some(say(conditions::AVAILABLE));
    }
    let proved = !on_network || condition::is_true(&status.conditions, conditions::MIGRATION_NETWORK_READY);
    (!proved).then(|| say(conditions::MIGRATION_NETWORK_READY))
}

#[cfg(test)]
mod tests;
