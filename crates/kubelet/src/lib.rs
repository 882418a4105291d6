//! The agent of a lab node: pods as OCI containers, wired by CNI plugins.
//!
//! It runs inside its node: the mount, process and network namespaces that it finds itself in are the host as far as
//! its pods are concerned. It is an ordinary client of the API, and joins any API server.

mod agent;
mod board;
pub mod downward;
pub mod environment;
mod error;
pub mod etc;
mod events;
pub mod images;
mod network;
mod node;
mod pod;
mod probe;
mod provision;
pub mod runtime;
mod server;
pub mod shim;
pub mod volumes;

pub use agent::{Error, Options, run};
pub use network::CniOptions;
pub use node::Capacity;
pub use server::Serving;
