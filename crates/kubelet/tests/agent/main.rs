//! The whole agent against a real API server, with real containers and real CNI plugins.
//!
//! Every test runs in a process of its own with its own process, mount and network namespaces, as the tests of the runtime
//! do: what it leaves there, also when it is killed, the kernel ends. Needs root and `tools/setup`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod cluster;
mod exec;
#[path = "../runtime/fixture.rs"]
#[allow(dead_code, reason = "what isolates tests of the runtime isolates these too; not all of it is used")]
mod fixture;
mod life;
mod logs;
mod networks;
mod node;
mod probes;
mod restart;

use std::path::Path;
use std::process::{ExitCode, Termination as _};

#[test]
#[ignore = "not a test: an agent that is killed by a test"]
fn become_the_agent() {
    cluster::become_the_agent();
}

#[test]
#[ignore = "not a test: the shim of the containers in the tests"]
fn become_the_shim() {
    let directory = std::env::args_os().next_back().filter(|last| Path::new(last).is_dir());
    let code = kubelet::shim::run(directory);
    assert!(code.report() == ExitCode::SUCCESS.report(), "the shim failed");
}
