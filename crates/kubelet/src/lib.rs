//! The agent of a lab node: pods as OCI containers, wired by CNI plugins.
//!
//! It runs inside its node: the mount, process and network namespaces that it finds itself in are the host as far as
//! its pods are concerned. It is an ordinary client of the API, and joins any API server.

pub mod downward;
pub mod environment;
pub mod etc;
pub mod images;
pub mod runtime;
pub mod shim;
pub mod volumes;
