//! What a VM's spec means here: which vNICs, disks, processors and memory, where its files are.
//!
//! Pure. Everything is checked before anything is made; an error names the field. What this launcher cannot do is refused here, by
//! name, and never silently left out.

use std::path::{Path, PathBuf};

use api::kubevirt::{Cpu, Firmware, Interface, InterfaceModel, Machine, PodNetwork, VirtualMachineInstance};
use api::mac::MacAddress;
use api::names::paths;
use api::quantity::{self, QuantityError};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use wire::{NameError, VnicName};

mod binding;
mod volumes;

pub use binding::{Binding, Masquerade};
pub(crate) use volumes::claim_file;
pub use volumes::{Content, Disk, Settings, Source};

/// The machine type of the QEMU that the launcher's image holds. With a version, so that a guest sees the same hardware after
/// it moved to a newer one.
pub const MACHINE: &str = "pc-q35-10.0";

/// Why a VM cannot run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A value is not what the field needs.
    #[error("{field}: {problem}")]
    Field {
        /// Where in the VM's object.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The launcher cannot do that.
    #[error("{field}: {what} is not supported by this launcher")]
    Unsupported {
        /// Where in the VM's object.
        field: String,
        /// What.
        what: String,
    },
}

impl PlanError {
    fn field(field: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        Self::Field { field: field.into(), problem: format!("{problem}") }
    }

    fn unsupported(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Unsupported { field: field.into(), what: what.into() }
    }
}

/// A VM as it will be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "devices that a VM has or has not")]
pub struct Plan {
    /// `<namespace>_<name>`.
    pub name: String,
    /// The identity that the guest sees.
    pub uuid: Uuid,
    /// The name that the guest gets by DHCP.
    pub hostname: String,
    /// Serial number that the guest sees.
    pub serial: Option<String>,
    pub cpu: Cpu,
    pub memory_bytes: u64,
    pub machine: String,
    /// The firmware writes to the serial console.
    pub firmware_on_serial: bool,
    pub kernel: Option<Kernel>,
    pub disks: Vec<Disk>,
    pub vnics: Vec<PlannedVnic>,
    pub console: bool,
    pub log_console: bool,
    pub screen: bool,
    pub balloon: bool,
    pub start_paused: bool,
    /// Seconds that the guest has to shut down.
    pub grace_seconds: u32,
}

/// A kernel that is booted without a boot loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub kernel: PathBuf,
    pub initrd: Option<PathBuf>,
    pub arguments: Option<String>,
}

/// A vNIC as it will be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedVnic {
    pub name: VnicName,
    pub binding: Binding,
    /// The user's, or the one that the VM's status remembers; none: the network decides.
    pub mac: Option<MacAddress>,
    pub model: InterfaceModel,
    pub boot_order: Option<u32>,
    pub queues: Option<u32>,
}

/// The plan of a VM.
pub fn plan(vmi: &VirtualMachineInstance) -> Result<Plan, PlanError> {
    let (spec, domain) = (&vmi.spec, &vmi.spec.domain);
    let name = vmi.metadata.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(PlanError::field("metadata.name", "it is empty"));
    }
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
    let firmware = domain.firmware.clone().unwrap_or_default();
    let cpu = domain.cpu.clone().unwrap_or_default();
    if cpu.dedicated_cpu_placement == Some(true) {
        return Err(PlanError::unsupported(
            "spec.domain.cpu.dedicatedCpuPlacement",
            "a CPU of its own for each vCPU",
        ));
    }
    let devices = &domain.devices;
    let grace = spec
        .termination_grace_period_seconds
        .unwrap_or(api::kubevirt::VirtualMachineInstanceSpec::DEFAULT_GRACE_PERIOD_SECONDS);
    Ok(Plan {
        uuid: uuid(&firmware, namespace, &name)?,
        hostname: spec.hostname.clone().unwrap_or_else(|| first_label(&name)),
        serial: firmware.serial.clone(),
        memory_bytes: memory(vmi)?,
        machine: machine(domain.machine.as_ref())?,
        firmware_on_serial: firmware_on_serial(&firmware)?,
        kernel: kernel(&firmware)?,
        disks: volumes::disks(vmi)?,
        vnics: vnics(vmi, cpu.count())?,
        console: devices.autoattach_serial_console != Some(false),
        log_console: devices.log_serial_console != Some(false),
        // KubeVirt gives every VM a screen; here it takes memory that nobody looks at, so it comes when asked for.
        screen: devices.autoattach_graphics_device == Some(true),
        balloon: devices.autoattach_mem_balloon != Some(false),
        start_paused: spec.start_strategy.is_some(),
        grace_seconds: u32::try_from(grace.max(0)).unwrap_or(u32::MAX),
        name: format!("{namespace}_{name}"),
        cpu,
    })
}

fn first_label(name: &str) -> String {
    name.split('.').next().unwrap_or(name).to_owned()
}

