//! The whole system in a cluster: controller, handler and launcher as they are deployed, guests
//! that boot, and what is left of them.
//!
//! `GODWIT_E2E` names the engine that makes the clusters; `lab` is the default, and needs root and
//! `tools/setup vm`. Without them it fails, and says so. A cluster with VMs costs time, so a test
//! makes one and goes through one life after the other in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod claims;
mod console;
mod crowd;
mod deaths;
mod drain;
mod faults;
mod intruders;
mod lacks;
mod life;
mod migration_network;
mod migrations;
mod readme;
mod setting;
mod vnics;

use std::time::Duration;

/// What a person who types `kubectl apply` waits, at most, for an emulated guest to answer while
/// other tests run on the same machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Within this nothing may be left of a machine.
const TIDY: Duration = Duration::from_secs(90);

/// Of what is drawn. The same every time, so that a run shows what the one before it showed;
/// another is for those who search.
fn seed() -> u64 {
    asked("GODWIT_SEED").unwrap_or(1)
}

/// A number that somebody asked for in the environment: a seed, or how much is tried.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}
