//! What the tests of Godwit share. A dev crate: nothing that ships may depend on it.
//!
//! - [`Server`]: a running API server, ours or the real one, that cannot outlive the test.
//! - [`Http`]: raw requests, for what a typed client would hide; [`Watch`]: the events of one watch as they came.
//! - [`Flaky`]: a TCP proxy that cuts its connections when told.
//! - [`TestLab`]: a lab of real nodes that cannot outlive the test; [`Traces`]: what a lab could leave behind.
//! - [`not_run`]: a test that cannot run here, named with its reason.
//! - [`Objects`]: what an API server has, read without a process for each look.
//! - [`Used`], [`Granted`]: the rights that a part uses, and those that its manifest grants.
//! - [`Webhook`]: an admission webhook on loopback.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a broken set-up must fail the test that asked for it, at the place where it broke"
)]

mod flaky;
mod http;
mod lab;
mod leash;
mod not_run;
mod objects;
mod rights;
mod server;
mod webhook;

pub use self::flaky::Flaky;
pub use self::http::{Http, Reply, Watch};
pub use self::lab::{TestLab, Traces, kubectl};
pub use self::leash::{Leash, Signal};
pub use self::not_run::not_run;
pub use self::objects::Objects;
pub use self::rights::{Granted, Right, Used};
pub use self::server::{Engine, Identity, Options, Server, eventually, program};
pub use self::webhook::Webhook;
