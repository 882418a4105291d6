//! The networks of a launcher pod: annotations that Multus, or the lab in its place, acts on.
//!
//! The pod network needs none: its vNICs are made by the handler. A claim of addresses is referred to here once claims exist.

use api::kubevirt::{Network, VirtualMachineInstance};
use api::multus::NetworkSelection;
use api::names::{annotations, interfaces};
use kube::ResourceExt as _;

use crate::mac;

/// The annotations that attach the pod to the instance's networks.
pub(super) fn annotations(vmi: &VirtualMachineInstance) -> Vec<(String, String)> {
    let mut secondary = Vec::new();
    let mut written = Vec::new();
    for network in &vmi.spec.networks {
        let Some(multus) = &network.multus else { continue };
        let (namespace, name) = definition(vmi, &multus.network_name);
        if multus.default == Some(true) {
            written.push((annotations::DEFAULT_NETWORK.to_owned(), format!("{namespace}/{name}")));
        } else {
            secondary.push(selection(vmi, network, &namespace, name));
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
    namespace: &str,
    name: &str,
) -> NetworkSelection {
    let interface =
        vmi.spec.domain.devices.interfaces.iter().find(|interface| interface.name == network.name);
    NetworkSelection {
        mac: interface.map(|interface| mac::of(vmi, interface)),
        ..NetworkSelection::new(Some(namespace), name, Some(&interfaces::of_network(&network.name)))
    }
}

/// `name` or `namespace/name`.
fn definition<'a>(vmi: &VirtualMachineInstance, network_name: &'a str) -> (String, &'a str) {
    match network_name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name),
        None => (vmi.namespace().unwrap_or_default(), network_name),
    }
}
