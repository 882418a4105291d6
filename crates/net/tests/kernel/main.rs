//! What this crate does to the kernel, seen by another tool, and what that tool does, seen by this crate.
//!
//! Every test works in namespaces of its own, in a directory of its own, with the same names as every other test: if two of
//! them disturbed each other, running them side by side would show it. Nothing is done in the machine's own namespace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod addresses;
mod announcements;
mod discoveries;
mod fixture;
mod links;
mod making_links;
mod namespaces;
mod rates;
mod routes;
mod settings;
