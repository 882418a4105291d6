//! `k8s.cni.cncf.io/v1alpha1`: addresses that outlive a pod.
//!
//! A claim is the identity that owns addresses: one for each vNIC of a VM. It owns who holds which addresses; it must
//! never be freed while a guest may still use them (see [`crate::names::finalizers::PERSISTENT_IPAM`]).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the addresses are for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1alpha1",
    kind = "IPAMClaim",
    plural = "ipamclaims",
    singular = "ipamclaim",
    namespaced,
    status = "IPAMClaimStatus",
    derive = "PartialEq",
    doc = "Addresses of one vNIC that outlive the pods that use them."
)]
#[serde(rename_all = "camelCase")]
pub struct IPAMClaimSpec {
    /// Name of the network in the CNI configuration; not that of its definition.
    pub network: String,
    /// Name of the interface in the pod; may be empty.
    pub interface: String,
}

/// The addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPAMClaimStatus {
    /// Addresses with the length of their prefix, at most one of each family.
    pub ips: Vec<String>,
    /// Pod that uses them now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_pod: Option<OwnerPod>,
    /// Whether addresses were given, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A pod of the claim's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerPod {
    /// Name.
    pub name: String,
}