/// The user's, or one that follows from the name: the same after every stop and start.
fn uuid(firmware: &Firmware, namespace: &str, name: &str) -> Result<Uuid, PlanError> {
    let Some(text) = &firmware.uuid else {
        let digest = Sha256::digest(format!("{namespace}/{name}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        return Ok(uuid::Builder::from_custom_bytes(bytes).into_uuid());
    };
    text.parse().map_err(|cause| PlanError::field("spec.domain.firmware.uuid", format!("{text:?}: {cause}")))
}

fn memory(vmi: &VirtualMachineInstance) -> Result<u64, PlanError> {
    const MEBIBYTE: u64 = 1 << 20;
    let domain = &vmi.spec.domain;
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let asked = |which: &'static str| {
        let resources = domain.resources.as_ref()?;
        let list = if which == "requests" { &resources.requests } else { &resources.limits };
        Some((format!("spec.domain.resources.{which}.memory"), list.get("memory")?))
    };
    let (field, amount) = guest
        .map(|amount| ("spec.domain.memory.guest".to_owned(), amount))
        .or_else(|| asked("requests"))
        .or_else(|| asked("limits"))
        .ok_or_else(|| {
            PlanError::field("spec.domain.memory.guest", "it is missing, and so is a request for memory")
        })?;
    let bytes = quantity::whole(amount).map_err(|cause: QuantityError| PlanError::field(&field, cause))?;
    if bytes < MEBIBYTE {
        return Err(PlanError::field(field, format!("{} is less than one mebibyte", amount.0)));
    }
    // QEMU wants whole mebibytes; the guest has at least what was asked for.
    Ok(bytes.div_ceil(MEBIBYTE) * MEBIBYTE)
}

fn machine(machine: Option<&Machine>) -> Result<String, PlanError> {
    match machine.map(|machine| machine.type_.as_str()) {
        None | Some("" | "q35") => Ok(MACHINE.to_owned()),
        Some(other) if other.starts_with("pc-q35-") => Ok(other.to_owned()),
        Some(other) => {
            Err(PlanError::unsupported("spec.domain.machine.type", format!("the machine {other:?}")))
        }
    }
}

fn firmware_on_serial(firmware: &Firmware) -> Result<bool, PlanError> {
    let Some(bootloader) = &firmware.bootloader else { return Ok(false) };
    if bootloader.efi.is_some() {
        return Err(PlanError::unsupported("spec.domain.firmware.bootloader.efi", "EFI"));
    }
    Ok(bootloader.bios.as_ref().is_some_and(|bios| bios.use_serial == Some(true)))
}

/// The controller mounts the image; its paths stay within it.
fn kernel(firmware: &Firmware) -> Result<Option<Kernel>, PlanError> {
    const FIELD: &str = "spec.domain.firmware.kernelBoot";
    let Some(boot) = &firmware.kernel_boot else { return Ok(None) };
    let container = boot
        .container
        .as_ref()
        .ok_or_else(|| PlanError::field(format!("{FIELD}.container"), "it is missing"))?;
    let within = |field: &str, path: &Option<String>| {
        path.as_ref()
            .map(|path| inside(&format!("{FIELD}.container.{field}"), paths::KERNEL_BOOT, path))
            .transpose()
    };
    let kernel = within("kernelPath", &container.kernel_path)?
        .ok_or_else(|| PlanError::field(format!("{FIELD}.container.kernelPath"), "it is missing"))?;
    let initrd = within("initrdPath", &container.initrd_path)?;
    Ok(Some(Kernel { kernel, initrd, arguments: boot.kernel_args.clone() }))
}

/// A path of an image as a path of ours; none that leads out of it.
fn inside(field: &str, root: &str, path: &str) -> Result<PathBuf, PlanError> {
    use std::path::Component;

    let relative = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || relative.as_os_str().is_empty() {
        return Err(PlanError::field(field, format!("{path:?} is not the path of a file in the image")));
    }
    Ok(Path::new(root).join(relative))
}

fn vnics(vmi: &VirtualMachineInstance, cpus: u32) -> Result<Vec<PlannedVnic>, PlanError> {
    let devices = &vmi.spec.domain.devices;
    let known = vmi.status.iter().flat_map(|status| &status.interfaces);
    let remembered = |name: &str| known.clone().find(|known| known.name.as_deref() == Some(name))?.mac;
    if devices.interfaces.is_empty() && devices.autoattach_pod_interface != Some(false) {
        let mac = remembered(Interface::DEFAULT_NAME);
        let name = vnic_name("spec.domain.devices.interfaces", Interface::DEFAULT_NAME)?;
        return Ok(vec![PlannedVnic {
            name,
            binding: Binding::Bridge,
            mac,
            model: InterfaceModel::Virtio,
            boot_order: None,
            queues: None,
        }]);
    }
    let mut planned: Vec<PlannedVnic> = Vec::new();
    for (index, interface) in devices.interfaces.iter().enumerate() {
        let field = format!("spec.domain.devices.interfaces[{index}]");
        let binding = binding::binding(&field, interface, pod_network(vmi, interface))?;
        let name = vnic_name(&format!("{field}.name"), &interface.name)?;
        if planned.iter().any(|other| other.name == name) {
            return Err(PlanError::field(format!("{field}.name"), format!("there are two called {name}")));
        }
        let model = interface.device_model();
        let many = devices.network_interface_multi_queue == Some(true)
            && model == InterfaceModel::Virtio
            && cpus > 1;
        planned.push(PlannedVnic {
            mac: interface.requested_mac().or_else(|| remembered(&interface.name)),
            boot_order: interface.boot_order,
            queues: many.then_some(cpus),
            name,
            binding,
            model,
        });
    }
    Ok(planned)
}

fn vnic_name(field: &str, name: &str) -> Result<VnicName, PlanError> {
    name.parse().map_err(|cause: NameError| PlanError::field(field, cause))
}

/// The pod network that a vNIC is plugged into, and its place in the spec.
fn pod_network<'a>(
    vmi: &'a VirtualMachineInstance,
    interface: &Interface,
) -> Option<(usize, &'a PodNetwork)> {
    let networks = vmi.spec.networks.iter().enumerate();
    let (index, network) = networks.into_iter().find(|(_, network)| network.name == interface.name)?;
    network.pod.as_ref().map(|pod| (index, pod))
}

#[cfg(test)]
mod tests;
