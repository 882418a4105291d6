//! Where each device is on the PCI bus: a function of its kind and its place in the spec.

use api::kubevirt::{DiskBus, InterfaceModel};

use super::DomainError;
use crate::plan::{Plan, PlannedVnic};
use crate::xml::Element;

const VNIC_SLOTS: u8 = 0x02;
const DISK_SLOTS: u8 = 0x06;
const FIXED_SLOT: u8 = 0x0a;
const CONVENTIONAL_SLOTS: u8 = 0x10;
/// Root ports: eight functions of each of four slots.
const ROOM: usize = 32;
/// Slots up to the chipset's own.
const CONVENTIONAL_ROOM: usize = 14;

/// Devices of which there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixed {
    Rng,
    Balloon,
    Scsi,
    Usb,
}

/// A root port, and the bus behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bus {
    holds: Holds,
    slot: u8,
    function: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Vnic(usize),
    Disk(usize),
}

fn is_express(vnic: &PlannedVnic) -> bool {
    matches!(vnic.model, InterfaceModel::Virtio | InterfaceModel::E1000e | InterfaceModel::Igb)
}

/// Whether there is room for all devices.
pub(super) fn check(plan: &Plan) -> Result<(), DomainError> {
    let too_many = |what, count, room| {
        if count > room { Err(DomainError::TooMany { what, count, room }) } else { Ok(()) }
    };
    too_many("vNICs", plan.vnics.len(), ROOM)?;
    let conventional = plan.vnics.iter().rposition(|vnic| !is_express(vnic)).map_or(0, |last| last + 1);
    too_many("vNICs before and with the last that is not PCI Express", conventional, CONVENTIONAL_ROOM)?;
    too_many("disks", plan.disks.len(), ROOM)
}

/// The root ports in the order of their places: the number of a bus is its place in the list, beginning with 1.
pub(super) fn buses(plan: &Plan) -> Vec<Bus> {
    let place = |holds, first: u8, index: usize| {
        let index = u8::try_from(index).unwrap_or(u8::MAX);
        Bus { holds, slot: first + index / 8, function: index % 8 }
    };
    // Every vNIC and disk has its port, needed or not: the one with function 0 must be there, and none may move.
    let vnics = (0..plan.vnics.len()).map(|index| place(Holds::Vnic(index), VNIC_SLOTS, index));
    let disks = (0..plan.disks.len()).map(|index| place(Holds::Disk(index), DISK_SLOTS, index));
    vnics.chain(disks).collect()
}

/// The elements of the root ports, and of the controllers that disks need.
pub(super) fn controllers(plan: &Plan, buses: &[Bus]) -> Vec<Element> {
    let controller = |kind: &str, index: usize, model: &str| {
        Element::new("controller").attribute("type", kind).attribute("index", index).attribute("model", model)
    };
    let has = |bus| plan.disks.iter().any(|disk| disk.bus == bus);
    let usb = if has(DiskBus::Usb) {
        controller("usb", 0, "qemu-xhci").child(fixed(Fixed::Usb))
    } else {
        controller("usb", 0, "none")
    };
    let scsi = has(DiskBus::Scsi).then(|| controller("scsi", 0, "virtio-scsi").child(fixed(Fixed::Scsi)));
    let ports = buses.iter().enumerate().map(|(index, bus)| {
        let address = address(0, bus.slot, bus.function);
        let first = bus.function == 0;
        let address = if first { address.attribute("multifunction", "on") } else { address };
        controller("pci", index + 1, "pcie-root-port").child(address)
    });
    std::iter::once(controller("pci", 0, "pcie-root")).chain(ports).chain([usb]).chain(scsi).collect()
}

fn address(bus: usize, slot: u8, function: u8) -> Element {
    Element::new("address")
        .attribute("type", "pci")
        .attribute("domain", "0x0000")
        .attribute("bus", format!("{bus:#04x}"))
        .attribute("slot", format!("{slot:#04x}"))
        .attribute("function", format!("{function:#x}"))
}

pub(super) fn fixed(device: Fixed) -> Element {
    let function = match device {
        Fixed::Rng => 0,
        Fixed::Balloon => 1,
        Fixed::Scsi => 2,
        Fixed::Usb => 3,
    };
    let address = address(0, FIXED_SLOT, function);
    if function == 0 { address.attribute("multifunction", "on") } else { address }
}

pub(super) fn vnic(index: usize, plan: &Plan, buses: &[Bus]) -> Element {
    if plan.vnics.get(index).is_some_and(is_express) {
        return behind(Holds::Vnic(index), buses);
    }
    let slot = CONVENTIONAL_SLOTS + u8::try_from(index).unwrap_or(u8::MAX - CONVENTIONAL_SLOTS);
    address(0, slot, 0)
}

pub(super) fn disk(index: usize, buses: &[Bus]) -> Element {
    behind(Holds::Disk(index), buses)
}

fn behind(holds: Holds, buses: &[Bus]) -> Element {
    let place = buses.iter().position(|bus| bus.holds == holds).unwrap_or_default();
    address(place + 1, 0, 0)
}
