//! DaemonSets: one pod a node. What to do is decided in [`rollout`]; this file finds out how things are, does it, and
//! says how far it got.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde_json::json;

use crate::Error;
use crate::cluster::{Agenda, Cluster, Controller};
use crate::herald::Herald;
use crate::owner::{amount, by_controller, claim, count};
use crate::pods;

mod history;
mod rollout;
mod template;

use history::{Current, current, expired, hash_of};
use rollout::{Limits, Member, Place, State, plan};
use template::{HASH, pod_for, suits, target};

/// The first pause before a pod that failed is replaced; it doubles with each failure, up to the longest.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(1);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(15);

pub struct DaemonSets {
    cluster: Arc<Cluster>,
    herald: Herald,
    /// Sets and nodes whose pods fail: the length of the last pause, and its end. Forgotten by a restart, which does
    /// no harm.
    pauses: HashMap<(String, String), (SignedDuration, Timestamp)>,
}

impl DaemonSets {
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { herald: cluster.herald("daemonset-controller"), cluster, pauses: HashMap::new() }
    }

    async fn sync(
        &mut self,
        set: &DaemonSet,
        nodes: &[Arc<Node>],
        pods: &HashMap<String, Vec<Arc<Pod>>>,
        revisions: &HashMap<String, Vec<Arc<ControllerRevision>>>,
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let selector = set.spec.as_ref().map(|spec| &spec.selector);
        let pods = claim(set, selector, &self.cluster.pods, pods).await?;
        let revisions = claim(set, selector, &self.cluster.revisions, revisions).await?;
        let current = self.current_revision(set, &revisions).await?;
        let hash = hash_of(&current).to_owned();
        if set.metadata.deletion_timestamp.is_none() {
            let places = places(set, &hash, nodes, &pods, agenda);
            let wanted = plan(&places, limits(set, &places));
            for node in wanted.create {
                let pod = self.cluster.pods.create(&pod_for(set, &hash, &node)).await?;
                let note = format!("Created pod: {}", pod.name_any());
                self.herald.note(set, "SuccessfulCreate", note).await;
            }
            for index in wanted.delete {
                self.end(set, &pods[index]).await?;
            }
            for index in wanted.replace {
                if self.may_replace(set, &pods[index], agenda) {
                    self.end(set, &pods[index]).await?;
                }
            }
            self.forget_old(set, &revisions, &current, &pods).await?;
        }
        self.report(set, &hash, nodes, agenda).await
    }

    async fn current_revision(
        &self,
        set: &DaemonSet,
        revisions: &[Arc<ControllerRevision>],
    ) -> Result<Arc<ControllerRevision>, Error> {
        match current(set, revisions) {
            Current::Is(revision) => Ok(revision),
            Current::Renumber(revision, number) => {
                self.cluster.revisions.patch(&revision, json!({"revision": number})).await
            }
            Current::Create(revision) => match self.cluster.revisions.create(&revision).await {
                // The name belongs to another template: another count of collisions makes another name.
                Err(error) if error.code() == Some(409) => {
                    let mut marked = set.clone();
                    let status = marked.status.get_or_insert_default();
                    status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
                    self.cluster.daemon_sets.replace_status(&marked).await?;
                    Err(error)
                }
                made => made,
            },
        }
    }

    async fn end(&self, set: &DaemonSet, pod: &Pod) -> Result<(), Error> {
        self.cluster.pods.delete(pod, None).await?;
        self.herald.note(set, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any())).await;
        Ok(())
    }

    /// Whether a pod that ended may be replaced now; if not, when.
    fn may_replace(&mut self, set: &DaemonSet, pod: &Pod, agenda: &mut Agenda) -> bool {
        let now = agenda.now;
        self.pauses.retain(|_, (_, until)| *until + LONGEST_PAUSE > now);
        let key = (set.uid().unwrap_or_default(), target(pod).unwrap_or_default().to_owned());
        match self.pauses.get(&key) {
            Some((_, until)) if *until > now => {
                agenda.at(*until);
                false
            }
            known => {
                let length = known.map_or(FIRST_PAUSE, |(length, _)| (*length * 2).min(LONGEST_PAUSE));
                self.pauses.insert(key, (length, now + length));
                true
            }
        }
    }

    async fn forget_old(
        &self,
        set: &DaemonSet,
        revisions: &[Arc<ControllerRevision>],
        current: &ControllerRevision,
        pods: &[Arc<Pod>],
    ) -> Result<(), Error> {
        let used: BTreeSet<&str> =
            pods.iter().filter_map(|pod| pods::labels(pod).get(HASH)).map(String::as_str).collect();
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        for old in expired(revisions, &current.name_any(), &used, limit.try_into().unwrap_or_default()) {
            self.cluster.revisions.delete(&old, None).await?;
        }
        Ok(())
    }

    async fn report(
        &self,
        set: &DaemonSet,
        hash: &str,
        nodes: &[Arc<Node>],
        agenda: &mut Agenda,
    ) -> Result<(), Error> {
        let uid = set.uid().unwrap_or_default();
        let pods = by_controller(&self.cluster.pods.all()).remove(&uid).unwrap_or_default();
        let mut reported =
            match self.cluster.daemon_sets.get(&set.namespace().unwrap_or_default(), &set.name_any()) {
                Some(known) => (*known).clone(),
                None => return Ok(()),
            };
        let places = places(set, hash, nodes, &pods, agenda);
        let status = status(set, &places, &pods, reported.status.as_ref());
        if reported.status.as_ref() == Some(&status) {
            return Ok(());
        }
        reported.status = Some(status);
        self.cluster.daemon_sets.replace_status(&reported).await.map(|_| ())
    }
}

