//! Reasons of events. Written by the part that is named; read by users.

/// An object was created. The controller's.
pub const SUCCESSFUL_CREATE: &str = "SuccessfulCreate";
/// An object could not be created. The controller's.
pub const FAILED_CREATE: &str = "FailedCreate";
/// An object was changed. The controller's.
pub const SUCCESSFUL_UPDATE: &str = "SuccessfulUpdate";
/// An object could not be changed, or did not do well by it. The controller's.
pub const FAILED_UPDATE: &str = "FailedUpdate";
/// An object was deleted. The controller's.
pub const SUCCESSFUL_DELETE: &str = "SuccessfulDelete";
/// An object could not be deleted. The controller's.
pub const FAILED_DELETE: &str = "FailedDelete";
/// A migration is with the handlers. The controller's.
pub const SUCCESSFUL_HAND_OVER: &str = "SuccessfulHandOver";
/// A migration could not be given to the handlers. The controller's.
pub const FAILED_HAND_OVER: &str = "FailedHandOver";
/// The guest runs at the target. The controller's.
pub const SUCCESSFUL_MIGRATION: &str = "SuccessfulMigration";
/// The guest did not move. The controller's.
pub const FAILED_MIGRATION: &str = "FailedMigration";
/// A migration was given up. The controller's.
pub const SUCCESSFUL_ABORT_MIGRATION: &str = "SuccessfulAbortMigration";
/// A migration could not be given up. The controller's.
pub const FAILED_ABORT_MIGRATION: &str = "FailedAbortMigration";
/// The next attempt to move a VM waits. The controller's.
pub const MIGRATION_BACKOFF: &str = "MigrationBackoff";
/// No node takes the target pod. The controller's.
pub const TARGET_POD_UNSCHEDULABLE: &str = "migrationTargetPodUnschedulable";
/// No node has the processor that the guest needs. The controller's.
pub const NO_SUITABLE_NODES_FOR_HOST_MODEL_MIGRATION: &str = "NoSuitableNodesForHostModelMigration";
/// The target listens, and where. The handler's.
pub const PREPARING_TARGET: &str = "PreparingTarget";
/// The guest moves. The handler's.
pub const MIGRATING: &str = "Migrating";
/// The guest moved. The handler's.
pub const MIGRATED: &str = "Migrated";
/// An instance could not be brought to its spec. The handler's.
pub const SYNC_FAILED: &str = "SyncFailed";
/// The guest was started. The handler's.
pub const STARTED: &str = "Started";
/// The guest is asked to shut down. The handler's.
pub const SHUTTING_DOWN: &str = "ShuttingDown";
/// The guest ended. The handler's.
pub const STOPPED: &str = "Stopped";
/// A pod got an interface. The plugin's; the spelling is Multus'.
pub const ADDED_INTERFACE: &str = "AddedInterface";
/// Claim: its addresses are nobody's any more. Written by the controller.
pub const ADDRESSES_RELEASED: &str = "AddressesReleased";
