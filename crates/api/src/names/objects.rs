//! Objects that the system makes or looks for by name, and generated names' beginnings.

/// Namespace of an installation that nobody put elsewhere. Made by users.
pub const DEFAULT_NAMESPACE: &str = "kubevirt";
/// The `KubeVirt` object. Made by users; read by every part.
pub const INSTALLATION: &str = "kubevirt";
/// Deployment, and lease, of the controller. Made by users and the controller.
pub const CONTROLLER: &str = "virt-controller";
/// DaemonSet of the handler. Made by the controller.
pub const HANDLER: &str = "virt-handler";
/// Deployment of the gateway. Made by the controller.
pub const SYNCHRONIZATION_CONTROLLER: &str = "virt-synchronization-controller";
/// Beginning of the name of a launcher pod. Written by the controller; read by the eviction webhook.
pub const LAUNCHER_PREFIX: &str = "virt-launcher-";

/// Config map with the certificates of the authority that components trust, key [`CA_BUNDLE_KEY`]. Written by the controller;
/// read by every part.
pub const CA: &str = "kubevirt-ca";
/// Config map with authorities of other clusters to trust, key [`CA_BUNDLE_KEY`]. Written by users; read by the controller.
pub const EXTERNAL_CA: &str = "kubevirt-external-ca";
/// Key of the certificates in [`CA`] and [`EXTERNAL_CA`].
pub const CA_BUNDLE_KEY: &str = "ca-bundle";
/// Secret with the authority's own key. Written and read by the controller.
pub const CA_SECRET: &str = "kubevirt-ca";
/// Signer of the handlers' certificates, named in their signing requests. Asked by the handler; answered by the controller.
pub const HANDLER_SIGNER: &str = "godwit.dev/handler";
/// Secret: the handler as a server. Written by the controller; read by the handler.
pub const HANDLER_SERVER_CERTS: &str = "kubevirt-virt-handler-server-certs";
/// Secret: the handler as a client in migrations. Written by the controller; read by the handler.
pub const HANDLER_MIGRATION_CLIENT_CERTS: &str = "kubevirt-virt-handler-migration-client-certs";
/// Secret: the gateway as a client. Written by the controller; read by the gateway.
pub const SYNCHRONIZATION_CONTROLLER_CERTS: &str = "kubevirt-synchronization-controller-certs";
/// Secret: the gateway as a server. Written by the controller; read by the gateway.
pub const SYNCHRONIZATION_CONTROLLER_SERVER_CERTS: &str = "kubevirt-synchronization-controller-server-certs";

/// Name of the network of addresses whose configuration names none: such ranges share their addresses, as they do with
/// whereabouts. Written by the plugin; read by the controller.
pub const SHARED_NETWORK: &str = "shared";

/// Setting: the migration network. Created without a value by the controller, or by Harvester; set by users; read by the controller.
pub const MIGRATION_NETWORK_SETTING: &str = "vm-migration-network";
/// Setting: the storage network, whose addresses the migration network must leave alone. Harvester's; read by the controller.
pub const STORAGE_NETWORK_SETTING: &str = "storage-network";
/// Setting: the network of shared volumes, likewise. Harvester's; read by the controller.
pub const RWX_NETWORK_SETTING: &str = "rwx-network";
/// Field manager of what the setting of the migration network leads to. Written by the controller; read by the API server.
pub const MIGRATION_NETWORK_MANAGER: &str = "virt-controller-migration-network";
/// Beginning of the name of the migration network's definition. Written by the controller.
pub const MIGRATION_NETWORK_DEFINITION_PREFIX: &str = "vm-migration-network-";
/// Cluster network of the nodes' own addresses. Harvester's; read by the controller.
pub const MANAGEMENT_CLUSTER_NETWORK: &str = "mgmt";
/// Beginning of the name of a migration that a drain made. Written by the controller.
pub const EVACUATION_PREFIX: &str = "kubevirt-evacuation-";
/// Beginning of the name of a migration that an update made. Written by the controller.
pub const WORKLOAD_UPDATE_PREFIX: &str = "kubevirt-workload-update-";
/// What the namespace of the tokens of moves is named, after the installation's own. In it there is nothing else, so the handlers'
/// right to read secrets ends there. Made by users.
pub const MIGRATION_TOKENS_SUFFIX: &str = "-migrations";
/// Beginning of the name of the secret of a move without TLS; its UID follows. Written by the controller; read by the handlers.
pub const MIGRATION_TOKEN_PREFIX: &str = "migration-";
/// Key of the token in that secret: hexadecimal digits.
pub const MIGRATION_TOKEN_KEY: &str = "token";
/// Container of a launcher pod that runs the guest. Written by the controller; read by the controller and the handler.
pub const LAUNCHER_CONTAINER: &str = "compute";
/// Configuration of the webhooks that refuse. Made by the controller.
pub const VALIDATING_WEBHOOKS: &str = "virt-api-validator";
/// Configuration of the webhooks that fill in. Made by the controller.
pub const MUTATING_WEBHOOKS: &str = "virt-api-mutator";
/// Webhook that refuses machines. Made by the controller; read by users.
pub const MACHINE_VALIDATOR: &str = "virtualmachine-validator.kubevirt.io";
/// Webhook that refuses instances and changes of them. Made by the controller; read by users.
pub const INSTANCE_VALIDATOR: &str = "virtualmachineinstances-validator.kubevirt.io";
/// Webhook that refuses settings of the installation. Made by the controller; read by users.
pub const INSTALLATION_VALIDATOR: &str = "kubevirt-validator.kubevirt.io";
/// Webhook that fills in what an instance leaves open. Made by the controller; read by users.
pub const INSTANCE_MUTATOR: &str = "virtualmachineinstances-mutator.kubevirt.io";
/// Webhook that refuses migrations that cannot work. Made by the controller; read by users.
pub const MIGRATION_VALIDATOR: &str = "migration-create-validator.kubevirt.io";
/// Webhook that fills in what a migration leaves open. Made by the controller; read by users.
pub const MIGRATION_MUTATOR: &str = "migrations-mutator.kubevirt.io";
/// Webhook that refuses policies that mean nothing. Made by the controller; read by users.
pub const POLICY_VALIDATOR: &str = "migration-policy-validator.kubevirt.io";
/// Webhook that turns evictions into moves. Made by the controller; read by users.
pub const EVICTION_WEBHOOK: &str = "virt-launcher-eviction-interceptor.kubevirt.io";
/// Webhook that refuses values of the setting of the migration network. Made by the controller; read by users.
pub const SETTING_VALIDATOR: &str = "settings-validator.kubevirt.io";

/// The namespace of the tokens of moves of an installation.
pub fn migration_tokens(installation: &str) -> String {
    format!("{installation}{MIGRATION_TOKENS_SUFFIX}")
}
