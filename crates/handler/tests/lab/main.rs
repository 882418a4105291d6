//! Machines in a lab: controller, handler and launcher as they are deployed, guests that boot, and what is left of them.
//!
//! Needs root and `tools/setup vm`; without them it fails, and says so. A lab with machines costs time, so a file is one lab, and a test goes
//! through one life after the other in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod alone;
mod claims;
mod deaths;
mod drain;
mod faults;
mod footprint;
mod guest;
mod installation;
mod intruders;
mod lacks;
mod moves;
mod readme;
mod road;
mod setting;
mod turn;
mod watch;

use std::time::Duration;

/// What a person who types `kubectl apply` waits, at most, for an emulated guest to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Within this nothing may be left of a machine.
const TIDY: Duration = Duration::from_secs(90);

/// Of what is drawn. The same every time, so that a run shows what the one before it showed; another is for those who search.
fn seed() -> u64 {
    asked("GODWIT_SEED").unwrap_or(1)
}

/// A number that somebody asked for in the environment: a seed, or how much is tried.
fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}
