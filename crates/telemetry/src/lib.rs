//! What a part of Godwit says of itself to those who watch over it: its numbers, whether it is ready, whether it lives.
//!
//! ```text
//!  state of the part ──► a closure writes a Sheet, when asked ──► Numbers ──┐
//!  readiness ───────────────────────────────────────────────────────────────┴─► Pages ──HTTP, one address──► Prometheus, the kubelet
//! ```
//!
//! Numbers are read from the state that they are about at the moment somebody asks, so that nothing is counted twice and what is gone
//! is not shown. Labels must come from a set that ends: what a caller from outside chooses is no label. Nothing here knows what the
//! numbers mean.

mod numbers;
mod pages;

pub use numbers::{Durations, Labels, Numbers, Sheet};
pub use pages::{ALIVE, METRICS, Pages, READY, serve};
