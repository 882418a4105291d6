//! `KubeVirt`: one object a cluster that says how the system is installed and configured, and how far that is.
//!
//! It owns the answer to "which network carries migrations". It must never hold what belongs to one VM.

use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, Toleration};
use kube::{CustomResource, core::Duration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, collections::BTreeMap};

use super::{EvictionStrategy, MigrationConfiguration};
use crate::condition::{self, Condition, ConditionEntry as _, ConditionStatus};
use crate::names::{conditions, ports, reasons};
use crate::string_enum::string_enum;

/// How the system is installed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kubevirt.io",
    version = "v1",
    kind = "KubeVirt",
    plural = "kubevirts",
    singular = "kubevirt",
    shortname = "kv",
    shortname = "kvs",
    category = "all",
    namespaced,
    status = "KubeVirtStatus",
    derive = "PartialEq",
    doc = "The installation of the system in a cluster.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtSpec {
    /// Tag of the component images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_tag: Option<String>,
    /// Registry of the component images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_registry: Option<String>,
    /// When the component images are pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets to pull the component images with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// What happens to running VMs when the system is updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_update_strategy: Option<WorkloadUpdateStrategy>,
    /// How the certificates of the components are renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_rotate_strategy: Option<CertificateRotateStrategy>,
    /// Port on which the synchronization controller listens for other clusters. Default 9185.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,4}$"))]
    pub synchronization_port: Option<String>,
    /// Where the synchronization controller runs. Default: like the other infrastructure components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronization_placement: Option<ComponentConfig>,
    /// How virtual machines and their moves behave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<KubeVirtConfiguration>,
    /// Where the controllers run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infra: Option<ComponentConfig>,
    /// Where virt-handler, and so the virtual machines, run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workloads: Option<ComponentConfig>,
    /// Accepted empty, as it stands in the stock manifest. Patches of components are not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customize_components: Option<CustomizeComponents>,
}

/// Nothing: see [`KubeVirtSpec::customize_components`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomizeComponents {}

string_enum! {
    /// When an image is pulled.
    pub enum ImagePullPolicy {
        /// At every start.
        Always = "Always",
        /// Never: it must be on the node.
        Never = "Never",
        /// If it is not on the node.
        IfNotPresent = "IfNotPresent",
    }
}

/// What happens to running VMs when the system is updated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadUpdateStrategy {
    /// Methods in the order of preference; none: VMs are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workload_update_methods: Vec<WorkloadUpdateMethod>,
    /// How many VMs are evicted at once. Default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_eviction_size: Option<u32>,
    /// Pause between two batches of evictions. Default 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_eviction_interval: Option<Duration>,
}

string_enum! {
    /// How a running VM gets onto the new version.
    pub enum WorkloadUpdateMethod {
        /// It is moved.
        LiveMigrate = "LiveMigrate",
        /// It is shut down.
        Evict = "Evict",
    }
}

/// How certificates are renewed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRotateStrategy {
    /// The system is its own authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_signed: Option<SelfSigned>,
}

/// Lifetimes of self-signed certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelfSigned {
    /// The authority. Default: lives 7 days, renewed when 20 % are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertificateLifetime>,
    /// The components. Default: live 24 hours, renewed when 20 % are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<CertificateLifetime>,
}

/// Lifetime of one kind of certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateLifetime {
    /// How long it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// How long before its end it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<Duration>,
}

/// Where a component runs, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentConfig {
    /// Which nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_placement: Option<NodePlacement>,
    /// How many replicas of each controller. Default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u8>,
}

/// Which nodes a component may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// Labels that the node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Finer rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
}

/// How virtual machines and their moves behave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.migrations) || !has(self.migrations.network) || self.migrations.network == '' || !has(self.network) || !has(self.network.roles) || self.network.roles.all(r, r.networkAttachmentDefinition == self.migrations.network || r.networkAttachmentDefinition.endsWith('/' + self.migrations.network) || self.migrations.network.endsWith('/' + r.networkAttachmentDefinition))",
    "message": "migrations.network and the network with role migration are the same thing: set one of them, or both to the same network",
}]))]
pub struct KubeVirtConfiguration {
    /// How virtual machines move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationConfiguration>,
    /// Which networks serve which purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfiguration>,
    /// What an eviction does to VMs that do not say it themselves. Default None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<EvictionStrategy>,
    /// CPU model of VMs that do not say it themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Which TLS the components speak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_configuration: Option<TlsConfiguration>,
    /// Switches for development and tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_configuration: Option<DeveloperConfiguration>,
}

/// Which networks serve which purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkConfiguration {
    /// Godwit: networks by purpose; one network a role. The role `migration` is another spelling of
    /// `migrations.network`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["role"]))]
    pub roles: Vec<NetworkRole>,
    /// How an interface with the pod network and no binding is bound. Default bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_network_interface: Option<DefaultNetworkInterface>,
    /// Whether the bridge binding may be used on the pod network. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permit_bridge_interface_on_pod_network: Option<bool>,
    /// Binding plugins by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binding: BTreeMap<String, BindingPlugin>,
}

/// A network and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRole {
    /// `NetworkAttachmentDefinition`, `name` in the installation's namespace or `namespace/name`.
    #[schemars(length(min = 1, max = 317))]
    pub network_attachment_definition: String,
    /// What it is for.
    pub role: NetworkPurpose,
}

