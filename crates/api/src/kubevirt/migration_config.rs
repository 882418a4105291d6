//! How virtual machines move: the cluster's settings, and what they come to for one migration.
//!
//! It owns the defaults. A part that needs a value asks [`MigrationOptions`]; it must never repeat a default.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    migrations::MigrationPolicySpec,
    quantity::{self, QuantityError},
    string_enum::string_enum,
};

/// How virtual machines move in this cluster. Every field has a default: see each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.crossClusterNetwork) || self.crossClusterNetwork == '' || !has(self.decentralizedLiveMigrationDatapath) || self.decentralizedLiveMigrationDatapath == 'Proxy'",
    "message": "crossClusterNetwork is used by the gateway only: decentralizedLiveMigrationDatapath must be Proxy",
}]))]
pub struct MigrationConfiguration {
    /// A node with this taint is drained of its VMs. Default `kubevirt.io/drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    /// How many VMs leave one node at a time. Default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Godwit: how many VMs arrive at one node at a time. Default 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub parallel_inbound_migrations_per_node: Option<u32>,
    /// How many VMs move at a time. Default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Slow a guest down that dirties memory faster than it is sent. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Most bytes a second for one migration. Default 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds that a migration may take for each GiB. Default 150.
    #[serde(rename = "completionTimeoutPerGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub completion_timeout_per_gib: Option<i64>,
    /// Milliseconds that the guest may stand still at switch-over. Default 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_000_000))]
    pub max_downtime_ms: Option<u64>,
    /// Seconds without progress after which a migration is given up. Default 150.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_timeout: Option<i64>,
    /// Migrate also where the hypervisor thinks it unsafe for the disks. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    /// Let a guest run at the target before all its memory is there. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Let a migration that does not converge stop the guest for longer. Default: as allowPostCopy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Send guest memory in the clear. Default false.
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    /// Godwit: connections that carry the memory of one migration. More carry more between nodes with processors to spare; but with
    /// more than one, QEMU 10.0 can end, and its guest with it, when they are cut. Default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub parallel_connections: Option<u16>,
    /// `NetworkAttachmentDefinition` that carries migrations, `name` in the installation's namespace or
    /// `namespace/name`. Default: the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub network: Option<String>,
    /// Godwit: what happens on a node that lacks the migration network. Default Require.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_preference: Option<NetworkPreference>,
    /// `NetworkAttachmentDefinition` on which the gateway meets other clusters. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub cross_cluster_network: Option<String>,
    /// How bytes get to another cluster. Default Direct; Proxy if crossClusterNetwork is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decentralized_live_migration_datapath: Option<Datapath>,
    /// Give the target pod the SELinux level of the source. Default true.
    #[serde(rename = "matchSELinuxLevelOnMigration", skip_serializing_if = "Option::is_none")]
    pub match_se_linux_level_on_migration: Option<bool>,
}

string_enum! {
    /// What happens on a node that lacks the migration network.
    pub enum NetworkPreference {
        /// Migrations to and from it wait, and say so.
        Require = "Require",
        /// They take the pod network, and `migrationState.migrationNetworkType` says so.
        Prefer = "Prefer",
    }
}

string_enum! {
    /// How the bytes of a migration get to another cluster.
    pub enum Datapath {
        /// From handler to handler: every handler is reachable from every cluster.
        Direct = "Direct",
        /// Through the gateways of both clusters: only they are.
        Proxy = "Proxy",
    }
}

impl MigrationConfiguration {
    /// How bytes get to another cluster.
    pub fn datapath(&self) -> Datapath {
        let gateway = self.cross_cluster_network.as_ref().is_some_and(|network| !network.is_empty());
        self.decentralized_live_migration_datapath.unwrap_or(if gateway {
            Datapath::Proxy
        } else {
            Datapath::Direct
        })
    }
}

/// Knobs of single migrations that may change from release to release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentalOptions {
    /// How guest memory is compressed. Default none, and nothing else is accepted so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
}

string_enum! {
    /// How guest memory is compressed on its way.
    pub enum Compression {
        /// Not at all.
        None = "none",
        /// Zstandard.
        Zstd = "zstd",
    }
}

/// The settings of one migration with every default filled in: frozen when it is handed to the node, so that a change
/// of the cluster's settings never reaches a move on its way. Fields mean what they mean in the `KubeVirt` object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "the switches are KubeVirt's and independent of each other")]
pub struct MigrationOptions {
    pub node_drain_taint_key: String,
    pub parallel_outbound_migrations_per_node: u32,
    pub parallel_inbound_migrations_per_node: u32,
    pub parallel_migrations_per_cluster: u32,
    pub allow_auto_converge: bool,
    pub bandwidth_per_migration: Quantity,
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: i64,
    pub max_downtime_ms: u64,
    pub progress_timeout: i64,
    pub unsafe_migration_override: bool,
    pub allow_post_copy: bool,
    pub allow_workload_disruption: bool,
    #[serde(rename = "disableTLS")]
    pub disable_tls: bool,
    pub parallel_connections: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    pub network_preference: NetworkPreference,
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    pub match_se_linux_level_on_migration: bool,
    /// Knobs that may change from release to release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalOptions>,
}

