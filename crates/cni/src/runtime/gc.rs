//! Garbage: attachments whose containers are no more.
//!
//! An attachment that began after the caller looked which containers there are is never garbage: [`GcMark`] is taken before
//! that look. Plugins are told what is valid while no attachment to their network is under way.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Inner, Runtime, to_its_end};
use crate::{Entry, Error, Exec, Key, Network, Operation, Version, config::Extras};

/// An attachment as plugins know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentId {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

impl AttachmentId {
    /// This interface of this container.
    pub fn new(container_id: &str, interface: &str) -> Self {
        Self { container_id: container_id.to_owned(), ifname: interface.to_owned() }
    }
}

/// A moment: what began later is not garbage. The first of them is when this process began.
#[derive(Clone, Copy, Debug, Default)]
pub struct GcMark(u64);

/// What a collection came to.
#[derive(Debug, Default)]
pub struct Collected {
    /// What was detached.
    pub detached: Vec<Key>,
    /// What failed. It is tried again next time.
    pub failures: Vec<Error>,
}

impl<E: Exec> Runtime<E> {
    /// Take it before looking which containers there are.
    pub fn gc_mark(&self) -> GcMark {
        GcMark(self.inner.journal.sequence())
    }

    /// Detaches everything in the journal, of any network, that is not valid.
    pub async fn collect(&self, valid: &BTreeSet<AttachmentId>, mark: GcMark) -> Collected {
        self.detach_garbage(valid, mark, |_| true).await
    }

    /// Detaches everything in the journal of this network that is not valid, then has the network's plugins that speak 1.1
    /// collect theirs.
    ///
    /// Plugins take away whatever is not in `valid`: it must name every attachment to this network on this node, also those
    /// of other runtimes.
    pub async fn gc(&self, network: &Network, valid: &BTreeSet<AttachmentId>, mark: GcMark) -> Collected {
        let mut collected =
            self.detach_garbage(valid, mark, |entry| entry.network.name() == network.name()).await;
        if network.can_gc() {
            let (inner, network, valid) = (Arc::clone(&self.inner), network.clone(), valid.clone());
            match to_its_end(async move { Ok(inner.gc_plugins(&network, valid).await) }).await {
                Ok(failures) => collected.failures.extend(failures),
                Err(interrupted) => collected.failures.push(interrupted),
            }
        }
        collected
    }

    async fn detach_garbage(
        &self,
        valid: &BTreeSet<AttachmentId>,
        GcMark(mark): GcMark,
        of: impl Fn(&Entry) -> bool,
    ) -> Collected {
        let mut collected = Collected::default();
        let garbage =
            |entry: &Arc<Entry>| entry.sequence <= mark && of(entry) && !valid.contains(&entry.id());
        for entry in self.list().into_iter().filter(garbage) {
            let inner = Arc::clone(&self.inner);
            match to_its_end(async move { inner.detach_if_still(&entry).await }).await {
                Ok(detached) => collected.detached.extend(detached),
                Err(failure) => collected.failures.push(failure),
            }
        }
        collected
    }
}

impl<E: Exec> Inner<E> {
    /// Detaches it unless that, or more, has happened while we waited for our turn.
    async fn detach_if_still(&self, garbage: &Entry) -> Result<Option<Key>, Error> {
        let key = garbage.key();
        let _alone = self.alone(&key.container_id, &key.interface).await;
        match self.entry(&key) {
            Ok(entry) if entry.sequence == garbage.sequence => {
                self.del_entry(&entry).await?;
                Ok(Some(key))
            }
            _ => Ok(None),
        }
    }

    async fn gc_plugins(&self, network: &Network, mut valid: BTreeSet<AttachmentId>) -> Vec<Error> {
        let _no_attachment = self.networks.get(network.name().to_owned()).write_owned().await;
        // What the journal still has is newer than the caller's look, or could not be detached: ours to undo, not theirs.
        let ours = self.journal.list();
        valid.extend(
            ours.iter().filter(|entry| entry.network.name() == network.name()).map(|entry| entry.id()),
        );
        let valid: Vec<AttachmentId> = valid.into_iter().collect();
        let mut failures = Vec::new();
        for plugin in network.plugins() {
            let collect = async {
                let spoken = self.caller.versions(network, plugin).await?;
                if !spoken.iter().any(|version| version == Version::V1_1_0.as_str()) {
                    return Ok(());
                }
                let extras = Extras { valid: Some(&valid), ..Extras::default() };
                self.caller.network(Operation::Gc, (network, plugin), extras).await
            };
            if let Err(source) = collect.await {
                failures.push(Error::Gc { network: network.name().to_owned(), source });
            }
        }
        failures
    }
}
