//! `harvesterhci.io` and `network.harvesterhci.io`, both `v1beta1`: the setting of the migration network, and the
//! cluster networks that it can be built on.
//!
//! It owns the shapes; the rules about ranges and exclusions are arithmetic and belong to the crate that does it.

mod network;
mod setting;

pub use network::*;
pub use setting::*;
