//! The networks of a launcher pod: annotations that Multus, or the lab in its place, acts on.
//!
//! The pod network needs none: its vNICs are made by the handler. An element of the list refers to the claim of its addresses, if they
//! are somebody's: both pods of a move to the same.

use std::collections::BTreeMap;

use api::kubevirt::{Network, VirtualMachineInstance};
use api::multus::{NetworkSelection, parse_networks};
use api::names::{annotations, interfaces};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use crate::mac;

/// Names of claims, by the pod's interface that their addresses are for.
pub type Claims = BTreeMap<String, String>;

/// The claims that a pod refers to.
pub fn claims_of(pod: &Pod) -> Claims {
    let listed = pod.annotations().get(annotations::NETWORKS).and_then(|text| parse_networks(text).ok());
    let referring = |selection: NetworkSelection| selection.interface.zip(selection.ipam_claim_reference);
    listed.into_iter().flatten().filter_map(referring).collect()
}

/// The annotations that attach the pod to the instance's networks.
pub(super) fn annotations(vmi: &VirtualMachineInstance, claims: &Claims) -> Vec<(String, String)> {
    let mut secondary = Vec::new();
    let mut written = Vec::new();
    for network in &vmi.spec.networks {
        let Some(multus) = &network.multus else { continue };
        let (namespace, name) = definition(vmi, &multus.network_name);
        if multus.default == Some(true) {
            written.push((annotations::DEFAULT_NETWORK.to_owned(), format!("{namespace}/{name}")));
        } else {
            secondary.push(selection(vmi, network, (&namespace, name), claims));
        }
    }
    // The list says everything that it must in JSON alone; a list of plain values has nothing that could fail.
    if !secondary.is_empty()
        && let Ok(list) = serde_json::to_string(&secondary)
    {
        written.push((annotations::NETWORKS.to_owned(), list));
    }
    written
}

fn selection(
    vmi: &VirtualMachineInstance,
    network: &Network,
    (namespace, name): (&str, &str),
    claims: &Claims,
) -> NetworkSelection {
    let vnic = vmi.spec.domain.devices.interfaces.iter().find(|interface| interface.name == network.name);
    let interface = interfaces::of_network(&network.name);
    let claim = claims.get(&interface);
    // Multus drops the reference, and passes these on to the plugin.
    let for_plugin = claim.map(|claim| (annotations::IPAM_CLAIM_REFERENCE.to_owned(), claim.clone().into()));
    NetworkSelection {
        mac: vnic.map(|interface| mac::of(vmi, interface)),
        ipam_claim_reference: claim.cloned(),
        cni_args: for_plugin.into_iter().collect(),
        ..NetworkSelection::new(Some(namespace), name, Some(&interface))
    }
}

/// `name` or `namespace/name`.
pub(crate) fn definition<'a>(vmi: &VirtualMachineInstance, network_name: &'a str) -> (String, &'a str) {
    match network_name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name),
        None => (vmi.namespace().unwrap_or_default(), network_name),
    }
}
