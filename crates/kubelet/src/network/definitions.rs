//! Tells when a NetworkAttachmentDefinition changes, so that a pod that waits for one need not wait longer.
//!
//! It keeps no definition: whoever needs one reads it. The watch begins when somebody first asks, and survives that there
//! is no such kind yet.

use std::sync::OnceLock;
use std::time::Duration;

use api::multus::NetworkAttachmentDefinition;
use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Between tries when there is no such kind.
const RETRY: Duration = Duration::from_secs(2);

pub(super) struct Changes {
    client: Client,
    count: watch::Sender<u64>,
    task: OnceLock<AbortHandle>,
}

impl Changes {
    pub(super) fn new(client: Client) -> Self {
        Self { client, count: watch::Sender::new(0), task: OnceLock::new() }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.task.get_or_init(|| {
            tokio::spawn(count_changes(self.client.clone(), self.count.clone())).abort_handle()
        });
        self.count.subscribe()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

async fn count_changes(client: Client, count: watch::Sender<u64>) {
    let definitions: Api<NetworkAttachmentDefinition> = Api::all(client);
    let mut events = std::pin::pin!(watcher(definitions, Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(_) | Event::InitApply(_)) => count.send_modify(|count| *count += 1),
            Ok(_) => {}
            Err(cause) => {
                tracing::debug!(cause = crate::error::chain(&cause), "definitions cannot be watched");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
