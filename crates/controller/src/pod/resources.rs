//! What a launcher pod asks of its node: the guest's memory, and the hypervisor's own on top.
//!
//! The scheduler believes these numbers; a pod that uses more than it asked for is the first to be killed when a node
//! runs out. So the estimate errs on the large side.

use std::collections::BTreeMap;

use api::kubevirt::VirtualMachineInstanceSpec;
use api::quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const MIB: u64 = 1 << 20;
/// virt-launcher, libvirtd, dnsmasq, and QEMU without its guest.
const PROCESSES: u64 = 128 * MIB;
/// Stacks and caches of one vCPU.
const PER_VCPU: u64 = 8 * MIB;
/// Memory of the screen.
const SCREEN: u64 = 32 * MIB;
/// passt's buffers.
const PASST: u64 = 250 * MIB;
/// One byte of page tables maps this many bytes of guest.
const BYTES_PER_PAGE_TABLE_BYTE: u64 = 512;
/// A vCPU asks for a tenth of a CPU unless the user says otherwise: most guests idle.
const MILLI_CPU_PER_VCPU: u64 = 100;

/// What the pod asks for.
pub(super) fn requirements(spec: &VirtualMachineInstanceSpec) -> ResourceRequirements {
    let asked = spec.domain.resources.clone().unwrap_or_default();
    let overhead = if asked.overcommit_guest_overhead == Some(true) { 0 } else { overhead(spec) };
    let with_overhead = |memory: u64| Quantity(memory.saturating_add(overhead).to_string());

    let mut requests = asked.requests;
    let memory = requests.get("memory").and_then(|memory| quantity::whole(memory).ok());
    requests.insert("memory".into(), with_overhead(memory.unwrap_or_else(|| guest_memory(spec))));
    let cpu = || Quantity(format!("{}m", u64::from(vcpus(spec)) * MILLI_CPU_PER_VCPU));
    requests.entry("cpu".into()).or_insert_with(cpu);

    let mut limits: BTreeMap<String, Quantity> = asked.limits;
    if let Some(memory) = limits.get("memory").and_then(|memory| quantity::whole(memory).ok()) {
        limits.insert("memory".into(), with_overhead(memory));
    }
    if spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true)) {
        // Whole CPUs and equal limits: then the kubelet gives the pod CPUs of its own.
        requests.insert("cpu".into(), Quantity(vcpus(spec).to_string()));
        limits.clone_from(&requests);
    }
    ResourceRequirements {
        requests: Some(requests),
        limits: (!limits.is_empty()).then_some(limits),
        ..ResourceRequirements::default()
    }
}

/// Bytes that the guest sees. Admission has made sure that somebody said it.
fn guest_memory(spec: &VirtualMachineInstanceSpec) -> u64 {
    let guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    guest.and_then(|guest| quantity::whole(guest).ok()).unwrap_or_default()
}

fn vcpus(spec: &VirtualMachineInstanceSpec) -> u32 {
    spec.domain.cpu.as_ref().map_or(1, api::kubevirt::Cpu::count)
}

fn overhead(spec: &VirtualMachineInstanceSpec) -> u64 {
    let devices = &spec.domain.devices;
    let screen = if devices.autoattach_graphics_device == Some(false) { 0 } else { SCREEN };
    let passt =
        if devices.interfaces.iter().any(|interface| interface.passt_binding.is_some()) { PASST } else { 0 };
    let page_tables = guest_memory(spec) / BYTES_PER_PAGE_TABLE_BYTE;
    PROCESSES + screen + passt + page_tables + PER_VCPU * u64::from(vcpus(spec))
}
