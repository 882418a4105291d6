//! Ports.

/// The gateway, for other clusters; the default of `synchronizationPort`. Listened on by the gateway; dialled by gateways of
/// other clusters.
pub const SYNCHRONIZATION: u16 = 9185;
/// The migration tunnel, on the migration address. Listened on by the handler; dialled by handlers and gateways.
pub const MIGRATION_TUNNEL: u16 = 9186;
/// Metrics and health of every component. Listened on by each; read by Prometheus and the kubelet.
pub const METRICS: u16 = 8443;
/// The admission webhooks. Listened on by the controller; dialled by the API server.
pub const WEBHOOKS: u16 = 8444;
