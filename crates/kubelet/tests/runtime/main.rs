//! Containers by the real OCI runtime, seen by those who use them and by the kernel.
//!
//! Every test runs in a process of its own with its own process, mount and network namespaces: what it leaves there, also
//! when it is killed, the kernel ends. Files are on a memory file system of that namespace. Only cgroups are the machine's; the
//! process outside removes them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod adoption;
mod crash;
mod exec;
mod fixture;
mod isolation;
mod life;
mod volumes;

use std::path::Path;
use std::process::{ExitCode, Termination as _};

#[test]
#[ignore = "not a test: the shim of the containers in the tests"]
fn become_the_shim() {
    let directory = std::env::args_os().next_back().filter(|last| Path::new(last).is_dir());
    let code = kubelet::shim::run(directory);
    assert!(code.report() == ExitCode::SUCCESS.report(), "the shim failed");
}

#[test]
#[ignore = "not a test: an agent that is killed by a test"]
fn become_the_agent() {
    crash::agent();
}
