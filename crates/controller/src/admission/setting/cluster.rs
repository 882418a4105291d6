//! What of a cluster a migration network must fit: API objects as they are read, and the questions that rules ask of them.
//!
//! It holds no rule and calls nobody.

use api::condition::{self, ConditionStatus};
use api::harvester::{ClusterNetwork, Setting, VlanConfig, VlanStatus};
use api::kubevirt::{KubeVirt, VirtualMachineInstanceMigration};
use api::names::{annotations, conditions};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::ResourceExt as _;

use crate::placement;

/// How many controllers of a kind there are unless the installation says otherwise.
const REPLICAS: u8 = 2;

/// What a migration network must fit.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub installation: Option<KubeVirt>,
    pub nodes: Vec<Node>,
    pub cluster_networks: Vec<ClusterNetwork>,
    pub vlan_configs: Vec<VlanConfig>,
    pub vlan_statuses: Vec<VlanStatus>,
    /// Settings whose networks may be in the way.
    pub other_settings: Vec<Setting>,
    pub service_ranges: Vec<ServiceCIDR>,
    /// The API server's own service, where no service ranges are told.
    pub api_service: Option<Service>,
}

/// What a cluster network is on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    Ready,
    /// And why, as the node says.
    NotReady(String),
    /// Nobody has said yet.
    Unknown,
    /// No `VlanConfig` attaches the node.
    Absent,
}

impl Cluster {
    pub fn cluster_network(&self, name: &str) -> Option<&ClusterNetwork> {
        self.cluster_networks.iter().find(|network| network.name_any() == name)
    }

    /// The nodes that can run virtual machines: each has a handler, which needs an address.
    pub fn hosts(&self) -> impl Iterator<Item = &Node> {
        let placed = self.installation.as_ref().and_then(placement::of);
        self.nodes.iter().filter(move |node| placement::takes(placed, node))
    }

    /// How many synchronization controllers there are to be.
    pub fn synchronization_controllers(&self) -> u64 {
        let spec = self.installation.as_ref().map(|installation| &installation.spec);
        let replicas = spec.and_then(|spec| {
            let own = spec.synchronization_placement.as_ref().and_then(|component| component.replicas);
            own.or_else(|| spec.infra.as_ref().and_then(|component| component.replicas))
        });
        replicas.unwrap_or(REPLICAS).into()
    }

    /// Whether anything attaches nodes to a cluster network.
    pub fn is_attached(&self, network: &str) -> bool {
        self.vlan_configs.iter().any(|config| config.spec.cluster_network == network)
    }

    /// What a cluster network is on a node.
    pub fn presence(&self, network: &str, node: &Node) -> Presence {
        let mut configs = self.vlan_configs.iter().filter(|config| config.spec.cluster_network == network);
        if !configs.any(|config| covers(config, node)) {
            return Presence::Absent;
        }
        let name = node.name_any();
        let here = self
            .vlan_statuses
            .iter()
            .filter_map(|status| status.status.as_ref())
            .find(|status| status.cluster_network == network && status.node == name);
        let ready = here.and_then(|status| condition::find(&status.conditions, conditions::HARVESTER_READY));
        match ready {
            Some(ready) if ready.status == ConditionStatus::True => Presence::Ready,
            Some(ready) if ready.status == ConditionStatus::False => {
                Presence::NotReady(ready.message.clone().unwrap_or_default())
            }
            _ => Presence::Unknown,
        }
    }
}

/// Whether a `VlanConfig` attaches a node: as Harvester noted it, else by its selector.
fn covers(config: &VlanConfig, node: &Node) -> bool {
    let noted = config.annotations().get(annotations::MATCHED_NODES);
    match noted.and_then(|noted| serde_json::from_str::<Vec<String>>(noted).ok()) {
        Some(matched) => matched.contains(&node.name_any()),
        None => config.spec.node_selector.iter().all(|(name, value)| node.labels().get(name) == Some(value)),
    }
}

/// Whether a migration is not over. One that nobody has looked at yet has no status, and is not.
pub fn is_under_way(migration: &VirtualMachineInstanceMigration) -> bool {
    let Some(status) = &migration.status else { return true };
    let completed = status.migration_state.as_ref().is_some_and(|state| state.completed);
    !completed && !status.phase.is_some_and(api::kubevirt::MigrationPhase::is_final)
}
