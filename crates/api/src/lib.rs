//! Types and names of every API object that Godwit reads or writes.
//!
//! One module an API group, [`names`] for every string and number that two parts must agree on, and a few pure
//! helpers that belong to the types. No input or output, no clock, no async: time and text come in as arguments.
//!
//! The CRDs in `deploy/crds` are made from these types; `tests/crds.rs` keeps them equal and says how to regenerate.

#![allow(clippy::duplicated_attributes, reason = "a kind has several printer columns and short names")]
#![allow(
    clippy::doc_markdown,
    reason = "comments become descriptions in the CRDs, where KubeVirt is the name of a project and not code"
)]

mod schema;
mod string_enum;

pub mod condition;
pub mod godwit;
pub mod harvester;
pub mod ipam;
pub mod kubevirt;
pub mod mac;
pub mod migrations;
pub mod multus;
pub mod names;
pub mod ovn;
pub mod placement;
pub mod quantity;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every custom resource, as a Kubernetes API server is to be given it. The `crd()` of a single type lacks the
/// rewriting that is done here and is not to be installed.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let definitions = [
        kubevirt::KubeVirt::crd(),
        // Admission refuses what these two do not know: see there.
        schema::keeping_unknown_fields_of_spec(kubevirt::VirtualMachine::crd()),
        schema::keeping_unknown_fields_of_spec(kubevirt::VirtualMachineInstance::crd()),
        kubevirt::VirtualMachineInstanceMigration::crd(),
        migrations::MigrationPolicy::crd(),
        multus::NetworkAttachmentDefinition::crd(),
        ipam::IPAMClaim::crd(),
        ovn::UserDefinedNetwork::crd(),
        ovn::ClusterUserDefinedNetwork::crd(),
        // Harvester's kinds have no status subresource: whoever writes the object writes its status.
        schema::without_status_subresource(harvester::Setting::crd()),
        schema::without_status_subresource(harvester::ClusterNetwork::crd()),
        harvester::VlanConfig::crd(),
        schema::without_status_subresource(harvester::VlanStatus::crd()),
        godwit::AddressAllocation::crd(),
    ];
    definitions.into_iter().map(schema::published).collect()
}
