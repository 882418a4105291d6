//! Types of conditions.

/// On `KubeVirt`: every object of the installation exists. Written by the controller; read by users.
pub const CREATED: &str = "Created";
/// On `KubeVirt`: the system works; with the reason `AllComponentsReady`, at the configuration asked for. Written by the
/// controller; read by users and by the admission of migrations.
pub const AVAILABLE: &str = "Available";
/// On `KubeVirt`: the installation is being changed. Written by the controller; read by users.
pub const PROGRESSING: &str = "Progressing";
/// On `KubeVirt`: the installation is less than it should be. Written by the controller; read by users.
pub const DEGRADED: &str = "Degraded";
/// On `KubeVirt` and instances: false if the last attempt to reach the spec failed. Written by the controller and the
/// handler; read by users.
pub const SYNCHRONIZED: &str = "Synchronized";
/// On `KubeVirt`: every handler has the migration network and reaches its peers on it. Written by the controller; read by
/// the admission of migrations and by users. Godwit's own.
pub const MIGRATION_NETWORK_READY: &str = "MigrationNetworkReady";

/// On VMs, instances and Godwit's own objects: ready for use; of an instance: its guest runs in a ready pod. Written by
/// the controller; read by users.
pub const READY: &str = "Ready";
/// On instances: false while no node takes the pod. Written by the controller, as the pod has it; read by users.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// On instances: the guest is paused. Written by the handler; read by users.
pub const PAUSED: &str = "Paused";
/// On instances: the guest can move. A fact of the spec, known before the guest runs. Written by the controller; read by
/// the controller and by admission.
pub const LIVE_MIGRATABLE: &str = "LiveMigratable";
/// On instances: the guest can move with its disks. Written by the handler; read by the controller.
pub const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
/// On instances: the processor executes the guest's instructions; if not, QEMU does, and the message says why. Written by the
/// handler; read by users. Godwit's own.
pub const ACCELERATED: &str = "Accelerated";
/// On instances: the guest's agent answers. Written by the handler; read by users.
pub const AGENT_CONNECTED: &str = "AgentConnected";
/// On instances: an eviction was asked for. Written by the controller; read by users.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";
/// On instances: a change waits for the next move. Written and read by the controller.
pub const MIGRATION_REQUIRED: &str = "MigrationRequired";
/// On instances: why a move between clusters failed. Written by the gateway; read by users.
pub const DECENTRALIZED_LIVE_MIGRATION_FAILURE: &str = "DecentralizedLiveMigrationFailure";
/// On VMs: the last attempt to reach the spec failed. Written by the controller; read by users.
pub const FAILURE: &str = "Failure";
/// On VMs: a change waits for the next start. Written by the controller; read by users.
pub const RESTART_REQUIRED: &str = "RestartRequired";

/// On migrations: somebody asked for it to be given up. Written and read by the controller.
pub const MIGRATION_ABORT_REQUESTED: &str = "migrationAbortRequested";
/// On migrations: a quota refused the target pod. Written by the controller; read by users.
pub const MIGRATION_REJECTED_BY_RESOURCE_QUOTA: &str = "migrationRejectedByResourceQuota";
/// On migrations: the other side does not let it begin. Written by the gateway; read by users.
pub const DECENTRALIZED_MIGRATION_BLOCKED: &str = "decentralizedMigrationBlocked";
/// On migrations: it waits for its turn, and the reason says for what. Written by the controller; read by users. Godwit's
/// own.
pub const MIGRATION_QUEUED: &str = "migrationQueued";

/// On claims: addresses were given. Written by the plugin; read by the controller and users.
pub const IPS_ALLOCATED: &str = "IPsAllocated";
/// On user-defined networks: the definition exists. Written by the controller; read by users.
pub const NETWORK_CREATED: &str = "NetworkCreated";
/// On settings: it was put into effect. Written by the controller; read by users. Lower case is Harvester's.
pub const CONFIGURED: &str = "configured";
/// On cluster networks and their state on a node. Written by Harvester, or by the lab in its place; read by the controller.
pub const HARVESTER_READY: &str = "ready";
