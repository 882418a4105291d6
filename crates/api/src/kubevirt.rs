//! `kubevirt.io/v1`: the installation, virtual machines, their running instances and their moves.
//!
//! Field names, values and meanings are KubeVirt's; a manifest written for KubeVirt means the same here. Fields that
//! Godwit does not act on are left out, and admission refuses them by name instead of dropping them quietly. Fields that
//! KubeVirt does not have are marked "Godwit" in their description.

mod devices;
mod domain;
mod installation;
mod instance;
mod instance_status;
mod machine;
mod migration;
mod migration_config;
mod migration_state;
mod networks;
mod volumes;

pub use devices::*;
pub use domain::*;
pub use installation::*;
pub use instance::*;
pub use instance_status::*;
pub use machine::*;
pub use migration::*;
pub use migration_config::*;
pub use migration_state::*;
pub use networks::*;
pub use volumes::*;
