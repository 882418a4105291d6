//! The plugins of a network one after the other: forwards to attach and check, backwards to detach.
//!
//! Attaching stops at the first failure, detaching goes on past every one of them and reports them all.

use serde_json::Value;

use super::Inner;
use crate::{
    Attachment, AttachmentRequest, CallError, Entry, Error, Exec, Network, Operation, Refusal,
    call::{self, Subject},
    error,
};

/// A chain that was not attached.
pub(super) struct AddFailed {
    pub(super) source: CallError,
    /// How many plugins may have made something.
    pub(super) ran: usize,
    /// What the last of them that succeeded answered.
    pub(super) previous: Option<Value>,
}

impl<E: Exec> Inner<E> {
    /// ADD of every plugin, each building on the result before.
    pub(super) async fn add_chain(&self, entry: &Entry) -> Result<(Value, Attachment), AddFailed> {
        let network = &entry.network;
        let namespace = entry.request.namespace.to_string_lossy();
        let subject = Subject { request: &entry.request, namespace: &namespace };
        let mut last: (Option<Value>, Attachment) = (None, Attachment::default());
        for (position, plugin) in network.plugins().iter().enumerate() {
            let asked =
                self.caller.attachment(Operation::Add, (network, plugin), subject, last.0.as_ref()).await;
            match asked.and_then(|answer| call::result(network, plugin, &answer)) {
                Ok((result, attachment)) => last = (Some(result), attachment),
                Err(source) => {
                    let ran = if source.never_ran() { position } else { position + 1 };
                    return Err(AddFailed { source, ran, previous: last.0 });
                }
            }
        }
        Ok((last.0.unwrap_or_default(), last.1))
    }

    /// CHECK of every plugin.
    pub(super) async fn check_chain(&self, entry: &Entry, result: &Value) -> Result<(), CallError> {
        let namespace = entry.request.namespace.to_string_lossy();
        let subject = Subject { request: &entry.request, namespace: &namespace };
        for plugin in entry.network.plugins() {
            let on = (&entry.network, plugin);
            self.caller.attachment(Operation::Check, on, subject, Some(result)).await?;
        }
        Ok(())
    }

    /// DEL of the first `ran` plugins, the last of them first.
    pub(super) async fn del_chain(
        &self,
        network: &Network,
        ran: usize,
        request: &AttachmentRequest,
        namespace_is_there: bool,
        result: Option<&Value>,
    ) -> Vec<CallError> {
        let path = request.namespace.to_string_lossy();
        let subject = Subject { request, namespace: if namespace_is_there { &path } else { "" } };
        let mut failures = Vec::new();
        for plugin in network.plugins().iter().take(ran).rev() {
            let asked = self.caller.attachment(Operation::Del, (network, plugin), subject, result).await;
            match asked {
                Err(failure) if !nothing_to_undo(&failure) => failures.push(failure),
                _ => {}
            }
        }
        failures
    }

    /// DEL of the plugins that may have made something, and then the entry; what fails keeps the entry.
    pub(super) async fn undo(
        &self,
        entry: &Entry,
        ran: usize,
        result: Option<&Value>,
    ) -> Result<Vec<CallError>, Error> {
        let gone = entry.namespace_is_gone();
        let failures = self.del_chain(&entry.network, ran, &entry.request, !gone, result).await;
        let key = entry.key();
        if gone && failures.iter().all(CallError::is_final) && !failures.is_empty() {
            tracing::warn!(%key, failures = error::all(&failures), "detached what is left after its namespace");
        } else if !failures.is_empty() {
            return Ok(failures);
        }
        self.on_disk(move |journal| journal.remove(&key)).await?;
        Ok(Vec::new())
    }

    /// The same after an ADD that failed, which is what the caller is to hear of.
    pub(super) async fn roll_back(
        &self,
        entry: &Entry,
        ran: usize,
        result: Option<&Value>,
    ) -> Vec<CallError> {
        self.undo(entry, ran, result).await.unwrap_or_else(|cause| {
            // It is undone; that the entry is still there only means that it is undone once more.
            tracing::warn!(cause = error::chain(&cause), "an undone CNI attachment is still in the journal");
            Vec::new()
        })
    }
}

fn nothing_to_undo(failure: &CallError) -> bool {
    failure.refusal().is_some_and(|refusal| refusal.code == Refusal::UNKNOWN_CONTAINER)
}
