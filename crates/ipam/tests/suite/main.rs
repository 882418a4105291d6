//! The plugin as a runtime runs it: the program itself, against a running API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod churn;
mod claims;
mod crashes;
mod crowd;
mod keeper;
mod lab;
mod pods;
mod pool;
mod rights;
mod world;
