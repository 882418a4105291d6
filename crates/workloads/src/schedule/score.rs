//! Which of the nodes that would do is the best. Every view of a node is brought to 0..=100 and weighed as
//! kube-scheduler weighs it; what matters is the order, not the number.

use api::placement;
use k8s_openapi::api::core::v1::{Pod, Taint};

use super::affinity;
use super::node::{effective_taints, tolerates};
use super::requests::{CPU, MEMORY, requests};
use super::world::{Seat, World};
use crate::owner::controller_of;
use crate::pods;

/// A pod that asks for nothing still needs something: without this, all of them would go to one node.
const LEAST: [(&str, u64); 2] = [(CPU, 100), (MEMORY, 200 << 20)];

/// The scores of nodes that a pod may go to, in their order.
pub fn score(pod: &Pod, fitting: &[(&str, &Seat)], world: &World) -> Vec<i64> {
    let view = |of: &dyn Fn(&Seat) -> i64| -> Vec<i64> { fitting.iter().map(|(_, seat)| of(seat)).collect() };
    let views = [
        (2, scaled(&view(&|seat| node_preference(pod, seat)), false)),
        (2, scaled(&view(&|seat| affinity::preference(pod, seat, world)), false)),
        (3, scaled(&view(&|seat| unwelcome(pod, seat)), true)),
        (2, scaled(&view(&|seat| siblings(pod, seat)), true)),
        (1, view(&|seat| least_allocated(pod, seat))),
    ];
    (0..fitting.len()).map(|index| views.iter().map(|(weight, view)| weight * view[index]).sum()).collect()
}

/// Between the worst, 0, and the best, 100; all the same if there is no worst.
fn scaled(values: &[i64], less_is_better: bool) -> Vec<i64> {
    let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
    let (Some(low), Some(high)) = (low, high) else { return Vec::new() };
    let scale = |value: &i64| {
        let share = if high == low { 0 } else { (value - low) * 100 / (high - low) };
        if less_is_better { 100 - share } else { share }
    };
    values.iter().map(scale).collect()
}

fn node_preference(pod: &Pod, seat: &Seat) -> i64 {
    let affinity = pods::spec(pod).affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let terms =
        affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let met = terms.into_iter().flatten().filter(|term| placement::matches(&term.preference, &seat.node));
    met.map(|term| i64::from(term.weight)).sum()
}

/// Taints that would rather not have the pod.
fn unwelcome(pod: &Pod, seat: &Seat) -> i64 {
    let tolerations = pods::spec(pod).tolerations.as_deref().unwrap_or_default();
    let unwelcome = |taint: &&Taint| taint.effect == "PreferNoSchedule" && !tolerates(tolerations, taint);
    effective_taints(&seat.node).iter().filter(unwelcome).count().try_into().unwrap_or(i64::MAX)
}

/// Pods of the same owner.
fn siblings(pod: &Pod, seat: &Seat) -> i64 {
    let Some(owner) = controller_of(&pod.metadata) else { return 0 };
    let same = |other: &&std::sync::Arc<Pod>| {
        !pods::is_terminating(other)
            && controller_of(&other.metadata).is_some_and(|theirs| theirs.uid == owner.uid)
    };
    seat.pods.iter().filter(same).count().try_into().unwrap_or(i64::MAX)
}

/// How much of CPU and memory would be left, in percent.
fn least_allocated(pod: &Pod, seat: &Seat) -> i64 {
    let own = requests(pods::spec(pod));
    let shares = LEAST.iter().map(|(resource, least)| {
        let all = seat.allocatable.get(resource);
        let others: u64 =
            seat.pods.iter().map(|pod| requests(pods::spec(pod)).get(resource).max(*least)).sum();
        let taken = others.saturating_add(own.get(resource).max(*least));
        all.saturating_sub(taken).saturating_mul(100).checked_div(all).unwrap_or_default()
    });
    shares.sum::<u64>().try_into().unwrap_or(i64::MAX) / 2
}
