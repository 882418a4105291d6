//! The instance of a machine: how it is made from the template, and whether the template is still the one it was made from.

use api::kubevirt::{DefaultNetworkInterface, VirtualMachine, VirtualMachineInstance};
use api::names::{annotations, finalizers};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource as _, ResourceExt as _};

use crate::admission::defaults::{self, ClusterDefaults};

/// The instance that a machine starts.
pub fn of(vm: &VirtualMachine) -> VirtualMachineInstance {
    let template = vm.spec.template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations;
    let generation = vm.metadata.generation.unwrap_or_default();
    annotations.insert(annotations::VM_GENERATION.into(), generation.to_string());
    VirtualMachineInstance {
        metadata: ObjectMeta {
            name: vm.metadata.name.clone(),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(template.labels),
            annotations: Some(annotations),
            owner_references: vm.controller_owner_ref(&()).map(|owner| vec![owner]),
            finalizers: Some(vec![finalizers::INSTANCE.into()]),
            ..ObjectMeta::default()
        },
        spec: vm.spec.template.spec.clone(),
        status: None,
    }
}

/// The generation of the machine that an instance was made from.
pub fn generation(vmi: &VirtualMachineInstance) -> Option<i64> {
    vmi.annotations().get(annotations::VM_GENERATION)?.parse().ok()
}

/// Whether the template still says what the instance runs. What the template leaves open, admission filled in; what it
/// filled in for the whole cluster may have changed since, and is not the machine's owner's doing.
pub fn is_of_template(vmi: &VirtualMachineInstance, vm: &VirtualMachine) -> bool {
    let template = &vm.spec.template.spec;
    if *template == vmi.spec {
        return true;
    }
    [DefaultNetworkInterface::Bridge, DefaultNetworkInterface::Masquerade].into_iter().any(|interface| {
        let cluster = ClusterDefaults {
            interface,
            eviction_strategy: vmi.spec.eviction_strategy,
            cpu_model: vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.clone()),
        };
        let mut filled = template.clone();
        defaults::fill_in(&mut filled, &cluster);
        filled == vmi.spec
    })
}
