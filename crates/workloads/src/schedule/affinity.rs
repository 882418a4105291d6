//! Pods that want each other near, or far. Near is: on nodes with the same value of a label, the topology key.
//!
//! Anti-affinity holds both ways: a pod that wants others away keeps them away also when they come later.

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm};

use super::filter::Reason;
use super::node::labels;
use super::world::{Seat, World};
use crate::pods::{self, selects};

fn required_near(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
    let terms = affinity.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

fn required_far(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = affinity.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

/// The terms that a pod would rather have met, negative for those that it would rather not.
fn preferred(spec: &PodSpec) -> impl Iterator<Item = (i64, &PodAffinityTerm)> {
    let affinity = spec.affinity.as_ref();
    let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let near = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_deref());
    let far = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let far = far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_deref());
    let weighted = |sign: i64| move |term: &WeightedPodAffinityTerm| sign * i64::from(term.weight);
    let near = near.into_iter().flatten().map(move |term| (weighted(1)(term), &term.pod_affinity_term));
    let far = far.into_iter().flatten().map(move |term| (weighted(-1)(term), &term.pod_affinity_term));
    near.chain(far)
}

/// Whether a term of `owner` speaks of `other`.
fn speaks_of(term: &PodAffinityTerm, owner: &Pod, other: &Pod, world: &World) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap_or_default();
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = if listed.is_empty() && term.namespace_selector.is_none() {
        owner.metadata.namespace == other.metadata.namespace
    } else {
        let labels = world.namespace_labels(namespace);
        listed.iter().any(|name| name == namespace)
            || labels.is_some_and(|labels| selects(term.namespace_selector.as_ref(), labels))
    };
    in_namespace && selects(term.label_selector.as_ref(), pods::labels(other))
}

fn same_place(key: &str, one: &Node, other: &Node) -> bool {
    let place = labels(one).get(key);
    place.is_some() && place == labels(other).get(key)
}

pub fn check(pod: &Pod, seat: &Seat, world: &World) -> Result<(), Reason> {
    let spec = pods::spec(pod);
    if !is_near(pod, required_near(spec), seat, world) {
        return Err(Reason::PodAffinity);
    }
    let too_near = |term: &PodAffinityTerm| {
        world.placed().any(|(other, node)| {
            same_place(&term.topology_key, &seat.node, node) && speaks_of(term, pod, other, world)
        })
    };
    if required_far(spec).iter().any(too_near) {
        return Err(Reason::PodAntiAffinity);
    }
    let unwanted = world.placed().any(|(other, node)| {
        required_far(pods::spec(other)).iter().any(|term| {
            same_place(&term.topology_key, &seat.node, node) && speaks_of(term, other, pod, world)
        })
    });
    if unwanted { Err(Reason::ExistingAntiAffinity) } else { Ok(()) }
}

/// Every term must be met by a pod that is there. The first of a group of pods that want each other near has nobody
/// to go to, and may go anywhere where the labels are.
fn is_near(pod: &Pod, terms: &[PodAffinityTerm], seat: &Seat, world: &World) -> bool {
    if !terms.iter().all(|term| labels(&seat.node).contains_key(&term.topology_key)) {
        return false;
    }
    let all_speak_of = |other: &Pod| terms.iter().all(|term| speaks_of(term, pod, other, world));
    let met = |term: &PodAffinityTerm| {
        world
            .placed()
            .any(|(other, node)| same_place(&term.topology_key, &seat.node, node) && all_speak_of(other))
    };
    if terms.iter().all(met) {
        return true;
    }
    let nobody = !world.placed().any(|(other, node)| {
        all_speak_of(other) && terms.iter().any(|term| labels(node).contains_key(&term.topology_key))
    });
    nobody && all_speak_of(pod)
}

/// How well a node suits what the pod would rather have, and what the pods that are there would.
pub fn preference(pod: &Pod, seat: &Seat, world: &World) -> i64 {
    let mut sum = 0;
    for (other, node) in world.placed() {
        let own = preferred(pods::spec(pod)).filter(|(_, term)| speaks_of(term, pod, other, world));
        let theirs = preferred(pods::spec(other)).filter(|(_, term)| speaks_of(term, other, pod, world));
        let here = own.chain(theirs).filter(|(_, term)| same_place(&term.topology_key, &seat.node, node));
        sum += here.map(|(weight, _)| weight).sum::<i64>();
    }
    sum
}
