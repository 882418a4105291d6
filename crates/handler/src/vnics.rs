//! The vNICs of an instance as its node sees them: which interface of the pod is whose, and who makes it.
//!
//! Pure. A launcher names a vNIC; everything else about it comes from the instance's spec.

use api::kubevirt::{Interface, VirtualMachineInstance};
use api::names::interfaces;
use kube::ResourceExt as _;
use wire::{InterfaceName, NameError, VnicName};

/// A vNIC, and its interface in the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which.
    pub name: VnicName,
    /// Its interface in the pod.
    pub interface: InterfaceName,
    /// Who makes that interface.
    pub maker: Maker,
}

/// Who makes the interface of a vNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// We do: one more attachment of the pod to the node's own network.
    Handler,
    /// Whoever made the pod did, by its annotation.
    Node,
}

/// Why a vNIC cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The VM does not have it.
    #[error("VM {instance} has no vNIC {vnic}; it has: {all}")]
    Unknown {
        /// The VM.
        instance: String,
        /// What was asked for.
        vnic: VnicName,
        /// What there is.
        all: String,
    },
    /// It needs no interface of its own.
    #[error(
        "vNIC {vnic} of VM {instance} is bound by {binding}, which needs no interface of its own in the pod"
    )]
    Unneeded {
        /// The VM.
        instance: String,
        /// The vNIC.
        vnic: VnicName,
        /// How it is bound.
        binding: &'static str,
    },
    /// The pod network of the VM is another.
    #[error(
        "vNIC {vnic} of VM {instance}: a multus network that is the pod's default cannot be bridged; plug the vNIC into a network that is not the default"
    )]
    Default {
        /// The VM.
        instance: String,
        /// The vNIC.
        vnic: VnicName,
    },
    /// Its interface cannot have the name that it should.
    #[error("vNIC {vnic}")]
    Name {
        /// The vNIC.
        vnic: VnicName,
        /// The rule.
        #[source]
        source: NameError,
    },
}

/// The vNIC of this name.
pub fn planned(vmi: &VirtualMachineInstance, vnic: &VnicName) -> Result<Planned, PlanError> {
    let devices = &vmi.spec.domain.devices;
    let interfaces = &devices.interfaces;
    // A VM without vNICs gets one, unless it says that it wants none.
    let given = interfaces.is_empty() && devices.autoattach_pod_interface != Some(false);
    if given && vnic.as_str() == Interface::DEFAULT_NAME {
        return on_pod_network(vnic, 0);
    }
    let found = interfaces.iter().enumerate().find(|(_, interface)| interface.name == vnic.as_str());
    let Some((index, interface)) = found else {
        let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        return Err(PlanError::Unknown {
            instance: vmi.name_any(),
            vnic: vnic.clone(),
            all: names.join(", "),
        });
    };
    if let Some(binding) = unbridged(interface) {
        return Err(PlanError::Unneeded { instance: vmi.name_any(), vnic: vnic.clone(), binding });
    }
    let multus = vmi.spec.network_of(interface).and_then(|network| network.multus.as_ref());
    if multus.is_some_and(|multus| multus.default == Some(true)) {
        return Err(PlanError::Default { instance: vmi.name_any(), vnic: vnic.clone() });
    }
    match multus {
        Some(_) => named(vnic, &interfaces::of_network(&interface.name), Maker::Node),
        None => on_pod_network(vnic, index),
    }
}

fn on_pod_network(vnic: &VnicName, index: usize) -> Result<Planned, PlanError> {
    named(vnic, &format!("vnic{index}"), Maker::Handler)
}

fn named(vnic: &VnicName, interface: &str, maker: Maker) -> Result<Planned, PlanError> {
    let interface = interface.parse().map_err(|source| PlanError::Name { vnic: vnic.clone(), source })?;
    Ok(Planned { name: vnic.clone(), interface, maker })
}

/// How a vNIC is bound, if it is not by a bridge.
fn unbridged(interface: &Interface) -> Option<&'static str> {
    let bindings = [
        ("masquerade", interface.masquerade.is_some()),
        ("passtBinding", interface.passt_binding.is_some()),
        ("a plugin", interface.binding.is_some()),
    ];
    bindings.into_iter().find(|(_, chosen)| *chosen).map(|(binding, _)| binding)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    fn vmi(interfaces: &serde_json::Value, networks: &serde_json::Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "vm" },
            "spec": { "domain": { "devices": { "interfaces": interfaces } }, "networks": networks },
        }))
        .unwrap()
    }

    #[test]
    fn the_place_in_the_spec_or_the_network_names_the_interface() {
        let vmi = vmi(
            &json!([{ "name": "default", "type": "pod-network" }, { "name": "blue", "bridge": {} }, { "name": "own", "bridge": {} },
                { "name": "nat", "masquerade": {} }, { "name": "main", "bridge": {} }]),
            &json!([{ "name": "blue", "multus": { "networkName": "x" } }, { "name": "own", "pod": {} }, { "name": "nat", "pod": {} },
                { "name": "main", "multus": { "networkName": "y", "default": true } }]),
        );
        let plan = |name: &str| {
            planned(&vmi, &name.parse().unwrap()).map(|plan| (plan.interface.to_string(), plan.maker))
        };
        assert_eq!(plan("default"), Ok(("vnic0".to_owned(), Maker::Handler)));
        assert_eq!(plan("blue"), Ok(("pod16477688c0e".to_owned(), Maker::Node)));
        assert_eq!(plan("own"), Ok(("vnic2".to_owned(), Maker::Handler)));
        assert!(matches!(plan("nat"), Err(PlanError::Unneeded { .. })));
        assert!(matches!(plan("main"), Err(PlanError::Default { .. })));
        let unknown = plan("eth0").unwrap_err().to_string();
        assert_eq!(unknown, "VM vm has no vNIC eth0; it has: default, blue, own, nat, main");
    }

    #[test]
    fn a_vm_without_vnics_has_one_unless_it_wants_none() {
        let mut vmi = vmi(&json!([]), &json!([]));
        let name = "default".parse().unwrap();
        assert_eq!(planned(&vmi, &name).unwrap().interface.as_str(), "vnic0");
        vmi.spec.domain.devices.autoattach_pod_interface = Some(false);
        assert!(planned(&vmi, &name).is_err());
    }
}
