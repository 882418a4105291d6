//! Tests that cannot run on this machine, or on this server: counted and named, never passed quietly.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Notes that the calling test does not run here, and why. The test returns after that.
///
/// `make test` lists what was noted (`GODWIT_NOT_RUN` is its file). With `GODWIT_REQUIRE_ALL=1` the test fails.
pub fn not_run(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(std::env::var("GODWIT_REQUIRE_ALL").as_deref() != Ok("1"), "{test} cannot run here: {reason}");
    println!("NOT RUN: {test}: {reason}");
    let Some(path) = std::env::var_os("GODWIT_NOT_RUN") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{test}\t{reason}\n");
    // One write, so that lines of tests that run beside each other stay whole.
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of what was not run");
}