fn state(pod: &Pod, least: i32, now: Timestamp) -> State {
    if pods::is_terminating(pod) {
        State::Leaving
    } else if pods::is_finished(pod) {
        State::Finished
    } else if pods::is_available(pod, least, now) {
        State::Available
    } else {
        State::Unavailable
    }
}

/// Every node, with the set's pods that are there or on their way.
fn places(
    set: &DaemonSet,
    hash: &str,
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    agenda: &mut Agenda,
) -> Vec<Place<usize>> {
    let least = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    let mut places: Vec<Place<usize>> = nodes
        .iter()
        .map(|node| {
            let (may_start, may_stay) = suits(set, node);
            Place { node: node.name_any(), may_start, may_stay, members: Vec::new() }
        })
        .collect();
    let mut order: Vec<usize> = (0..pods.len()).collect();
    order.sort_by_key(|index| pods::created(pods[*index].metadata.creation_timestamp.as_ref()));
    for index in order {
        let pod = &pods[index];
        if let Some(from) = pods::available_from(pod, least).filter(|from| *from > agenda.now) {
            agenda.at(from);
        }
        // A pod whose node is gone is for the collector of lost pods.
        let place = places.iter_mut().find(|place| target(pod) == Some(&place.node));
        if let Some(place) = place {
            place.members.push(Member {
                id: index,
                is_current: pods::labels(pod).get(HASH).is_some_and(|known| known == hash),
                state: state(pod, least, agenda.now),
            });
        }
    }
    places
}

fn limits(set: &DaemonSet, places: &[Place<usize>]) -> Limits {
    let wanted = count(places.iter().filter(|place| place.may_start).count());
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let rolls = strategy.is_none_or(|strategy| strategy.type_.as_deref() != Some("OnDelete"));
    let numbers = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let share = |value| usize::try_from(amount(value, wanted, true)).unwrap_or_default();
    let max_surge = share(numbers.and_then(|numbers| numbers.max_surge.as_ref()));
    let max_unavailable = match numbers.and_then(|numbers| numbers.max_unavailable.as_ref()) {
        None => usize::from(max_surge == 0),
        given => share(given),
    };
    // Neither more nor fewer would never end.
    let max_unavailable = if max_surge == 0 { max_unavailable.max(1) } else { max_unavailable };
    Limits { rolls, max_unavailable, max_surge }
}

fn status(
    set: &DaemonSet,
    places: &[Place<usize>],
    pods: &[Arc<Pod>],
    known: Option<&DaemonSetStatus>,
) -> DaemonSetStatus {
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: known.and_then(|known| known.collision_count),
        conditions: known.and_then(|known| known.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut updated, mut available) = (0, 0);
    for place in places {
        let is_there = !place.members.is_empty();
        if !place.may_start {
            status.number_misscheduled += i32::from(is_there);
            continue;
        }
        status.desired_number_scheduled += 1;
        status.current_number_scheduled += i32::from(is_there);
        let staying = || place.members.iter().filter(|pod| pod.state != State::Leaving);
        status.number_ready += i32::from(staying().any(|pod| pods::is_ready(&pods[pod.id])));
        available += i32::from(staying().any(Member::is_available));
        updated += i32::from(staying().any(|pod| pod.is_current && pod.runs()));
    }
    let unavailable = status.desired_number_scheduled - available;
    // Zeros are left out, as Kubernetes does.
    let shown = |number: i32| (number > 0).then_some(number);
    status.updated_number_scheduled = shown(updated);
    status.number_available = shown(available);
    status.number_unavailable = shown(unavailable);
    status
}

impl Controller for DaemonSets {
    async fn settle(&mut self, agenda: &mut Agenda) {
        let sets = self.cluster.daemon_sets.all();
        if sets.is_empty() {
            return;
        }
        let nodes = self.cluster.nodes.all();
        let pods = by_controller(&self.cluster.pods.all());
        let revisions = by_controller(&self.cluster.revisions.all());
        for set in sets {
            let done = self.sync(&set, &nodes, &pods, &revisions, agenda).await;
            agenda.check(done);
        }
    }
}
