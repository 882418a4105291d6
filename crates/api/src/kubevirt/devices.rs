//! The devices of a virtual machine other than its vNICs.
//!
//! It must never describe what a disk holds: that is a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Interface;
use crate::string_enum::string_enum;

/// Devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// Disks; each shows the volume of its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub disks: Vec<Disk>,
    /// vNICs; each is plugged into the network of its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub interfaces: Vec<Interface>,
    /// Gives a VM without vNICs one on the pod network. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_pod_interface: Option<bool>,
    /// Gives the VM a screen. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_graphics_device: Option<bool>,
    /// Gives the VM a serial console. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_serial_console: Option<bool>,
    /// Writes the serial console to the log of the pod. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_serial_console: Option<bool>,
    /// Gives the VM a memory balloon. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoattach_mem_balloon: Option<bool>,
    /// One queue a vCPU for each vNIC. Default false.
    #[serde(rename = "networkInterfaceMultiqueue", skip_serializing_if = "Option::is_none")]
    pub network_interface_multi_queue: Option<bool>,
    /// A source of randomness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rng: Option<Rng>,
}

/// Randomness from the node; it has no settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rng {}

/// A disk. With neither `disk` nor `cdrom` it is a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.disk) || !has(self.cdrom)",
    "message": "a disk is a disk or a cdrom, not both",
}]))]
pub struct Disk {
    /// Name of the disk and of its volume.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The guest sees a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskTarget>,
    /// The guest sees a CD-ROM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdrom: Option<CdromTarget>,
    /// Place in the boot order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub boot_order: Option<u32>,
    /// Serial number that the guest sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// How the host caches it. Default: none where the storage can do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<DriverCache>,
    /// Several VMs may write it at a time. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable: Option<bool>,
}

/// A disk as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskTarget {
    /// Bus. Default sata, as in KubeVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// The guest may not write. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

/// A CD-ROM as the guest sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CdromTarget {
    /// Bus. Default sata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<DiskBus>,
    /// The guest may not write. Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
}

string_enum! {
    /// How a disk is connected.
    pub enum DiskBus {
        /// Paravirtual.
        Virtio = "virtio",
        /// SATA.
        Sata = "sata",
        /// SCSI.
        Scsi = "scsi",
        /// USB.
        Usb = "usb",
    }
}

string_enum! {
    /// How the host caches a disk.
    pub enum DriverCache {
        /// Not at all.
        None = "none",
        /// Reads only.
        WriteThrough = "writethrough",
        /// Reads and writes.
        WriteBack = "writeback",
    }
}
