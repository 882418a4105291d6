//! What a pod asks of a node, and what a node has: amounts of resources, and ports of the node itself.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub const CPU: &str = "cpu";
pub const MEMORY: &str = "memory";
pub const PODS: &str = "pods";

/// Amounts by resource: CPU in thousandths, all others in units. What is not named is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, u64>);

impl Amounts {
    fn read(quantities: Option<&BTreeMap<String, Quantity>>) -> Self {
        let read = |(name, quantity): (&String, &Quantity)| {
            let amount =
                if name == CPU { api::quantity::milli(quantity) } else { api::quantity::whole(quantity) };
            // The server has checked it; what is still not readable is asked for by nobody.
            (name.clone(), amount.unwrap_or_default())
        };
        Self(quantities.into_iter().flatten().map(read).collect())
    }

    pub fn get(&self, resource: &str) -> u64 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// What a pod needs at its hungriest moment. Init containers run one after another, before the others; those that
/// stay (sidecars) run beside all that come after them.
pub fn requests(spec: &PodSpec) -> Amounts {
    let of = |container: &Container| {
        Amounts::read(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let mut staying = Amounts::default();
    let mut peak = Amounts::default();
    for container in spec.init_containers.iter().flatten() {
        let own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            staying.add(&own);
            peak.raise_to(&staying);
        } else {
            let mut moment = staying.clone();
            moment.add(&own);
            peak.raise_to(&moment);
        }
    }
    for container in &spec.containers {
        staying.add(&of(container));
    }
    peak.raise_to(&staying);
    peak.add(&Amounts::read(spec.overhead.as_ref()));
    peak.0.insert(PODS.into(), 1);
    peak
}

pub fn allocatable(node: &Node) -> Amounts {
    let status = node.status.as_ref();
    Amounts::read(status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref())))
}

/// A port of the node that a pod wants for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    protocol: String,
    /// Empty: on all addresses.
    address: String,
    number: i32,
}

impl Port {
    pub fn clashes(&self, other: &Self) -> bool {
        let same_address =
            self.address == other.address || self.address.is_empty() || other.address.is_empty();
        self.number == other.number && self.protocol == other.protocol && same_address
    }
}

pub fn host_ports(spec: &PodSpec) -> Vec<Port> {
    let staying = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(staying);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let address = port.host_ip.clone().unwrap_or_default();
            Some(Port {
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                address: if matches!(address.as_str(), "0.0.0.0" | "::") { String::new() } else { address },
                number: port.host_port.filter(|number| *number > 0)?,
            })
        })
        .collect()
}
