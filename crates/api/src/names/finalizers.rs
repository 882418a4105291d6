//! Finalizers. Each is added and removed by the same part.

/// An instance is gone from its node. The controller's.
pub const INSTANCE: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// The instance of a VM is gone. The controller's.
pub const MACHINE: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// A migration is over, or given up. The controller's.
pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";
/// The other side of a migration between clusters knows that it is over. The gateway's.
pub const MIGRATION_SYNCHRONIZATION: &str = "synchronization.kubevirt.io/migrationFinalizer";
/// No guest uses the addresses of a claim any more. The controller's.
pub const PERSISTENT_IPAM: &str = "kubevirt.io/persistent-ipam";
/// No pod is on a user-defined network, or on its definition. The controller's.
pub const USER_DEFINED_NETWORK: &str = "k8s.ovn.org/user-defined-network-protection";
/// The components of an installation are gone. The controller's.
pub const INSTALLATION: &str = "kubevirt.io/virtOperatorFinalizer";
