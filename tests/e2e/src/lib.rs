//! What the tests of the whole system share: a cluster with Godwit in it, and what can be seen of
//! it.
//!
//! - [`Engine`]: how a cluster is made and reached. `GODWIT_E2E` names the engine; no test knows
//!   which one it has.
//! - [`Installation`]: a cluster with Godwit installed, kubectl on it, manifests of VMs, what
//!   belongs to pods on its nodes.
//! - [`Counter`], [`traveller`]: what guests answer, and the guest that migrates in many tests.
//! - [`migrating`], [`migration_network`], [`handlers`]: migrations of that guest, the network that
//!   they take, and those who carry them.
//! - [`objects`]: what the API server has, read at every look.
//! - [`Watch`]: that a guest runs at one place.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken set-up must fail the test that asked for it, at the place where it broke"
)]

mod engine;
mod footprint;
mod guest;
pub mod handlers;
mod installation;
pub mod migrating;
pub mod migration_network;
pub mod objects;
pub mod traveller;
mod turn;
mod watch;

pub use self::engine::lab::Lab;
pub use self::engine::{Engine, Place, Pod, Process, Processes, Signal};
pub use self::guest::Counter;
pub use self::installation::{
    Installation, NODES, bound, bridged_example, instance, network_to_move_on, other_node, programs, project,
    simple_instance,
};
pub use self::objects::Kind;
pub use self::watch::{Guest, Watch};
