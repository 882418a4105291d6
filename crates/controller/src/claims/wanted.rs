//! The claim that a vNIC is to have, and what stands in its way; pure.
//!
//! Whose addresses can be claimed is told by the definition of the network alone. One of these, in the configuration or in any
//! plugin of its list:
//!
//! - `"allowPersistentIPs": true`: whoever wrote it says so, whichever plugin gives the addresses;
//! - `"ipam": {"type": "godwit-ipam"}`: our plugin always understands claims. `"allowPersistentIPs": false` beside it: it shall not.
//!
//! `whereabouts` alone is not enough: the name does not tell whose program it is. A definition without a configuration is one of the
//! node's files, which nobody here can read: no claims.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::condition::{self, ConditionEntry as _, ConditionStatus};
use api::ipam::{IPAMClaim, IPAMClaimSpec};
use api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use api::multus::{NetworkAttachmentDefinition, RequestedAddress};
use api::names::{annotations, conditions, finalizers, interfaces, labels, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::chosen;
use crate::admission::is_subdomain;
use crate::pod;

/// The plugin of ours that gives addresses.
const IPAM: &str = "godwit-ipam";
/// As long as a part of a name may be.
const LONGEST_LABEL: usize = 63;
/// So many digits tell names apart that had to be changed.
const DIGITS: usize = 10;

/// A secondary network of an instance, and how it stands with the addresses there.
#[derive(Clone, Debug, PartialEq)]
pub struct Plug {
    /// Its name in the instance's spec.
    pub network: String,
    pub standing: Standing,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Nobody claims addresses there.
    Unclaimed,
    /// The claim is to be made.
    Missing(Box<IPAMClaim>),
    /// Somebody made it for this vNIC; it is to be held, as long as a launcher may run.
    Loose(Box<IPAMClaim>),
    /// The claim is there.
    Ready(Box<IPAMClaim>),
    /// The instance cannot start.
    Refused { reason: &'static str, message: String },
}

impl Plug {
    /// The claim that the pod refers to.
    pub fn claim(&self) -> Option<&IPAMClaim> {
        match &self.standing {
            Standing::Missing(claim) | Standing::Loose(claim) | Standing::Ready(claim) => Some(claim),
            Standing::Unclaimed | Standing::Refused { .. } => None,
        }
    }

    /// Why the claim has no addresses, if somebody tried to give it some.
    pub fn why_none(&self) -> Option<(&str, &str)> {
        let told = condition::find(&self.claim()?.status.as_ref()?.conditions, conditions::IPS_ALLOCATED)?;
        (told.status() == ConditionStatus::False).then_some((told.reason(), told.message()))
    }
}

/// How it stands with a network of an instance, given its definition and what claim there is of the name.
pub fn judge(
    vmi: &VirtualMachineInstance,
    network: &str,
    definition: &NetworkAttachmentDefinition,
    there: Option<&IPAMClaim>,
) -> Standing {
    let Some(text) = definition.config() else { return Standing::Unclaimed };
    let config = match serde_json::from_str::<Value>(text) {
        Ok(config) => config,
        Err(cause) => {
            let message = format!(
                "the configuration of NetworkAttachmentDefinition {}/{} is not JSON: {cause}; correct it, and the instance starts",
                definition.namespace().unwrap_or_default(),
                definition.name_any(),
            );
            return Standing::Refused { reason: reasons::DEFINITION_INVALID, message };
        }
    };
    if !honours_claims(&config) {
        return Standing::Unclaimed;
    }
    match chosen::by(vmi, network) {
        Ok(chosen) => {
            compare(&render(vmi, network, &network_name(&config, definition), &chosen), &chosen, there)
        }
        Err(message) => Standing::Refused { reason: reasons::ADDRESSES_INVALID, message },
    }
}

/// Whether addresses of a network can belong to claims. Ipam of type `whereabouts` does not say so, although our plugin may be installed
/// under that name: nothing in the definition tells it from the real one, which knows no claims. There, `allowPersistentIPs` says it.
pub fn honours_claims(config: &Value) -> bool {
    let listed = config.get("plugins").and_then(Value::as_array);
    let all = || std::iter::once(config).chain(listed.into_iter().flatten());
    let said = all().find_map(|plugin| plugin.get("allowPersistentIPs").and_then(Value::as_bool));
    let ours = || all().any(|plugin| plugin.pointer("/ipam/type").and_then(Value::as_str) == Some(IPAM));
    said.unwrap_or_else(ours)
}

/// What plugins are told that the network is called.
fn network_name(config: &Value, definition: &NetworkAttachmentDefinition) -> String {
    let written = config.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    written.map_or_else(|| definition.name_any(), str::to_owned)
}

/// `<machine>.<network>`, as everybody expects it. What cannot be the name of an object is made one, and told apart by digits of its
/// own.
pub fn name(machine: &str, network: &str) -> String {
    let plain = format!("{machine}.{network}");
    if is_subdomain(&plain) {
        return plain;
    }
    let digest = Sha256::new().chain_update(machine).chain_update([0]).chain_update(network).finalize();
    let number = digest.iter().take(DIGITS / 2).fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
    let digits = format!("{number:0DIGITS$x}");
    let fits = |letter: char| {
        if letter.is_ascii_lowercase() || letter.is_ascii_digit() { letter } else { '-' }
    };
    let mut legible: String = plain.to_lowercase().chars().map(fits).collect();
    legible.truncate(LONGEST_LABEL - DIGITS - 1);
    format!("{}-{digits}", legible.trim_matches('-')).trim_start_matches('-').to_owned()
}

/// The claim as it is to be.
fn render(vmi: &VirtualMachineInstance, network: &str, of: &str, chosen: &[IpAddr]) -> IPAMClaim {
    let mut claim = IPAMClaim::new(
        &name(&vmi.name_any(), network),
        IPAMClaimSpec { network: of.to_owned(), interface: interfaces::of_network(network) },
    );
    claim.metadata.namespace = vmi.namespace();
    claim.metadata.finalizers = Some(vec![finalizers::PERSISTENT_IPAM.to_owned()]);
    claim.metadata.owner_references = owner(vmi).map(|owner| vec![owner]);
    claim.labels_mut().insert(labels::CLAIM_VM.to_owned(), pod::label_of(&vmi.name_any()));
    if !chosen.is_empty() {
        claim.annotations_mut().insert(annotations::CLAIM_ADDRESSES.to_owned(), chosen::text(chosen));
    }
    claim
}

/// The machine, which lives longer than its instances; or the instance, if it has none.
fn owner(vmi: &VirtualMachineInstance) -> Option<OwnerReference> {
    let machine = vmi.owner_references().iter().find(|owner| owner.kind == VirtualMachine::kind(&()));
    let held = |owner: &OwnerReference| OwnerReference {
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..owner.clone()
    };
    machine.map(held).or_else(|| vmi.controller_owner_ref(&()))
}

/// A claim that nobody owns was made for this vNIC beforehand: it is used, and stays its maker's. One with an owner is used if the
/// owner is the same.
fn compare(wanted: &IPAMClaim, chosen: &[IpAddr], there: Option<&IPAMClaim>) -> Standing {
    let Some(there) = there else { return Standing::Missing(Box::new(wanted.clone())) };
    let called = format!("IPAMClaim {}/{}", there.namespace().unwrap_or_default(), there.name_any());
    let refused = |reason, message| Standing::Refused { reason, message };
    let own = wanted.owner_references().first().map(|owner| owner.uid.as_str());
    if let Some(other) = there.owner_references().iter().find(|owner| Some(owner.uid.as_str()) != own) {
        let message = format!(
            "{called} belongs to {} {} ({}); it must be gone before this instance can start",
            other.kind, other.name, other.uid
        );
        return refused(reasons::IPAM_CLAIM_NOT_OWNED, message);
    }
    if there.metadata.deletion_timestamp.is_some() {
        let message =
            format!("{called} is being deleted; the instance starts with a new one when it is gone");
        return refused(reasons::IPAM_CLAIM_DELETING, message);
    }
    if there.spec.network != wanted.spec.network {
        let (of, needed) = (&there.spec.network, &wanted.spec.network);
        let message = format!(
            "{called} is for network {of:?}, and the vNIC is on {needed:?}; delete the claim to have one made for that"
        );
        return refused(reasons::IPAM_CLAIM_OF_ANOTHER_NETWORK, message);
    }
    let held = held(there);
    if let Some(address) = chosen.iter().find(|address| !held.is_empty() && !held.contains(address)) {
        let message = format!(
            "{address} was asked for, but {called} holds {}; delete the claim to let go of that",
            chosen::text(&held)
        );
        return refused(reasons::IP_ADDRESS_CONFLICT, message);
    }
    let says = |said: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(name, value)| said.get(name) == Some(value))
    };
    let is_held = there.finalizers().iter().any(|finalizer| finalizer == finalizers::PERSISTENT_IPAM);
    if is_held && says(there.labels(), wanted.labels()) && says(there.annotations(), wanted.annotations()) {
        return Standing::Ready(Box::new(there.clone()));
    }
    let mut whole = there.clone();
    if !is_held {
        whole.finalizers_mut().push(finalizers::PERSISTENT_IPAM.to_owned());
    }
    whole.labels_mut().extend(wanted.labels().clone());
    whole.annotations_mut().extend(wanted.annotations().clone());
    Standing::Loose(Box::new(whole))
}

/// The addresses that a claim has.
fn held(claim: &IPAMClaim) -> Vec<IpAddr> {
    let ips = claim.status.iter().flat_map(|status| &status.ips);
    ips.filter_map(|text| text.parse::<RequestedAddress>().ok()).map(|given| given.address).collect()
}

#[cfg(test)]
mod tests;
