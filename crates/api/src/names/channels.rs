//! Channels of a migration: what one connection between two handlers carries.
//!
//! Published in `targetDirectMigrationNodePorts` by the target's handler, read by the source's handler, the gateway and
//! KubeVirt's clients. The numbers were ports once and are names now.

/// Calls from hypervisor to hypervisor.
pub const RPC: i32 = 0;
/// The source's word that the guest has left: from launcher to launcher, and Godwit's own, so it is not published.
pub const DEPARTURE: i32 = 1;
/// Guest memory and device state.
pub const MEMORY: i32 = 49152;
/// Disks.
pub const DISKS: i32 = 49153;

/// Every channel of the hypervisors; the last only if disks move.
pub const ALL: [i32; 3] = [RPC, MEMORY, DISKS];
