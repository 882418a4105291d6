//! The cluster as a scheduling decision sees it: nodes with the pods on them, and the labels of namespaces.
//!
//! Invariant: what a seat has given away is the sum over the pods that it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};

use super::requests::{Amounts, Port, allocatable, host_ports, requests};
use crate::pods::{self, Labels};

/// A node and the pods that run there, or soon will.
pub struct Seat {
    pub node: Arc<Node>,
    pub pods: Vec<Arc<Pod>>,
    pub(super) allocatable: Amounts,
    pub(super) requested: Amounts,
    pub(super) ports: Vec<Port>,
}

#[derive(Default)]
pub struct World {
    seats: BTreeMap<String, Seat>,
    namespaces: BTreeMap<String, Labels>,
}

impl World {
    pub fn new(nodes: &[Arc<Node>], pods: &[Arc<Pod>], namespaces: &[Arc<Namespace>]) -> Self {
        let mut world = Self::default();
        for node in nodes {
            let seat = Seat {
                node: node.clone(),
                pods: Vec::new(),
                allocatable: allocatable(node),
                requested: Amounts::default(),
                ports: Vec::new(),
            };
            world.seats.insert(node.metadata.name.clone().unwrap_or_default(), seat);
        }
        for namespace in namespaces {
            let name = namespace.metadata.name.clone().unwrap_or_default();
            world.namespaces.insert(name, namespace.metadata.labels.clone().unwrap_or_default());
        }
        for pod in pods.iter().filter(|pod| !pods::is_finished(pod)) {
            if let Some(node) = pods::node_of(pod) {
                world.place(pod, node);
            }
        }
        world
    }

    /// A pod takes its place on a node. On a node that is not there it takes nothing.
    pub fn place(&mut self, pod: &Arc<Pod>, node: &str) {
        if let Some(seat) = self.seats.get_mut(node) {
            seat.requested.add(&requests(pods::spec(pod)));
            seat.ports.extend(host_ports(pods::spec(pod)));
            seat.pods.push(pod.clone());
        }
    }

    pub fn seats(&self) -> impl Iterator<Item = (&str, &Seat)> {
        self.seats.iter().map(|(name, seat)| (name.as_str(), seat))
    }

    /// Every pod that has a place, with the node that it is on.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&Arc<Pod>, &Node)> {
        self.seats.values().flat_map(|seat| seat.pods.iter().map(|pod| (pod, &*seat.node)))
    }

    pub(super) fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }
}
