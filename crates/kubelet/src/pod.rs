//! Pods on this node. Each has a worker, which owns what is known of it here.
//!
//! ```text
//!  watch ──► workers ──► worker ──► plan, seen ──► decide ──► actions ──► runtime, network, volumes
//!                          ▲                                                    │
//!                          └──────────────────── news ◄────────────────────────┘
//! ```
//!
//! What is decided is decided by pure functions ([`decide`], [`status`], [`adopt`]); the worker only sees and acts.

mod adopt;
mod decide;
mod launch;
mod plan;
mod seen;
mod status;
mod worker;
mod workers;

pub use plan::has_container;
pub(crate) use workers::Workers;
