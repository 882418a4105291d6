//! The real launcher in the real image, with a guest that runs: libvirt, QEMU, dnsmasq, the kernel. Only the handler is the test's.
//!
//! Everything happens in namespaces of the test's own and ends with it, however it ends. Needs root and `tools/setup vm`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

mod handler;
mod life;
mod masquerade;
mod moves;
mod sandbox;
