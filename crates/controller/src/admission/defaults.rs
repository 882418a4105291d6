//! What an instance leaves open is filled in once, when it is made: what runs is then written down, whatever the cluster's
//! defaults become. Filling in twice fills in once.

use api::kubevirt::{
    Cpu, DefaultNetworkInterface, EvictionStrategy, Interface, InterfaceBridge, InterfaceMasquerade,
    KubeVirt, Machine, Network, PodNetwork, VirtualMachineInstanceSpec,
};
use api::quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The only chipset that every guest boots on and that can be moved.
pub const MACHINE_TYPE: &str = "q35";

/// What the `KubeVirt` object says for instances that do not say it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDefaults {
    pub interface: DefaultNetworkInterface,
    pub eviction_strategy: Option<EvictionStrategy>,
    pub cpu_model: Option<String>,
}

impl Default for ClusterDefaults {
    fn default() -> Self {
        Self { interface: DefaultNetworkInterface::Bridge, eviction_strategy: None, cpu_model: None }
    }
}

impl ClusterDefaults {
    /// The defaults of an installation.
    pub fn of(installation: &KubeVirt) -> Self {
        let configuration = installation.spec.configuration.clone().unwrap_or_default();
        let interface = configuration.network.and_then(|network| network.default_network_interface);
        Self {
            interface: interface.unwrap_or(DefaultNetworkInterface::Bridge),
            eviction_strategy: configuration.eviction_strategy,
            cpu_model: configuration.cpu_model,
        }
    }
}

/// Fills in what is open.
pub fn fill_in(spec: &mut VirtualMachineInstanceSpec, cluster: &ClusterDefaults) {
    spec.domain.machine.get_or_insert_with(|| Machine { type_: MACHINE_TYPE.into() });
    spec.termination_grace_period_seconds
        .get_or_insert(VirtualMachineInstanceSpec::DEFAULT_GRACE_PERIOD_SECONDS);
    spec.eviction_strategy = spec.eviction_strategy.or(cluster.eviction_strategy);
    processor(spec, cluster);
    memory(spec);
    network(spec, cluster);
}

/// Without a topology, as many sockets as the pod asks for CPUs.
fn processor(spec: &mut VirtualMachineInstanceSpec, cluster: &ClusterDefaults) {
    let sockets =
        resource(spec, "cpu").and_then(|cpu| quantity::milli(&cpu).ok()).map(|milli| milli.div_ceil(1000));
    let cpu = spec.domain.cpu.get_or_insert_with(Cpu::default);
    if cpu.cores.is_none() && cpu.sockets.is_none() && cpu.threads.is_none() {
        cpu.sockets = Some(sockets.and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1));
    }
    for part in [&mut cpu.cores, &mut cpu.sockets, &mut cpu.threads] {
        part.get_or_insert(1);
    }
    cpu.model = cpu.model.take().or_else(|| cluster.cpu_model.clone());
}

/// Without a size, the guest sees what the pod asks for.
fn memory(spec: &mut VirtualMachineInstanceSpec) {
    let asked = resource(spec, "memory");
    let memory = spec.domain.memory.get_or_insert_default();
    memory.guest = memory.guest.take().or(asked);
}

fn resource(spec: &VirtualMachineInstanceSpec, name: &str) -> Option<Quantity> {
    let resources = spec.domain.resources.as_ref()?;
    resources.requests.get(name).or_else(|| resources.limits.get(name)).cloned()
}

/// Without vNICs, one on the pod network; a vNIC on the pod network without a binding is bound as the cluster has it.
fn network(spec: &mut VirtualMachineInstanceSpec, cluster: &ClusterDefaults) {
    let devices = &mut spec.domain.devices;
    let none = devices.interfaces.is_empty() && spec.networks.is_empty();
    if none && devices.autoattach_pod_interface != Some(false) {
        devices.interfaces.push(plain_interface());
        let pod = Some(PodNetwork::default());
        spec.networks.push(Network { name: Interface::DEFAULT_NAME.into(), pod, multus: None });
    }
    for interface in &mut devices.interfaces {
        let network = spec.networks.iter().find(|network| network.name == interface.name);
        let short = interface.type_.is_some();
        if is_bound(interface) || !(short || network.is_some_and(|network| network.pod.is_some())) {
            continue;
        }
        match cluster.interface {
            // The short spelling is another word for a bridge.
            DefaultNetworkInterface::Masquerade if !short => {
                interface.masquerade = Some(InterfaceMasquerade::default());
            }
            _ => interface.bridge = Some(InterfaceBridge::default()),
        }
    }
}

fn is_bound(interface: &Interface) -> bool {
    interface.bridge.is_some()
        || interface.masquerade.is_some()
        || interface.passt_binding.is_some()
        || interface.binding.is_some()
}

fn plain_interface() -> Interface {
    Interface {
        name: Interface::DEFAULT_NAME.into(),
        type_: None,
        model: None,
        mac_address: None,
        mac: None,
        bridge: None,
        masquerade: None,
        passt_binding: None,
        binding: None,
        ports: Vec::new(),
        boot_order: None,
    }
}
