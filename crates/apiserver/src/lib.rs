//! An embedded Kubernetes API server: what kube-rs and kubectl need, on one machine with nothing installed.
#![allow(dead_code, reason = "being assembled")]

pub mod admission;
pub mod apply;
pub mod body;
pub mod crd;
pub mod discovery;
pub mod kinds;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;
