//! Files and sockets that two parts share.

/// The network-status annotation of the pod, by the downward API. Mounted by the controller; read by the handler and the
/// gateway.
pub const NETWORK_STATUS: &str = "/etc/podinfo/network-status";
/// Sockets of a migration, in the launcher's file system. Made by the handler and the hypervisor; used by both.
pub const MIGRATION_SOCKETS: &str = "/var/run/kubevirt/migrationproxy";
/// Sockets between a launcher and its handler, in the launcher's file system: an empty directory of the pod, called
/// [`PRIVATE_VOLUME`]. Mounted by the controller; used by both.
pub const PRIVATE: &str = "/var/run/kubevirt";
/// Name of the volume at [`PRIVATE`], by which the handler finds it on the node.
pub const PRIVATE_VOLUME: &str = "private";
/// One directory a volume, in the launcher's file system: that of a host disk's file, or of a claim, where the file is
/// `disk.img`. Mounted by the controller; read by the launcher.
pub const DISKS: &str = "/var/run/kubevirt-private/vmi-disks";
/// Files of empty disks, in the launcher's file system. Mounted by the controller; used by the launcher.
pub const EMPTY_DISKS: &str = "/var/run/kubevirt-ephemeral-disks";
/// Root of the image that holds kernel and initial RAM disk, in the launcher's file system. Mounted by the controller; read
/// by the launcher.
pub const KERNEL_BOOT: &str = "/var/run/kubevirt-kernel-boot";
/// One directory a volume with first-boot settings from secrets, in the launcher's file system: `<volume>/userdata` and
/// `<volume>/networkdata`. Mounted by the controller; read by the launcher.
pub const SECRETS: &str = "/var/run/kubevirt-private/secret";
