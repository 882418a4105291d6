//! The runtime side of the CNI protocol, versions 0.3.0 to 1.1.0.
//!
//! It owns what a runtime must know of a network ([`Network`]), how its plugins are run ([`Exec`], [`Processes`]), what
//! they answer ([`Attachment`]), and what is attached now ([`Journal`]). [`Runtime`] puts them together. It never touches
//! the kernel's networking itself: plugins do.
//!
//! Three things hold at any moment, also after `kill -9`:
//! - whatever a plugin may have made is in the journal, on disk, before the plugin runs;
//! - a result is on disk before anybody hears of it;
//! - an entry leaves the journal only when its plugins have undone their work.

mod call;
mod capability;
mod config;
mod error;
mod exec;
mod journal;
mod keyed;
mod name;
mod request;
mod result;
mod runtime;
mod version;

pub use call::{CallError, CallFailure, Operation, Refusal};
pub use capability::Capabilities;
pub use config::{
    ConfigError, Load, LoadError, Network, Plugin, default_network, named_network, network_of_definition,
    parse,
};
pub use error::Error;
pub use exec::{Exec, ExecError, Invocation, Output, Processes, SearchPath, SearchPathError};
pub use journal::{Entry, Journal, JournalError, Key, NamespaceId, Opened, SetAside, Stage};
pub use name::{NameError, PluginName};
pub use request::{AttachmentRequest, RequestError};
pub use result::{Attachment, Interface, InterfaceAddress, Prefix, PrefixError, ResultError, Route};
pub use runtime::{AttachmentId, Collected, GcMark, Runtime};
pub use version::{UnknownVersion, Version};
