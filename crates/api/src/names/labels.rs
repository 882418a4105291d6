//! Labels.

/// What a pod is: see the values below. Written by the controller; read by everyone who lists pods.
pub const APP: &str = "kubevirt.io";
/// Value of [`APP`] on launcher pods.
pub const APP_LAUNCHER: &str = "virt-launcher";
/// Value of [`APP`] on handler pods.
pub const APP_HANDLER: &str = "virt-handler";
/// Value of [`APP`] on controller pods.
pub const APP_CONTROLLER: &str = "virt-controller";
/// Value of [`APP`] on gateway pods.
pub const APP_SYNCHRONIZATION_CONTROLLER: &str = "virt-synchronization-controller";

/// UID of the instance that a launcher pod runs. Written by the controller; read by the controller and the handler.
pub const CREATED_BY: &str = "kubevirt.io/created-by";
/// Name of the VM, cut to 63 characters: an index, not an identity. Written by the controller; read by network providers.
pub const VM_NAME: &str = "vm.kubevirt.io/name";
/// Node of an instance. Written by the controller; read by the handler, to watch its own.
pub const NODE_NAME: &str = "kubevirt.io/nodeName";
/// Node that an instance moves to; removed at the end. Written by the controller; read by the handler there.
pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
/// UID of the migration that a pod was made for. Written by the controller; read by the handler and network providers.
pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
/// Name of the migration that an object belongs to. Written and read by the controller.
pub const MIGRATION_NAME: &str = "kubevirt.io/migrationName";
/// Instance of a migration. Written and read by the controller.
pub const VMI_NAME: &str = "kubevirt.io/vmi-name";
/// The launcher of an instance is of an older version. Written and read by the controller.
pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
/// The node can run VMs. Written by the handler; read by the scheduler through launcher pods.
pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// Prefix: vendor of the node's processor. Written by the handler; read by the scheduler through launcher pods.
pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
/// Prefix: processor model that the node can show a guest. Written by the handler; read as above.
pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
/// Prefix: processor model of the node itself. Written by the handler; read as above.
pub const HOST_MODEL_CPU_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
/// Prefix: processor model of another node that this one can show a guest. Written by the handler; read as above.
pub const CPU_MODEL_MIGRATION_PREFIX: &str = "cpu-model-migration.node.kubevirt.io/";
/// Prefix: processor feature of the node. Written by the handler; read as above.
pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
/// Prefix: feature that a guest with the node's own processor model needs. Written by the handler; read by the controller.
pub const HOST_MODEL_REQUIRED_FEATURES_PREFIX: &str = "host-model-required-features.node.kubevirt.io/";

/// UID of the pod or the claim that has an address, on its object. Written by the plugin; read by the plugin.
pub const ADDRESS_OWNER: &str = "godwit.dev/owner-uid";
/// Which network an address is of, on its object: [`crate::godwit::network_key`], as names of networks may be too long for a
/// label. Written by the plugin; read by the plugin.
pub const ADDRESS_NETWORK: &str = "godwit.dev/network";

/// VM that a claim belongs to. Written by the controller; read by users.
pub const CLAIM_VM: &str = "kubevirt.io/vm";
/// The definition was made from a user-defined network. Written and read by the controller.
pub const USER_DEFINED_NETWORK: &str = "k8s.ovn.org/user-defined-network";
/// The namespace has a primary user-defined network. Written by users; read by the controller.
pub const PRIMARY_USER_DEFINED_NETWORK: &str = "k8s.ovn.org/primary-user-defined-network";

/// Cluster network of a `VlanStatus`, `VlanConfig` or definition. Written by Harvester, or by the lab in its place; read by the
/// controller.
pub const CLUSTER_NETWORK: &str = "network.harvesterhci.io/clusternetwork";
/// Kind of network of a definition. Written by the controller; read by Harvester.
pub const NETWORK_TYPE: &str = "network.harvesterhci.io/type";
/// Value of [`NETWORK_TYPE`] for a VLAN.
pub const NETWORK_TYPE_VLAN: &str = "L2VlanNetwork";
/// VLAN of a definition. Written by the controller; read by Harvester, which lets it through the uplinks.
pub const VLAN_ID: &str = "network.harvesterhci.io/vlan-id";
/// The node votes and runs no VMs: `"true"`. Written by Harvester; read by the controller.
pub const WITNESS_NODE: &str = "node-role.harvesterhci.io/witness";
