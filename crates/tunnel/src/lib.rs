//! Guest memory on its way between two nodes.
//!
//! The source has unix sockets, to which QEMU and libvirt connect ([`Dialler::forward`]). For each of their connections one is made to
//! the target's [`Listener`], which connects to a unix socket at its side once [`Authorise`] has allowed it; [`Registrations`] is the
//! usual one to ask.
//!
//! ```text
//!   source node                                                      target node
//!   QEMU ──unix──► Forward ──TLS 1.3, from the migration address──► Listener ──unix──► QEMU
//!                  49152.<UID>.migration, godwit/1                      └─ Authorise: this node, this migration, this channel?
//! ```
//!
//! Threads, not tasks: one accepts for each listener and each forward, and each connection has two that block in the kernel, one for
//! each direction. See `pump` for why, `crew` for where they come from, and `record` for what makes it fast. The caller's runtime is
//! needed only to wait for an end.
//!
//! Nothing here knows what a migration is, where its other end lies or when it is over: callers register, forward, and drop the
//! guards.

mod agreement;
mod authorise;
mod cipher;
mod counters;
mod credentials;
mod crew;
mod dialler;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod hello;
mod line;
mod listener;
mod preamble;
mod pump;
mod record;
mod registrations;
pub mod relay;
mod route;
mod socket;
mod timeouts;
mod token;

/// The port that listeners use on the migration network.
pub const PORT: u16 = 9186;

pub use authorise::{Authorise, Destination, Proof, Refusal};
pub use counters::{Counters, Ledger, Probes, Refusals, Traffic};
pub use credentials::Credentials;
pub use dialler::{Dialler, Forward, Target};
pub use error::{Broken, DialError, Error, HandshakeError};
pub use hello::{Hello, HelloError};
pub use listener::Listener;
pub use preamble::{Preamble, PreambleError};
pub use pump::plain::Mover;
pub use record::RecordError;
pub use registrations::{AlreadyRegistered, Registration, Registrations, Source};
pub use route::{Channel, Migration, Route, RouteError};
pub use timeouts::Timeouts;
pub use token::{Token, TokenError};
