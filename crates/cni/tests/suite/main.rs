//! The runtime against Debian's plugins in network namespaces, against scripts that misbehave, and against a fake where the
//! order of things is what counts. Needs root and `tools/setup`; without them it fails, and says so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod config;
mod fake;
mod garbage;
mod journal;
mod orderings;
mod plugins;
mod results;
mod sandbox;
mod scripts;
