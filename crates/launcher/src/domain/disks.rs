//! Disks in the document of a domain.

use api::kubevirt::{DiskBus, DriverCache};

use super::pci::{self, Bus};
use super::{DiskFacts, Facts, alias};
use crate::plan::{Disk, Plan, Source};
use crate::xml::Element;

/// What each disk is called in the domain, in the order of the plan.
fn targets(plan: &Plan) -> Vec<String> {
    let (mut paravirtual, mut other) = (0.., 0..);
    let name = |disk: &Disk| {
        let (prefix, count) =
            if disk.bus == DiskBus::Virtio { ("vd", &mut paravirtual) } else { ("sd", &mut other) };
        format!("{prefix}{}", letters(count.next().unwrap_or_default()))
    };
    plan.disks.iter().map(name).collect()
}

/// The disks that are in the pod and nowhere else, by their names in the domain: a guest that moves takes them along. Of
/// those that are only read, the target makes the same.
pub fn travelling(plan: &Plan) -> Vec<String> {
    let of_pod = |disk: &Disk| matches!(disk.source, Source::Empty { .. } | Source::Settings { .. });
    let disks = plan.disks.iter().zip(targets(plan));
    disks.filter(|(disk, _)| of_pod(disk) && !disk.read_only).map(|(_, target)| target).collect()
}

pub(super) fn elements(plan: &Plan, facts: &Facts, buses: &[Bus]) -> Vec<Element> {
    // Where nobody says what boots, disks do, in their order; a kernel that is given boots itself.
    let ordered = plan.disks.iter().any(|disk| disk.boot_order.is_some())
        || plan.vnics.iter().any(|vnic| vnic.boot_order.is_some());
    let in_turn = !ordered && plan.kernel.is_none();
    let disks = plan.disks.iter().zip(&facts.disks).zip(targets(plan)).enumerate();
    let disks = disks.map(|(index, ((disk, facts), target))| {
        let order = disk.boot_order.or(in_turn.then(|| u32::try_from(index + 1).unwrap_or(u32::MAX)));
        let address = (disk.bus == DiskBus::Virtio).then(|| pci::disk(index, buses));
        element(disk, facts, &target, order).children(address)
    });
    disks.collect()
}

fn element(disk: &Disk, facts: &DiskFacts, target: &str, order: Option<u32>) -> Element {
    let (kind, attribute) = if facts.block { ("block", "dev") } else { ("file", "file") };
    // Past the host's cache where that can be done: a VM that moves must not leave writes behind in it.
    let cache = match disk.cache {
        Some(cache) => cache,
        None if facts.direct => DriverCache::None,
        None => DriverCache::WriteThrough,
    };
    let driver = Element::new("driver")
        .attribute("name", "qemu")
        .attribute("type", "raw")
        .attribute("cache", cache.as_str())
        .attribute("error_policy", "stop")
        .attribute("discard", "unmap");
    let bus = disk.bus.as_str();
    Element::new("disk")
        .attribute("type", kind)
        .attribute("device", if disk.cdrom { "cdrom" } else { "disk" })
        .child(driver)
        .child(Element::new("source").attribute(attribute, &facts.path))
        .child(Element::new("target").attribute("dev", target).attribute("bus", bus))
        .children(disk.read_only.then(|| Element::new("readonly")))
        .children(disk.shareable.then(|| Element::new("shareable")))
        .children(disk.serial.as_ref().map(|serial| Element::with_text("serial", serial)))
        .children(order.map(|order| Element::new("boot").attribute("order", order)))
        .child(alias(&disk.name.replace('.', "_")))
}

/// a, b, …, z, aa, ab, …
fn letters(index: usize) -> String {
    let last = char::from(b'a' + u8::try_from(index % 26).unwrap_or_default());
    let before = if index < 26 { String::new() } else { letters(index / 26 - 1) };
    format!("{before}{last}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_disks() {
        let names: Vec<_> = [0, 25, 26, 51, 52, 701, 702].into_iter().map(super::letters).collect();
        assert_eq!(names, ["a", "z", "aa", "az", "ba", "zz", "aaa"]);
    }
}
