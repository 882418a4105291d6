//! What the handler of a node and the launcher of a VM say to each other.
//!
//! Two conversations, each on a unix socket in a directory that only the two share:
//!
//! ```text
//!  launcher.sock (the launcher listens)                 cni.sock (the handler listens)
//!  handler ── hello, start, migrate, … ──► launcher     launcher ── add, check, del, list ──► handler
//!          ◄── hello, status, refused ──                          ◄── one answer each ──
//! ```
//!
//! A third is between the launchers of a move, by way of their handlers: the source says when its guest is gone, see [`Departure`].
//!
//! A message is one line of JSON of at most [`LINE_LIMIT`] bytes. Both sides say their version first on `launcher.sock`;
//! fields that a side does not know it skips there, because a launcher outlives the handler that started it. On
//! `cni.sock` nothing unknown is accepted: a launcher names its vNICs and can express nothing else, no path, no plugin, no
//! namespace.
//!
//! Types and text only: no I/O, no clock. Whatever bytes come in, decoding answers with a value or an error.

mod codec;
mod command;
mod event;
mod migration;
mod proxy;
mod text;
mod vnic;

pub use codec::{DecodeError, EncodeError, LINE_LIMIT, Lines, Message, decode, encode};
pub use command::{AcceleratorPolicy, Command};
pub use event::{Accelerator, Ending, Event, InterfaceStatus, Outcome, Phase, Status};
pub use migration::{Departure, MigrateOptions, MigrationPhase, MigrationReport};
pub use proxy::{ProxyRequest, ProxyResponse};
pub use vnic::{Dns, InterfaceName, NameError, Vnic, VnicAddress, VnicName, VnicRoute};

/// The version of the conversation on `launcher.sock`. It grows when a side must not go on with an older peer.
pub const VERSION: u32 = 1;
/// The launcher's socket in the shared directory.
pub const LAUNCHER_SOCKET: &str = "launcher.sock";
/// The handler's socket in the shared directory.
pub const CNI_SOCKET: &str = "cni.sock";
/// The socket of the launcher's hypervisor in the shared directory: a move's calls arrive there.
pub const HYPERVISOR_SOCKET: &str = "libvirt/libvirt-sock";
/// Where the sockets of migrations are in the shared directory; the launcher makes it.
pub const MIGRATION_SOCKETS: &str = "migrationproxy";
/// Among those, at the target of a move: where its launcher hears that the guest has left the source.
pub const DEPARTURE_SOCKET: &str = "departure.sock";
