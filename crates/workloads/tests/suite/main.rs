//! The controllers on a real API server, with nodes that only pretend: their kubelet moves pods to Running and ends them.
//!
//! Every test has a cluster of its own, in its own process, and nothing of it is left when the test ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helpers"
)]

mod budgets;
mod daemon_sets;
mod deployments;
mod kubectl;
mod nodes;
mod restarts;
mod scheduling;
mod services;
mod support;
