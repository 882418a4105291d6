//! A cluster on one machine: real nodes, pods and networks, made of namespaces, with nothing installed and nothing left behind.
//!
//! A lab is a tree of processes and one directory.
//!
//! ```text
//!  keeper                          in the machine's own namespaces; holds the lab's lock
//!   └─ lab init                    a machine: the fabric, with one bridge for each network
//!       ├─ control plane           one a cluster: API server and controllers
//!       └─ node init               a machine, one a node: its root is an overlay, its NICs are on the fabric's bridges
//!           ├─ agent               pods, by crate `kubelet`; routes between nodes' pods
//!           ├─ DHCP daemon         of the CNI plugins
//!           └─ shims ─ containers  by the OCI runtime, each in its pod's namespaces
//! ```
//!
//! Only this crate knows that the lab exists: everything above it talks to a Kubernetes API.

mod access;
mod agent;
mod cluster_networks;
mod control_plane;
mod error;
mod fabric;
mod init;
mod join;
mod lifecycle;
mod machine;
mod place;
mod pod_network;
mod processes;
mod root;
mod services;
mod state;
mod supervisor;
pub mod topology;
mod view;

pub use agent::run as run_agent;
pub use control_plane::run as run_control_plane;
pub use error::Error;
pub use init::{keep, lab_init, node_init};
pub use join::{gate, relay};
pub use kubelet::shim::run as run_shim;
pub use lifecycle::{Keeper, Progress, client, down, prepare, ready, start};
pub use place::{Place, enter, find as find_place, images, register_image};
pub use processes::{Process, list as processes};
pub use state::Lab;
pub use topology::Topology;
pub use view::{ClusterView, NodeView, PodView, View, look};