impl Default for MigrationOptions {
    /// KubeVirt's defaults.
    fn default() -> Self {
        Self {
            node_drain_taint_key: crate::names::annotations::DRAIN_TAINT.to_owned(),
            parallel_outbound_migrations_per_node: 2,
            parallel_inbound_migrations_per_node: 2,
            parallel_migrations_per_cluster: 5,
            allow_auto_converge: false,
            bandwidth_per_migration: Quantity("0".to_owned()),
            completion_timeout_per_gib: 150,
            max_downtime_ms: 900,
            progress_timeout: 150,
            unsafe_migration_override: false,
            allow_post_copy: false,
            allow_workload_disruption: false,
            disable_tls: false,
            parallel_connections: 1,
            network: None,
            network_preference: NetworkPreference::Require,
            match_se_linux_level_on_migration: true,
            experimental: None,
        }
    }
}

impl MigrationOptions {
    /// What the cluster's settings, and the policy that matches the VM if any, come to.
    pub fn effective(cluster: Option<&MigrationConfiguration>, policy: Option<&MigrationPolicySpec>) -> Self {
        let defaults = Self::default();
        let unset = MigrationConfiguration::default();
        let cluster = cluster.unwrap_or(&unset);
        let no_policy = MigrationPolicySpec::default();
        let policy = policy.unwrap_or(&no_policy);

        let allow_post_copy =
            policy.allow_post_copy.or(cluster.allow_post_copy).unwrap_or(defaults.allow_post_copy);
        Self {
            node_drain_taint_key: cluster
                .node_drain_taint_key
                .clone()
                .unwrap_or(defaults.node_drain_taint_key),
            parallel_outbound_migrations_per_node: cluster
                .parallel_outbound_migrations_per_node
                .unwrap_or(defaults.parallel_outbound_migrations_per_node),
            parallel_inbound_migrations_per_node: cluster
                .parallel_inbound_migrations_per_node
                .unwrap_or(defaults.parallel_inbound_migrations_per_node),
            parallel_migrations_per_cluster: cluster
                .parallel_migrations_per_cluster
                .unwrap_or(defaults.parallel_migrations_per_cluster),
            allow_auto_converge: policy
                .allow_auto_converge
                .or(cluster.allow_auto_converge)
                .unwrap_or(defaults.allow_auto_converge),
            bandwidth_per_migration: policy
                .bandwidth_per_migration
                .clone()
                .or_else(|| cluster.bandwidth_per_migration.clone())
                .unwrap_or(defaults.bandwidth_per_migration),
            completion_timeout_per_gib: policy
                .completion_timeout_per_gib
                .or(cluster.completion_timeout_per_gib)
                .unwrap_or(defaults.completion_timeout_per_gib),
            max_downtime_ms: policy
                .max_downtime_ms
                .or(cluster.max_downtime_ms)
                .unwrap_or(defaults.max_downtime_ms),
            progress_timeout: cluster.progress_timeout.unwrap_or(defaults.progress_timeout),
            unsafe_migration_override: cluster
                .unsafe_migration_override
                .unwrap_or(defaults.unsafe_migration_override),
            allow_post_copy,
            // Whoever allows post-copy has accepted that the guest may notice.
            allow_workload_disruption: policy
                .allow_workload_disruption
                .or(cluster.allow_workload_disruption)
                .unwrap_or(allow_post_copy),
            disable_tls: cluster.disable_tls.unwrap_or(defaults.disable_tls),
            parallel_connections: cluster.parallel_connections.unwrap_or(defaults.parallel_connections),
            network: cluster.network.clone().filter(|network| !network.is_empty()),
            network_preference: cluster.network_preference.unwrap_or(defaults.network_preference),
            match_se_linux_level_on_migration: cluster
                .match_se_linux_level_on_migration
                .unwrap_or(defaults.match_se_linux_level_on_migration),
            experimental: policy.experimental.clone(),
        }
    }

    /// Most bytes a second for this migration; none: no limit.
    pub fn bandwidth(&self) -> Result<Option<std::num::NonZeroU64>, QuantityError> {
        quantity::whole(&self.bandwidth_per_migration).map(std::num::NonZeroU64::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_means_the_defaults_of_kubevirt() {
        let options = MigrationOptions::effective(None, None);
        assert_eq!(options, MigrationOptions::default());
        assert_eq!(options.bandwidth(), Ok(None));
        assert_eq!(options.parallel_migrations_per_cluster, 5);
        assert_eq!(options.network_preference, NetworkPreference::Require);
    }

    #[test]
    fn a_policy_wins_over_the_cluster() {
        let cluster = MigrationConfiguration {
            bandwidth_per_migration: Some(Quantity("64Mi".into())),
            allow_post_copy: Some(false),
            completion_timeout_per_gib: Some(20),
            network: Some(String::new()),
            ..MigrationConfiguration::default()
        };
        let policy = MigrationPolicySpec {
            bandwidth_per_migration: Some(Quantity("4Gi".into())),
            allow_post_copy: Some(true),
            ..MigrationPolicySpec::default()
        };
        let options = MigrationOptions::effective(Some(&cluster), Some(&policy));
        assert_eq!(options.bandwidth().unwrap().unwrap().get(), 4 << 30);
        assert!(options.allow_post_copy);
        assert!(options.allow_workload_disruption, "follows allowPostCopy when nobody sets it");
        assert_eq!(options.completion_timeout_per_gib, 20);
        assert_eq!(options.network, None, "an empty name is no network");
    }

    #[test]
    fn a_cross_cluster_network_implies_the_gateway() {
        let mut cluster = MigrationConfiguration::default();
        assert_eq!(cluster.datapath(), Datapath::Direct);
        cluster.cross_cluster_network = Some("wan".into());
        assert_eq!(cluster.datapath(), Datapath::Proxy);
    }
}
