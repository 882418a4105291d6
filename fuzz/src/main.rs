//! libFuzzer on the target that `FUZZ_TARGET` names: see `tools/fuzz`.
#![no_main]
#![allow(clippy::panic, reason = "without a target there is nothing to do")]

use std::sync::LazyLock;

use fuzz::targets::{Target, find};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} names no target"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
