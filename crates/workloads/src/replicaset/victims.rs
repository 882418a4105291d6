//! Which pods a ReplicaSet gives up first, when it has too many. Pure.
//!
//! Those that would be missed least: without a node, not running, not ready, cheap to delete, beside a sibling, ready
//! for a shorter time, restarted more often, younger.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::pods;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The `surplus` pods to delete of `pods`, all of them active.
pub fn victims(pods: &[Arc<Pod>], surplus: usize) -> Vec<Arc<Pod>> {
    let mut siblings: HashMap<&str, usize> = HashMap::new();
    for pod in pods {
        *siblings.entry(pods::node_of(pod).unwrap_or_default()).or_default() += 1;
    }
    let mut order = pods.to_vec();
    order.sort_by_cached_key(|pod| {
        let node = pods::node_of(pod);
        let running = match pods::phase(pod) {
            "Pending" => 0,
            "Running" => 2,
            _ => 1,
        };
        let cost = pod.annotations().get(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0_i32);
        (
            node.is_some(),
            running,
            pods::is_ready(pod),
            cost,
            Reverse(siblings.get(node.unwrap_or_default()).copied()),
            Reverse(pods::ready_since(pod).unwrap_or(Timestamp::MAX)),
            Reverse(pods::restarts(pod)),
            Reverse(pods::created(pod.metadata.creation_timestamp.as_ref())),
            pod.name_any(),
        )
    });
    order.truncate(surplus);
    order
}

#[cfg(test)]
mod tests;
