//! The one thread that changes the store.
//!
//! Requests that wait while a batch goes to disk make up the next batch, so that many writers share one flush. A batch
//! is checked and applied to a private copy of the view, committed to disk, and only then shown and answered.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;

use super::disk::{Disk, Record};
use super::{Change, Desired, Event, Expect, Feed, Place, Request, Shared, Stored, View, Write, WriteError};
use crate::object;

/// Enough to share a flush, little enough to keep the first of them waiting only briefly.
const BATCH: usize = 256;

pub(super) struct Writer {
    shared: Arc<Shared>,
    disk: Option<Disk>,
}

type Answer = (oneshot::Sender<Result<Arc<Stored>, WriteError>>, Result<Arc<Stored>, WriteError>);

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, disk: Option<Disk>) -> Self {
        Self { shared, disk }
    }

    /// Runs until every handle of the store is gone.
    pub(super) fn run(mut self, queue: &mpsc::Receiver<Request>) {
        while let Ok(first) = queue.recv() {
            let batch = std::iter::once(first).chain(queue.try_iter().take(BATCH - 1));
            self.commit(batch);
        }
    }

    fn commit(&mut self, batch: impl Iterator<Item = Request>) {
        let mut view = View::clone(&self.shared.view.load());
        let mut answers: Vec<Answer> = Vec::new();
        let mut events: Vec<(Place, Arc<Event>)> = Vec::new();
        for Request { write, reply } in batch {
            let place = write.place.clone();
            match apply(&mut view, write) {
                Ok(event) => {
                    answers.push((reply, Ok(event.object.clone())));
                    events.push((place, Arc::new(event)));
                }
                Err(error) => answers.push((reply, Err(error))),
            }
        }
        if !events.is_empty() {
            match self.persist(view.revision, &events) {
                Ok(()) => self.publish(view, events),
                Err(cause) => {
                    tracing::error!(%cause, "the store could not write to disk; the batch is refused");
                    for (_, answer) in &mut answers {
                        *answer = Err(WriteError::Failed(cause.clone()));
                    }
                }
            }
        }
        for (reply, answer) in answers {
            // A client that went away does not need its answer.
            let _ = reply.send(answer);
        }
    }

    fn persist(&mut self, revision: u64, events: &[(Place, Arc<Event>)]) -> Result<(), String> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let mut incoming: HashMap<&Place, usize> = HashMap::new();
        for (place, _) in events {
            *incoming.entry(place).or_default() += 1;
        }
        let trimmed: Vec<(&Place, Vec<u64>)> = incoming
            .into_iter()
            .map(|(place, count)| (place, self.shared.feed(place).would_trim(count, self.shared.history)))
            .filter(|(_, revisions)| !revisions.is_empty())
            .collect();
        let records = events.iter().map(|(place, event)| Record { place, event });
        disk.commit(revision, records, &trimmed).map_err(|cause| cause.to_string())
    }

    /// Events first, then the view, then the bell: see the invariants of the store.
    fn publish(&self, view: View, events: Vec<(Place, Arc<Event>)>) {
        let revision = view.revision;
        let mut touched: HashMap<Place, Arc<Feed>> = HashMap::new();
        for (place, event) in events {
            let feed = touched.entry(place).or_insert_with_key(|place| self.shared.feed(place));
            feed.push(event, self.shared.history);
        }
        self.shared.view.store(Arc::new(view));
        for feed in touched.values() {
            feed.announce(revision);
        }
        self.shared.newest.send_replace(revision);
    }
}

/// Checks one write against the view and applies it there.
fn apply(view: &mut View, write: Write) -> Result<Event, WriteError> {
    let previous = view.get(&write.place, &write.key).cloned();
    let as_expected = match write.expect {
        Expect::Absent => previous.is_none(),
        Expect::Revision(revision) => previous.as_ref().is_some_and(|stored| stored.revision == revision),
    };
    if !as_expected {
        return Err(WriteError::Changed { current: previous });
    }
    let revision = view.revision + 1;
    let (change, mut value) = match (write.change, &previous) {
        (Desired::Put(value), None) => (Change::Added, value),
        (Desired::Put(value), Some(_)) => (Change::Modified, value),
        (Desired::Delete(value), _) => (Change::Deleted, value),
    };
    object::set_meta(&mut value, "resourceVersion", Value::String(revision.to_string()));
    let labels = object::labels(&value);
    let json = object::to_json(&value).map_err(|cause| WriteError::Failed(cause.to_string()))?;
    let stored = Arc::new(Stored { revision, key: write.key.clone(), json: Bytes::from(json), labels });
    let objects = view.places.entry(write.place).or_default();
    if change == Change::Deleted {
        objects.remove(&write.key);
    } else {
        objects.insert(write.key, stored.clone());
    }
    view.revision = revision;
    Ok(Event { revision, change, object: stored, previous })
}
