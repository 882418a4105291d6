//! What people are told, in KubeVirt's words where it has some: programs look for them.

pub const NO_INSTANCE: &str = "Migration failed because vmi does not exist.";
pub const INSTANCE_ENDED: &str = "Migration failed vmi shutdown during migration.";
pub const TARGET_ENDED: &str = "Migration failed because target pod shutdown during migration";
pub const TARGET_GONE: &str = "Migration target pod was removed during active migration.";
pub const RECORD_CLEARED: &str = "VMI's migration state was cleared during the active migration.";
pub const RECORD_TAKEN: &str =
    "VMI's migration state was taken over by another migration job during active migration.";
pub const SOURCE_FAILED: &str = "source node reported migration failed";
pub const SUCCEEDED: &str = "Source node reported migration succeeded";
pub const HANDED_OVER: &str = "Migration target pod is ready for preparation by virt-handler.";
pub const RIVAL: &str = "VMI is not eligible for migration because another migration job is in progress.";
pub const ABORTED: &str = "Live migration has been aborted";
pub const ABORTING: &str = "VirtualMachineInstance is aborting migration.";

/// A VM that cannot move, with the reason and the message of its condition.
pub fn not_migratable(reason: &str, message: &str) -> String {
    format!("Cannot migrate VMI, Reason: {reason}, Message: {message}")
}

/// A second migration of a VM that moves already.
pub fn in_flight(uid: &str, instance: &str) -> String {
    format!(
        "in-flight migration detected. Active migration job ({uid}) is currently already in progress for VMI {instance}."
    )
}
