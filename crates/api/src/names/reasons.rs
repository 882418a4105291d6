//! Reasons of conditions. All are read by users; those that a program reads say so.

/// `KubeVirt`: at the configuration asked for. Read by the admission of migrations.
pub const ALL_COMPONENTS_READY: &str = "AllComponentsReady";
/// `KubeVirt`: the first installation is under way.
pub const DEPLOYMENT_IN_PROGRESS: &str = "DeploymentInProgress";
/// `KubeVirt`: a change is under way.
pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
/// `KubeVirt`: every object exists.
pub const ALL_RESOURCES_CREATED: &str = "AllResourcesCreated";
/// `KubeVirt`: it cannot be installed.
pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
/// `KubeVirt`: there is another one already.
pub const EXISTING_DEPLOYMENT: &str = "ExistingDeployment";
/// `KubeVirt`: it is being removed.
pub const DELETION_IN_PROGRESS: &str = "DeletionInProgress";
/// `KubeVirt`: it cannot be removed.
pub const DELETION_FAILED: &str = "DeletionFailed";

/// `MigrationNetworkReady`: every handler reaches every other on it.
pub const PEERS_REACHED: &str = "PeersReached";
/// `MigrationNetworkReady`: handlers are being replaced, and the message says how far that is.
pub const ROLLING_OUT: &str = "RollingOut";
/// `MigrationNetworkReady`: the message names the nodes that lack it, and why.
pub const NODES_NOT_READY: &str = "NodesNotReady";
/// `MigrationNetworkReady`, and `Synchronized` of an instance: a definition does not exist.
pub const DEFINITION_NOT_FOUND: &str = "NetworkAttachmentDefinitionNotFound";

/// Request for a certificate: approved, as it comes from a handler and names its node.
pub const HANDLER_OF_ITS_NODE: &str = "HandlerOfItsNode";
/// Request for a certificate: denied, as it does not.
pub const NOT_A_HANDLER: &str = "NotAHandler";

/// `LiveMigratable`: a disk is not shared. Read by admission: a move between clusters copies disks.
pub const DISKS_NOT_LIVE_MIGRATABLE: &str = "DisksNotLiveMigratable";
/// `LiveMigratable`: a vNIC cannot move.
pub const INTERFACE_NOT_LIVE_MIGRATABLE: &str = "InterfaceNotLiveMigratable";
/// `LiveMigratable`: the processor model ties it to its node. The spelling is KubeVirt's.
pub const CPU_MODE_NOT_LIVE_MIGRATABLE: &str = "CPUModeLiveMigratable";
/// `LiveMigratable`: a device of the host ties it to its node.
pub const HOST_DEVICE_NOT_LIVE_MIGRATABLE: &str = "HostDeviceNotLiveMigratable";
/// `DecentralizedLiveMigrationFailure`: it cannot leave the cluster.
pub const DECENTRALIZED_NOT_LIVE_MIGRATABLE: &str = "DecentralizedNotLiveMigratable";
/// `Ready` of an instance: its pod ends.
pub const POD_TERMINATING: &str = "PodTerminating";
/// `Ready` of an instance: it has no pod.
pub const POD_NOT_EXISTS: &str = "PodNotExists";
/// `Synchronized` of an instance, and its `reason`: its launcher ended without a word on its guest.
pub const LAUNCHER_LOST: &str = "LauncherLost";
/// `Synchronized` of an instance: its launcher does not do what it is told.
pub const LAUNCHER_REFUSED: &str = "LauncherRefused";
/// `Paused` of an instance: somebody asked for it.
pub const PAUSED_BY_USER: &str = "PausedByUser";
/// `Accelerated`: the processor executes the guest's instructions.
pub const RUNS_ON_PROCESSOR: &str = "RunsOnProcessor";
/// `Accelerated`: QEMU executes the guest's instructions.
pub const EMULATED: &str = "Emulated";
/// `Ready` of an instance: its guest does not run.
pub const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
/// `Ready` of a VM: it has no instance.
pub const INSTANCE_NOT_EXISTS: &str = "VMINotExists";
/// `Synchronized` of an instance: its pod ended before the guest ran.
pub const POD_FAILED: &str = "PodFailed";
/// `Synchronized` of an instance, and its `reason`: its node was lost, and its pod with it.
pub const NODE_UNRESPONSIVE: &str = "NodeUnresponsive";
/// `Synchronized` of an instance: its pod is refused.
pub const FAILED_CREATE: &str = "FailedCreate";
/// `Synchronized` of an instance: a claim is missing. Read by the controller: the VM's status says so.
pub const CLAIM_NOT_FOUND: &str = "FailedPvcNotFound";
/// `Synchronized` of an instance: the definition of one of its networks cannot be read.
pub const DEFINITION_INVALID: &str = "NetworkAttachmentDefinitionInvalid";
/// `Synchronized` of an instance: the claim of a vNIC's addresses is somebody else's.
pub const IPAM_CLAIM_NOT_OWNED: &str = "IPAMClaimNotOwned";
/// `Synchronized` of an instance: the claim of a vNIC's addresses is being deleted.
pub const IPAM_CLAIM_DELETING: &str = "IPAMClaimDeleting";
/// `Synchronized` of an instance: the claim of a vNIC's addresses is for another network.
pub const IPAM_CLAIM_OF_ANOTHER_NETWORK: &str = "IPAMClaimOfAnotherNetwork";
/// `Synchronized` of an instance: the addresses that its owner chose cannot be read.
pub const ADDRESSES_INVALID: &str = "AddressesInvalid";
/// `Synchronized` of an instance: an image cannot be pulled. Read by the controller: the VM's status says so.
pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// `Synchronized` of an instance: an image could not be pulled; it is tried again. Read as above.
pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// `PodScheduled` of an instance: no node takes the pod. Kubernetes' own; read as above.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// `RestartRequired` of a VM: its template is not the one that its instance was made from.
pub const TEMPLATE_CHANGED: &str = "TemplateChanged";
/// `Failure` of a VM: an instance of its name is somebody else's.
pub const INSTANCE_NOT_OWNED: &str = "InstanceNotOwned";

