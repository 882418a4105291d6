//! The VM as libvirt's document of a domain.
//!
//! Pure. The same VM makes the same document, wherever and however often it is started: a guest sees the same hardware at the same
//! addresses, also when another device was added after them. vNICs have the first buses, so that their names in a guest
//! (`enp1s0`) do not depend on how many disks there are.
//!
//! ```text
//!  pcie.0  02.0 … 05.7  root ports of vNICs (one bus each)     10 … 1d  vNICs of models that are not PCI Express
//!          06.0 … 09.7  root ports of paravirtual disks        1f       chipset: SATA
//!          0a.0 rng, 0a.1 balloon, 0a.2 SCSI, 0a.3 USB
//! ```

use std::path::Path;

use api::mac::MacAddress;
use wire::Accelerator;

use crate::UnwritableText;
use crate::network::{self, tap_name};
use crate::plan::{Plan, PlannedVnic};
use crate::xml::Element;

mod disks;
mod pci;

pub use disks::travelling;

use pci::{Bus, Fixed};

/// Where the launcher and the hypervisor meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// A socket: the serial console.
    pub console: String,
    /// A file: what the guest wrote to it.
    pub console_log: String,
    /// A socket: the screen.
    pub screen: String,
}

/// What was found out since the plan was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub accelerator: Accelerator,
    /// Of the vNICs, in the order of the plan.
    pub vnics: Vec<VnicFacts>,
    /// Of the disks, in the order of the plan.
    pub disks: Vec<DiskFacts>,
    pub places: Places,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VnicFacts {
    pub mac: MacAddress,
    pub mtu: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    /// A block device, not a file.
    pub block: bool,
    pub path: String,
    /// The storage can be written past the host's cache.
    pub direct: bool,
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    #[error("the VM has {count} {what}; there is room for {room}")]
    TooMany { what: &'static str, count: usize, room: usize },
    #[error(transparent)]
    Text(#[from] UnwritableText),
}

/// The document.
pub fn document(plan: &Plan, facts: &Facts) -> Result<String, DomainError> {
    pci::check(plan)?;
    let kvm = facts.accelerator == Accelerator::Kvm;
    let root = Element::new("domain")
        .attribute("type", if kvm { "kvm" } else { "qemu" })
        .child(Element::with_text("name", &plan.name))
        .child(Element::with_text("uuid", plan.uuid))
        .child(Element::with_text("memory", plan.memory_bytes).attribute("unit", "b"))
        .child(shared_memory())
        .child(Element::with_text("vcpu", plan.cpu.count()).attribute("placement", "static"))
        .child(system_information(plan))
        .child(boot(plan))
        .child(Element::new("features").child(Element::new("acpi")).child(Element::new("apic")))
        .child(processor(plan, kvm))
        .child(Element::new("clock").attribute("offset", "utc"))
        .child(Element::with_text("on_poweroff", "destroy"))
        .child(Element::with_text("on_reboot", "restart"))
        .child(Element::with_text("on_crash", "destroy"))
        .child(devices(plan, facts));
    Ok(root.document()?)
}

/// Memory that other processes of the pod may map: what passt and vhost-user need.
fn shared_memory() -> Element {
    Element::new("memoryBacking")
        .child(Element::new("source").attribute("type", "memfd"))
        .child(Element::new("access").attribute("mode", "shared"))
}

fn system_information(plan: &Plan) -> Element {
    let entry = |name: &str, value: &str| Element::with_text("entry", value).attribute("name", name);
    let system = Element::new("system")
        .child(entry("manufacturer", "Godwit"))
        .child(entry("uuid", &plan.uuid.to_string()))
        .children(plan.serial.as_deref().map(|serial| entry("serial", serial)));
    Element::new("sysinfo").attribute("type", "smbios").child(system)
}

fn boot(plan: &Plan) -> Element {
    let path = |name: &'static str, path: &Path| Element::with_text(name, path.display());
    let kernel = plan.kernel.iter().flat_map(|kernel| {
        let arguments = kernel.arguments.as_ref().map(|text| Element::with_text("cmdline", text));
        [
            Some(path("kernel", &kernel.kernel)),
            kernel.initrd.as_deref().map(|initrd| path("initrd", initrd)),
            arguments,
        ]
    });
    let serial = plan.firmware_on_serial.then(|| Element::new("bios").attribute("useserial", "yes"));
    Element::new("os")
        .child(
            Element::with_text("type", "hvm").attribute("arch", "x86_64").attribute("machine", &plan.machine),
        )
        .children(kernel.flatten())
        .child(Element::new("smbios").attribute("mode", "sysinfo"))
        .children(serial)
}

/// With the processor, what the user asked for; without it, a model that QEMU can play in full.
fn processor(plan: &Plan, kvm: bool) -> Element {
    let part = |part: Option<u32>| part.unwrap_or(1).max(1);
    let topology = Element::new("topology")
        .attribute("sockets", part(plan.cpu.sockets))
        .attribute("dies", 1)
        .attribute("cores", part(plan.cpu.cores))
        .attribute("threads", part(plan.cpu.threads));
    let named = |model: &str| {
        Element::new("cpu")
            .attribute("mode", "custom")
            .attribute("match", "exact")
            .attribute("check", if kvm { "partial" } else { "none" })
            .child(Element::with_text("model", model).attribute("fallback", "forbid"))
    };
    let cpu = match (plan.cpu.model.as_deref(), kvm) {
        (Some("host-passthrough"), true) => {
            Element::new("cpu").attribute("mode", "host-passthrough").attribute("check", "none")
        }
        (None | Some("host-model"), true) => {
            Element::new("cpu").attribute("mode", "host-model").attribute("check", "partial")
        }
        (None | Some("host-model" | "host-passthrough"), false) => named("qemu64"),
        (Some(model), _) => named(model),
    };
    cpu.child(topology)
}

fn devices(plan: &Plan, facts: &Facts) -> Element {
    let buses = pci::buses(plan);
    let vnics = plan.vnics.iter().zip(&facts.vnics).enumerate();
    let vnics = vnics.map(|(index, (vnic, facts))| interface(index, vnic, *facts, plan, &buses));
    Element::new("devices")
        .child(Element::with_text("emulator", "/usr/bin/qemu-system-x86_64"))
        .children(pci::controllers(plan, &buses))
        .children(disks::elements(plan, facts, &buses))
        .children(vnics)
        .children(console(plan, &facts.places))
        .children(screen(plan, &facts.places))
        .child(
            Element::new("rng")
                .attribute("model", "virtio")
                .child(Element::with_text("backend", "/dev/urandom").attribute("model", "random"))
                .child(pci::fixed(Fixed::Rng)),
        )
        .child(balloon(plan))
}

fn interface(index: usize, vnic: &PlannedVnic, facts: VnicFacts, plan: &Plan, buses: &[Bus]) -> Element {
    let queues = vnic.queues.map(|queues| Element::new("driver").attribute("queues", queues));
    let mtu = facts.mtu.map(|mtu| Element::new("mtu").attribute("size", mtu));
    let order = vnic.boot_order.map(|order| Element::new("boot").attribute("order", order));
    // The firmware of a network card takes a second at every start, and is of use only to boot from the network.
    let rom = order.is_none().then(|| Element::new("rom").attribute("enabled", "no"));
    Element::new("interface")
        .attribute("type", "network")
        .child(Element::new("mac").attribute("address", facts.mac))
        .child(Element::new("source").attribute("network", network::name(&vnic.name)))
        .child(Element::new("target").attribute("dev", tap_name(index)))
        .child(Element::new("model").attribute("type", vnic.model))
        .children(queues)
        .children(mtu)
        .children(order)
        .children(rom)
        .child(alias(vnic.name.as_str()))
        .child(pci::vnic(index, plan, buses))
}

/// A name that survives in the document of the running domain; libvirt wants the prefix.
fn alias(name: &str) -> Element {
    Element::new("alias").attribute("name", format!("ua-{name}"))
}

fn console(plan: &Plan, places: &Places) -> Option<Element> {
    let log = plan
        .log_console
        .then(|| Element::new("log").attribute("file", &places.console_log).attribute("append", "on"));
    plan.console.then(|| {
        Element::new("serial")
            .attribute("type", "unix")
            .child(Element::new("source").attribute("mode", "bind").attribute("path", &places.console))
            .children(log)
            .child(Element::new("target").attribute("type", "isa-serial").attribute("port", 0))
    })
}

fn screen(plan: &Plan, places: &Places) -> Vec<Element> {
    let model = |model: &str| Element::new("video").child(Element::new("model").attribute("type", model));
    if !plan.screen {
        return vec![model("none")];
    }
    let socket = Element::new("listen").attribute("type", "socket").attribute("socket", &places.screen);
    vec![Element::new("graphics").attribute("type", "vnc").child(socket), model("vga")]
}

fn balloon(plan: &Plan) -> Element {
    if !plan.balloon {
        return Element::new("memballoon").attribute("model", "none");
    }
    Element::new("memballoon")
        .attribute("model", "virtio")
        .child(Element::new("stats").attribute("period", 10))
        .child(pci::fixed(Fixed::Balloon))
}