string_enum! {
    /// What a network is for.
    pub enum NetworkPurpose {
        /// Guest memory and disks of VMs that move inside the cluster.
        Migration = "migration",
    }
}

string_enum! {
    /// How a vNIC is bound when the VM does not say it.
    pub enum DefaultNetworkInterface {
        /// Bridged: the guest has the address of the pod interface.
        Bridge = "bridge",
        /// Behind NAT in the pod.
        Masquerade = "masquerade",
    }
}

/// A binding that VMs refer to by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingPlugin {
    /// How the domain is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_attachment_type: Option<DomainAttachmentType>,
    /// Present if VMs with this binding may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<BindingMigration>,
}

string_enum! {
    /// How a binding attaches the domain.
    pub enum DomainAttachmentType {
        /// A tap device that the plugin makes.
        Tap = "tap",
        /// Bridge and tap made by the system, with no DHCP: the network answers the guest.
        ManagedTap = "managedTap",
    }
}

/// How a VM with this binding moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingMigration {
    /// What is done at the target so that the guest notices the new place; none: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<BindingMigrationMethod>,
}

string_enum! {
    /// What is done at the target of a move.
    pub enum BindingMigrationMethod {
        /// The link goes down and up, so that the guest renews its lease.
        LinkRefresh = "link-refresh",
    }
}

/// Which TLS the components speak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsConfiguration {
    /// The least version. The migration tunnel speaks 1.3 whatever is set here.
    #[serde(rename = "minTLSVersion", skip_serializing_if = "Option::is_none")]
    pub min_tls_version: Option<TlsVersion>,
}

string_enum! {
    /// A version of TLS that is still fit for use.
    pub enum TlsVersion {
        /// TLS 1.2.
        Tls12 = "VersionTLS12",
        /// TLS 1.3.
        Tls13 = "VersionTLS13",
    }
}

/// Switches for development and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeveloperConfiguration {
    /// Accepted for KubeVirt's manifests; every feature of Godwit is on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feature_gates: Vec<String>,
    /// Run VMs without hardware virtualization where the node has none. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_emulation: Option<bool>,
}

/// How far the installation is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtStatus {
    /// Where the installation stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<KubeVirtPhase>,
    /// Created, Available, Progressing, Degraded, Synchronized; Godwit: `MigrationNetworkReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Version of the controller that wrote this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// Version that is being rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kube_virt_version: Option<String>,
    /// Version that every component runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kube_virt_version: Option<String>,
    /// Hash of the configuration that is being rolled out.
    #[serde(rename = "targetDeploymentID", skip_serializing_if = "Option::is_none")]
    pub target_deployment_id: Option<String>,
    /// Hash of the configuration that every component runs with.
    #[serde(rename = "observedDeploymentID", skip_serializing_if = "Option::is_none")]
    pub observed_deployment_id: Option<String>,
    /// Running VMs whose launcher is of an older version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outdated_virtual_machine_instance_workloads: Option<u32>,
    /// Generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where other clusters reach the synchronization controller, `address:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub synchronization_addresses: Vec<String>,
}

string_enum! {
    /// Where the installation stands.
    pub enum KubeVirtPhase {
        /// Components are being created or changed for the first time.
        Deploying = "Deploying",
        /// Everything is installed.
        Deployed = "Deployed",
        /// Components are being removed.
        Deleting = "Deleting",
        /// Everything is removed.
        Deleted = "Deleted",
    }
}

impl KubeVirt {
    /// Of several installations in a namespace, the one that counts: the eldest. The others stand back.
    pub fn in_charge<T: Borrow<Self>>(all: impl IntoIterator<Item = T>) -> Option<T> {
        all.into_iter().min_by_key(|one| {
            let metadata = &one.borrow().metadata;
            (metadata.creation_timestamp.as_ref().map(|time| time.0), metadata.name.clone())
        })
    }
}

impl KubeVirtStatus {
    /// Whether everything that is installed is there, and as it was last configured.
    pub fn all_components_ready(&self) -> bool {
        let available = condition::find(&self.conditions, conditions::AVAILABLE);
        available.is_some_and(|available| {
            available.status() == ConditionStatus::True && available.reason() == reasons::ALL_COMPONENTS_READY
        })
    }
}

impl KubeVirtSpec {
    /// The network that carries migrations inside the cluster, whichever spelling was used; none: the pod network.
    pub fn migration_network(&self) -> Option<&str> {
        let configuration = self.configuration.as_ref()?;
        let flat = configuration.migrations.as_ref().and_then(|migrations| migrations.network.as_deref());
        flat.filter(|network| !network.is_empty()).or_else(|| {
            let roles = &configuration.network.as_ref()?.roles;
            let role = roles.iter().find(|role| role.role == NetworkPurpose::Migration)?;
            Some(role.network_attachment_definition.as_str())
        })
    }

    /// The network on which other clusters are reached; none: the same as for other traffic of the gateway.
    pub fn cross_cluster_network(&self) -> Option<&str> {
        let migrations = self.configuration.as_ref()?.migrations.as_ref()?;
        migrations.cross_cluster_network.as_deref().filter(|network| !network.is_empty())
    }

    /// The port on which other clusters are served. The schema admits five digits; more than 65535 is an error here.
    pub fn synchronization_port(&self) -> Result<u16, std::num::ParseIntError> {
        self.synchronization_port.as_deref().map_or(Ok(ports::SYNCHRONIZATION), str::parse)
    }
}
