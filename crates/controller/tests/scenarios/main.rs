//! The controller against the in-process API server, with fakes of those who stand around it: scheduler, kubelet and handler. Each
//! test is a sentence about what a person sees.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on stops")]

mod admission;
mod certificates;
mod claims;
mod deletion;
mod deploy;
mod election;
mod evictions;
mod instances;
mod machines;
mod migrations;
mod moves;
mod operator;
mod queue;
mod restarts;
mod setting;
mod support;
