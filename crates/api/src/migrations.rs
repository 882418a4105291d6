//! `migrations.kubevirt.io/v1alpha1`: settings for the moves of some virtual machines.
//!
//! It owns which policy a VM falls under. It must never hold what only makes sense for a whole cluster.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap};

use crate::kubevirt::ExperimentalOptions;

/// Settings for the moves of the VMs that the selectors match.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "migrations.kubevirt.io",
    version = "v1alpha1",
    kind = "MigrationPolicy",
    plural = "migrationpolicies",
    singular = "migrationpolicy",
    status = "MigrationPolicyStatus",
    derive = "PartialEq",
    doc = "Settings for the moves of the virtual machines that it selects; they win over the cluster's."
)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPolicySpec {
    /// Which VMs.
    pub selectors: PolicySelectors,
    /// Slow a guest down that dirties memory faster than it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    /// Most bytes a second for one migration; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds that a migration may take for each GiB.
    #[serde(rename = "completionTimeoutPerGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub completion_timeout_per_gib: Option<i64>,
    /// Milliseconds that the guest may stand still at switch-over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_000_000))]
    pub max_downtime_ms: Option<u64>,
    /// Let a guest run at the target before all its memory is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    /// Let a migration that does not converge stop the guest for longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    /// Knobs that may change from release to release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalOptions>,
}

/// Labels that must all be there; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySelectors {
    /// Labels of the VM's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_selector: BTreeMap<String, String>,
    /// Labels of the VM's instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_machine_instance_selector: BTreeMap<String, String>,
}

/// Nothing yet; the subresource is there because KubeVirt has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MigrationPolicyStatus {}

/// The policy that a VM falls under: the one with most matching labels; of these the one with most labels of the
/// instance; of these the first by name.
pub fn matching_policy<'a>(
    policies: impl IntoIterator<Item = &'a MigrationPolicy>,
    namespace_labels: &BTreeMap<String, String>,
    instance_labels: &BTreeMap<String, String>,
) -> Option<&'a MigrationPolicy> {
    let holds = |selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>| {
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    policies
        .into_iter()
        .filter(|policy| {
            let selectors = &policy.spec.selectors;
            holds(&selectors.namespace_selector, namespace_labels)
                && holds(&selectors.virtual_machine_instance_selector, instance_labels)
        })
        .max_by_key(|policy| {
            let selectors = &policy.spec.selectors;
            let instance = selectors.virtual_machine_instance_selector.len();
            (
                selectors.namespace_selector.len() + instance,
                instance,
                Reverse(policy.metadata.name.as_deref()),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn policy(name: &str, namespace: &[(&str, &str)], instance: &[(&str, &str)]) -> MigrationPolicy {
        let selectors = PolicySelectors {
            namespace_selector: labels(namespace),
            virtual_machine_instance_selector: labels(instance),
        };
        MigrationPolicy::new(name, MigrationPolicySpec { selectors, ..MigrationPolicySpec::default() })
    }

    #[test]
    fn the_most_specific_policy_wins() {
        let (hpc, db) = (labels(&[("hpc", "true")]), labels(&[("tier", "db"), ("os", "linux")]));
        let policies = [
            policy("namespace", &[("hpc", "true")], &[]),
            policy("other", &[], &[("tier", "web")]),
            policy("zebra", &[], &[("tier", "db")]),
            policy("ant", &[], &[("os", "linux")]),
        ];
        let chosen = |policies: &[MigrationPolicy]| {
            matching_policy(policies, &hpc, &db).and_then(|policy| policy.metadata.name.clone())
        };
        assert_eq!(chosen(&policies).as_deref(), Some("ant"), "labels of the instance, then the name");
        assert_eq!(chosen(&policies[..2]).as_deref(), Some("namespace"));
        assert_eq!(chosen(&policies[1..2]), None);
        let both = [policies[3].clone(), policy("both", &[("hpc", "true")], &[("tier", "db")])];
        assert_eq!(chosen(&both).as_deref(), Some("both"));
    }
}
