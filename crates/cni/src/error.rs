//! What can go wrong between a request and an attachment.
//!
//! Each error names the attachment and says what is left behind, if anything is.

use std::path::PathBuf;

use crate::{CallError, JournalError, Key, RequestError};

/// Why an operation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be asked of any plugin.
    #[error("the attachment cannot be asked for")]
    Request {
        /// The rule.
        #[from]
        source: RequestError,
    },
    /// There is no namespace to attach.
    #[error("attaching {key}: there is no network namespace at {}", namespace.display())]
    Namespace {
        /// The attachment.
        key: Box<Key>,
        /// Where it should be.
        namespace: PathBuf,
    },
    /// The interface is another network's: neither attached nor detached for this one.
    #[error("{wanted}: the interface is attached to network {network:?}")]
    Taken {
        /// What is asked about.
        wanted: Box<Key>,
        /// Whose it is.
        network: String,
    },
    /// The container's interface is in another namespace, which is still there.
    #[error("attaching {key}: it is already attached in the network namespace {}", namespace.display())]
    Elsewhere {
        /// The attachment.
        key: Box<Key>,
        /// Where it is.
        namespace: PathBuf,
    },
    /// The journal has no such attachment.
    #[error("{key} is not attached")]
    NotAttached {
        /// The attachment.
        key: Box<Key>,
    },
    /// Attached once, and no longer whole. The journal still has it: DEL it, or live with it.
    #[error("{key} is attached, and no longer as it was")]
    Broken {
        /// The attachment.
        key: Box<Key>,
        /// What the plugin found.
        #[source]
        source: CallError,
    },
    /// Its namespace is gone, or is another's by now.
    #[error("{key} is attached in a network namespace that is gone")]
    Gone {
        /// The attachment.
        key: Box<Key>,
    },
    /// Not attached.
    #[error("attaching {key} failed{}", left(rollback))]
    Add {
        /// The attachment.
        key: Box<Key>,
        /// What failed.
        #[source]
        source: CallError,
        /// What could not be undone: it stays in the journal until it is.
        rollback: Vec<CallError>,
    },
    /// Attached, but not recorded, and so undone.
    #[error("attaching {key} could not be recorded and was undone{}", left(rollback))]
    Record {
        /// The attachment.
        key: Box<Key>,
        /// What failed.
        #[source]
        source: Box<JournalError>,
        /// What could not be undone: it stays in the journal until it is.
        rollback: Vec<CallError>,
    },
    /// Not all was undone. The journal keeps the attachment.
    #[error("detaching {key} failed: {}", all(failures))]
    Del {
        /// The attachment.
        key: Box<Key>,
        /// Everything that failed.
        failures: Vec<CallError>,
    },
    /// A plugin of the network cannot do its work.
    #[error("network {network:?} is not ready")]
    Status {
        /// The network.
        network: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// A plugin could not collect its garbage.
    #[error("collecting the garbage of network {network:?} failed")]
    Gc {
        /// The network.
        network: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// A plugin of an earlier life does not end.
    #[error("{key}")]
    Orphan {
        /// The attachment.
        key: Box<Key>,
        /// Which.
        #[source]
        source: crate::ExecError,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The process is ending.
    #[error("the operation was interrupted")]
    Interrupted {
        /// How.
        #[source]
        source: tokio::task::JoinError,
    },
}

/// An error and its causes on one line, for where there is no room for a source.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

pub(crate) fn all(failures: &[CallError]) -> String {
    let texts: Vec<String> = failures.iter().map(|failure| chain(failure)).collect();
    texts.join("; ")
}

fn left(rollback: &[CallError]) -> String {
    if rollback.is_empty() { String::new() } else { format!(", and undoing it too ({})", all(rollback)) }
}