/// `migrationQueued`: as many VMs move as may. The limit's name.
pub const CLUSTER_LIMIT: &str = "ParallelMigrationsPerCluster";
/// `migrationQueued`: as many VMs leave the node as may. The limit's name.
pub const OUTBOUND_LIMIT: &str = "ParallelOutboundMigrationsPerNode";
/// `migrationQueued`: as many VMs arrive at the node as may. The limit's name.
pub const INBOUND_LIMIT: &str = "ParallelInboundMigrationsPerNode";
/// `migrationQueued`: the installation is being changed, its migration network maybe.
pub const INSTALLATION_NOT_READY: &str = "InstallationNotReady";
/// `migrationQueued`: the guest does not run yet.
pub const INSTANCE_NOT_RUNNING: &str = "InstanceNotRunning";
/// `migrationQueued`: the last attempts failed, and the next one waits.
pub const BACK_OFF: &str = "MigrationBackoff";
/// `migrationAbortRequested`: somebody deleted the migration.
pub const DELETED: &str = "Deleted";
/// `migrationAbortRequested`: the system gave it up.
pub const GIVEN_UP: &str = "GivenUp";
/// `EvictionRequested`: the node must be left.
pub const EVICTION_REQUESTED: &str = "EvictionRequested";

/// `IPsAllocated`: they were given.
pub const SUCCESSFUL_ALLOCATION: &str = "SuccessfulAllocation";
/// `IPsAllocated`: there is none left.
pub const SUBNET_EXHAUSTED: &str = "SubnetExhausted";
/// `IPsAllocated`: the address that was asked for is taken.
pub const IP_ADDRESS_CONFLICT: &str = "IPAddressConflict";
/// `IPsAllocated`: the Ethernet address that was asked for is taken.
pub const MAC_ADDRESS_CONFLICT: &str = "MACAddressConflict";
/// `IPsAllocated`: something else.
pub const INTERNAL_ERROR: &str = "InternalError";

/// `NetworkCreated`: the definition exists.
pub const DEFINITION_CREATED: &str = "NetworkAttachmentDefinitionCreated";
/// `NetworkCreated`: the definition is being deleted.
pub const DEFINITION_DELETED: &str = "NetworkAttachmentDefinitionDeleted";
/// `NetworkCreated`: the definition cannot be written.
pub const DEFINITION_SYNC_ERROR: &str = "NetworkAttachmentDefinitionSyncError";
/// `NetworkCreated`: something else.
pub const SYNC_ERROR: &str = "SyncError";

/// `configured`: the `KubeVirt` object cannot be read.
pub const GET_KUBEVIRT_ERROR: &str = "GetKubeVirtError";
/// `configured`: the definition cannot be written.
pub const CREATE_DEFINITION_ERROR: &str = "CreateNadError";
/// `configured`: the `KubeVirt` object cannot be written.
pub const UPDATE_KUBEVIRT_ERROR: &str = "UpdateKubeVirtError";
/// `configured`: the old definition cannot be removed.
pub const REMOVE_OLD_DEFINITION_ERROR: &str = "RemoveOldNadError";
/// `configured`: the value says what cannot be, whatever the cluster.
pub const INVALID_VALUE: &str = "InvalidValue";
/// `configured`: the value does not fit the cluster, or it could not be looked at; nothing was changed.
pub const VALIDATING: &str = "Validating";
/// `configured`: the definition and the `KubeVirt` object are being written.
pub const APPLYING: &str = "Applying";
/// `configured`: handlers are there, and have not yet shown that they reach each other.
pub const VERIFYING: &str = "Verifying";
/// `configured`: in effect. The only one with which it is true.
pub const SETTING_READY: &str = "Ready";
