//! The tunnel between two nodes, which are network namespaces with a management network and a migration network between them.
//!
//! Every test has its own two nodes, with the same names and addresses as every other test has.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod fixture;
mod interoperation;
mod lifetimes;
mod probes;
mod refusals;
mod relaying;
mod roads;
mod rotation;
mod tokens;
mod transfers;
