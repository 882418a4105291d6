//! Annotations and taints.

/// Networks that a pod is attached to. Written by users and the controller; read by the plugin and Multus. Format: see
/// [`crate::multus::parse_networks`].
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Networks that a pod is attached to now. Written by the plugin and Multus; read by the handler and the controller.
/// Format: see [`crate::multus::parse_network_status`].
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// Network that takes the place of the pod network. Written by the controller; read by the plugin and Multus.
pub const DEFAULT_NETWORK: &str = "v1.multus-cni.io/default-network";
/// Device plugin resource of a network, on its definition. Written by users; read by the controller.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Addresses that a VM's owner chose: `{"<vNIC>": ["192.0.2.10", "2001:db8::10"]}`, on the VM's template. Written by users;
/// read by the controller.
pub const ADDRESSES: &str = "network.kubevirt.io/addresses";
/// Addresses that a claim is to have, separated by commas, at most one of each range of its network; on the claim. Written by
/// the controller; read by the plugin. Godwit's own.
pub const CLAIM_ADDRESSES: &str = "godwit.dev/addresses";
/// Key of a claim's name in an element of [`NETWORKS`], and in the `args.cni` of the configuration that plugins are given.
/// Written by the controller and the runtime; read by the plugin.
pub const IPAM_CLAIM_REFERENCE: &str = "ipam-claim-reference";
/// Claim of the primary network of a pod; the older spelling of `ipam-claim-reference`. Written by the controller; read
/// by OVN-Kubernetes.
pub const PRIMARY_UDN_CLAIM: &str = "k8s.ovn.org/primary-udn-ipamclaim";

/// Name of the VM that a launcher pod runs; pods of one VM have the same. Written by the controller; read by the handler and
/// by network providers.
pub const DOMAIN: &str = "kubevirt.io/domain";
/// Migration that a target pod was made for. Written by the controller; read by users and network providers.
pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
/// When the guest ran at the target, on the target pod: the signal to let its traffic in there. Written by the controller;
/// read by network providers.
pub const MIGRATION_TARGET_READY_TIMESTAMP: &str = "kubevirt.io/migration-target-ready-timestamp";
/// The launcher reaches its peer by unix sockets, on the pod. Written by the controller; read by network providers.
pub const MIGRATION_TRANSPORT_UNIX: &str = "kubevirt.io/migrationTransportUnix";
/// Seconds for a target pod without a node, on the VMI. Written by tests; read by the controller.
pub const MIGRATION_UNSCHEDULABLE_POD_TIMEOUT_SECONDS: &str =
    "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
/// Seconds for a target pod that does not start, on the VMI. Written by tests; read by the controller.
pub const MIGRATION_PENDING_POD_TIMEOUT_SECONDS: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
/// Node that is evacuated, on a migration. Written and read by the controller.
pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
/// The migration updates the launcher. Written and read by the controller.
pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
/// Who asked for an eviction. Written by the webhook; read by users.
pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
/// An eviction is under way, on the source pod. Written by the controller; read by the descheduler.
pub const DESCHEDULER_EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
/// The instance is there to receive a guest. Written by the controller; read by the controller and the handler.
pub const CREATE_MIGRATION_TARGET: &str = "kubevirt.io/create-migration-target";
/// Run strategy of a VM after it received its guest. Written by users; read by the controller.
pub const RESTORE_RUN_STRATEGY: &str = "kubevirt.io/restore-run-strategy";
/// A VM bridged to the pod network may move: the network keeps its address. Written by users; read by the controller and by
/// network providers.
pub const ALLOW_POD_BRIDGE_NETWORK_LIVE_MIGRATION: &str =
    "kubevirt.io/allow-pod-bridge-network-live-migration";
/// Hash of the configuration that a component was installed with, on its pods. Written and read by the controller.
pub const INSTALL_STRATEGY_IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";
/// When the handler of a node was last alive, on the node. Written by the handler; read by the controller.
pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// How a node's handler finds the migration network, on the node: [`crate::godwit::RoadReport`]. Written by the handler; read by
/// the controller and by other handlers. Godwit's own.
pub const MIGRATION_NETWORK_REPORT: &str = "godwit.dev/migration-network";
/// Generation of the VM that an instance was made from. Written and read by the controller.
pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";

/// Taint (not an annotation) of a node that is drained of its VMs; the default of `nodeDrainTaintKey`. Written by users;
/// read by the controller.
pub const DRAIN_TAINT: &str = "kubevirt.io/drain";

/// Hash of the migration network's configuration, on the setting and its definition. Written and read by the controller.
pub const MIGRATION_NETWORK_HASH: &str = "vm-migration-network.settings.harvesterhci.io/hash";
/// `namespace/name` of the migration network's definition, on the setting. Written and read by the controller.
pub const MIGRATION_NETWORK_DEFINITION: &str = "vm-migration-network.settings.harvesterhci.io/net-attach-def";
/// The definition is the migration network's and not for VMs: `"true"`. Written by the controller; read by users.
pub const MIGRATION_NETWORK: &str = "vm-migration-network.settings.harvesterhci.io";
/// Nodes that a `VlanConfig` covers, a JSON list. Written by Harvester, or by the lab in its place; read by the controller.
pub const MATCHED_NODES: &str = "network.harvesterhci.io/matched-nodes";
/// MTU of the uplinks of a cluster network. Written by Harvester, or by the lab in its place; read by the controller.
pub const UPLINK_MTU: &str = "network.harvesterhci.io/uplink-mtu";
/// NIC of every node that is on a cluster network without a bridge of Harvester's, on the `ClusterNetwork`: pods get a macvlan of
/// it, and VLANs cannot be chosen. Written by whoever wires the nodes, such as the lab; read by the controller. Godwit's own.
pub const UPLINK: &str = "godwit.dev/uplink";
/// Bridge of every node that holds the NIC of a cluster network, on the `ClusterNetwork`; absent: `<cluster network>-br`. Written
/// and read as above. Godwit's own.
pub const BRIDGE: &str = "godwit.dev/bridge";
