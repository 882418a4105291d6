//! Addresses for pods and claims, given by a CNI plugin, held by the API server.
//!
//! One address is one `AddressAllocation`, named after it. To have it is to have written that object: created, or taken over
//! from rest on the condition that nobody was faster. The API server is the only lock; there is no lease, and a pool is not
//! read through unless it seems to be full.
//!
//! ```text
//!  runtime ─► [`run`] ─► request (environment, configuration) ─► add │ del │ check │ gc │ status
//!                                                                 │
//!            journal (this node's disk) ◄── what may be ours ─────┤
//!            API server  ◄── conditional writes of one object ────┘◄── [`sweep`] (the controller's)
//!            (through the node's keeper, where [`Installation`] runs)
//! ```
//!
//! What holds at any moment, also after `kill -9`:
//! - an address that may be ours is in the journal before it is asked for, so that the same ADD finds it and DEL frees it;
//! - an owner gets the same addresses however often it asks; nobody else gets them until they were released and have rested;
//! - DEL succeeds, and what could not be freed is freed by a later call or by the sweep.

mod allocate;
mod allocations;
mod claims;
mod config;
mod environment;
mod error;
mod install;
mod journal;
pub mod keeper;
mod log;
mod owner;
mod plugin;
mod release;
mod standby;
pub mod sweep;
mod wire;

pub use config::{Config, ConfigError, Giving};
pub use environment::{Call, EnvironmentError};
pub use error::{Error, codes};
pub use install::{InstallError, Installation};
pub use owner::Owner;
pub use plugin::{Answer, run};
