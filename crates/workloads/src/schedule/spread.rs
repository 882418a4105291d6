//! Topology spread: the same pods over the values of a label, as evenly as the pod demands.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, TopologySpreadConstraint};

use super::filter::Reason;
use super::node::{effective_taints, labels, matches_node, tolerates};
use super::world::{Seat, World};
use crate::pods::{self, selects};

pub fn check(pod: &Pod, seat: &Seat, world: &World) -> Result<(), Reason> {
    let constraints = pods::spec(pod).topology_spread_constraints.iter().flatten();
    for constraint in constraints.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule") {
        let Some(place) = labels(&seat.node).get(&constraint.topology_key) else {
            return Err(Reason::SpreadLabel);
        };
        let counts = counts(pod, constraint, world);
        let too_few =
            constraint.min_domains.is_some_and(|least| counts.len() < least.try_into().unwrap_or(0));
        let least = if too_few { 0 } else { counts.values().copied().min().unwrap_or_default() };
        let own = i32::from(selects(constraint.label_selector.as_ref(), pods::labels(pod)));
        if counts.get(place.as_str()).copied().unwrap_or_default() + own - least > constraint.max_skew {
            return Err(Reason::Spread);
        }
    }
    Ok(())
}

/// How many of the same pods each value of the label has, over the nodes that count.
fn counts<'a>(pod: &Pod, constraint: &TopologySpreadConstraint, world: &'a World) -> BTreeMap<&'a str, i32> {
    let mut counts = BTreeMap::new();
    for (_, seat) in world.seats().filter(|(_, seat)| takes_part(pod, constraint, &seat.node)) {
        let Some(place) = labels(&seat.node).get(&constraint.topology_key) else {
            continue;
        };
        let same = seat.pods.iter().filter(|other| {
            other.metadata.namespace == pod.metadata.namespace
                && !pods::is_terminating(other)
                && selects(constraint.label_selector.as_ref(), pods::labels(other))
        });
        *counts.entry(place.as_str()).or_default() += crate::owner::count(same.count());
    }
    counts
}

fn takes_part(pod: &Pod, constraint: &TopologySpreadConstraint, node: &Node) -> bool {
    let spec = pods::spec(pod);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let repels = |taint: &Taint| taint.effect != "PreferNoSchedule" && !tolerates(tolerations, taint);
    (constraint.node_affinity_policy.as_deref() == Some("Ignore") || matches_node(spec, node))
        && (constraint.node_taints_policy.as_deref() != Some("Honor")
            || !effective_taints(node).iter().any(repels))
}
