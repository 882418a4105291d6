//! Files and sockets that two parts share.

/// The network-status annotation of the pod, by the downward API. Mounted by the controller; read by the handler and the
/// gateway.
pub const NETWORK_STATUS: &str = "/etc/podinfo/network-status";
/// Sockets of a migration, in the launcher's file system. Made by the handler and the hypervisor; used by both.
pub const MIGRATION_SOCKETS: &str = "/var/run/kubevirt/migrationproxy";
