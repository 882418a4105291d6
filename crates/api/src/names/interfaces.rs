//! Interfaces of the system's own pods, and of pods on tenants' networks.

/// The migration network, in handler and gateway pods. Written into their annotations by the controller; looked up by the
/// handler and the gateway.
pub const MIGRATION: &str = "migration0";
/// The network shared with other clusters, in gateway pods. Written and looked up as above.
pub const CROSS_CLUSTER: &str = "crosscluster0";
/// The pod network, in every pod. Made by the cluster's network; never touched.
pub const POD: &str = "eth0";
/// A primary user-defined network, in the pods on it. Made by the plugin; looked up by the handler.
pub const PRIMARY_USER_DEFINED_NETWORK: &str = "ovn-udn1";
