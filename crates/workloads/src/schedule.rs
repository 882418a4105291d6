//! Which node a pod goes to. Pure: a function of the pod, the nodes and the pods that are there.
//!
//! A pod first asks every node whether it may ([`filter()`]), then which of those that remain suits it best ([`score`]).
//! The reasons are worded as kube-scheduler words them, because people and tools search for those words.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

mod affinity;
mod filter;
mod node;
mod requests;
mod score;
mod spread;
mod world;

pub use filter::{Reason, filter};
pub(crate) use node::{
    condition_taints, covers, effective_taints, is_condition_taint, is_ready, matches_node, tolerates,
};
pub use score::score;
pub use world::{Seat, World};

#[cfg(test)]
mod tests;

/// The best node for a pod, or why there is none.
pub fn choose<'a>(pod: &Pod, world: &'a World) -> Result<&'a str, String> {
    let mut refusals = Vec::new();
    let mut fitting = Vec::new();
    for (name, seat) in world.seats() {
        match filter(pod, seat, world) {
            Ok(()) => fitting.push((name, seat)),
            Err(reason) => refusals.push(reason),
        }
    }
    let scores = score(pod, &fitting, world);
    // The first name wins among equals: the same state always gives the same answer.
    let best = fitting.iter().zip(scores).rev().max_by_key(|(_, score)| *score);
    best.map(|((name, _), _)| *name).ok_or_else(|| message(&refusals))
}

/// Why no node will do, with how many nodes have each reason.
fn message(refusals: &[Reason]) -> String {
    if refusals.is_empty() {
        return "no nodes available to schedule pods".into();
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for text in refusals.iter().flat_map(Reason::texts) {
        *counts.entry(text).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(text, count)| format!("{count} {text}")).collect();
    parts.sort_unstable();
    format!("0/{} nodes are available: {}.", refusals.len(), parts.join(", "))
}
