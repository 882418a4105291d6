//! The store: every object, at every moment one revision of the whole.
//!
//! One thread writes ([`writer`]); everyone else reads a [`View`], an immutable snapshot that costs nothing to take.
//! A write is on disk before it is visible or answered. What changed is kept for a while in a [`Feed`] per place, from
//! which watches read at their own pace. A *place* is where the objects of one resource are kept (`pods`,
//! `example.dev/birds`); a *key* is `namespace/name`, or `name` for cluster-scoped objects.
//!
//! Invariants: revisions only grow, also over restarts; a view holds exactly the writes up to its revision; an event is
//! in its feed before any view shows its revision.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use imbl::OrdMap;
use serde_json::Value;
use tokio::sync::{oneshot, watch};

mod disk;
mod feed;
mod writer;

#[cfg(test)]
mod tests;

pub use feed::{Change, Event, Feed, TooOld};

pub type Place = Arc<str>;
pub type Key = Arc<str>;
type Objects = OrdMap<Key, Arc<Stored>>;

/// One object as it is kept.
#[derive(Debug)]
pub struct Stored {
    pub revision: u64,
    pub key: Key,
    pub json: Bytes,
    /// Kept apart because selectors ask for them on every list and event.
    pub labels: BTreeMap<String, String>,
}

impl Stored {
    fn new(revision: u64, key: Key, json: Bytes) -> Result<Self, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Labelled {
            #[serde(default)]
            metadata: Labels,
        }
        #[derive(serde::Deserialize, Default)]
        struct Labels {
            #[serde(default)]
            labels: Option<BTreeMap<String, String>>,
        }
        let labelled: Labelled = serde_json::from_slice(&json)?;
        Ok(Self { revision, key, json, labels: labelled.metadata.labels.unwrap_or_default() })
    }

    /// Whether the text stands anywhere in the object: a glance at the bytes that spares parsing most of them.
    pub fn mentions(&self, text: &str) -> bool {
        memchr::memmem::find(&self.json, text.as_bytes()).is_some()
    }

    /// The object as a value of the caller's own.
    pub fn value(&self) -> Value {
        // What is stored was serialised here; a failure means memory is not what we wrote.
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }
}

/// All objects as they were at one revision.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub revision: u64,
    places: imbl::HashMap<Place, Objects>,
}

impl View {
    pub fn get(&self, place: &str, key: &str) -> Option<&Arc<Stored>> {
        self.places.get(place)?.get(key)
    }

    /// Objects of a place in key order, from the first key that is not below `start`, while keys have `prefix`.
    pub fn scan<'a>(
        &'a self,
        place: &str,
        prefix: &'a str,
        start: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let from: &str = if start > prefix { start } else { prefix };
        let from: Key = from.into();
        let objects = self.places.get(place);
        objects
            .into_iter()
            .flat_map(move |objects| objects.range(from.clone()..).map(|(_, stored)| stored))
            .take_while(move |stored| stored.key.starts_with(prefix))
    }

    pub fn count(&self, place: &str) -> usize {
        self.places.get(place).map_or(0, OrdMap::len)
    }

    /// Every place that holds something.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.keys()
    }
}

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

/// One change of one object.
#[derive(Debug)]
pub struct Write {
    pub place: Place,
    pub key: Key,
    pub expect: Expect,
    pub change: Desired,
}

#[derive(Debug)]
pub enum Desired {
    Put(Value),
    /// Removes the object; watchers are shown this last state.
    Delete(Value),
}

/// Why a write was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The object is not as expected; `current` is what is there.
    #[error("the object changed")]
    Changed { current: Option<Arc<Stored>> },
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("opening the database {path} failed")]
    Database {
        path: String,
        #[source]
        source: Box<redb::Error>,
    },
    #[error(
        "the database {path} holds an entry that cannot be read ({entry}); restore the file or start with an empty one"
    )]
    Corrupt { path: String, entry: String },
    #[error("starting the store's thread failed")]
    Thread(#[source] std::io::Error),
}

struct Request {
    write: Write,
    reply: oneshot::Sender<Result<Arc<Stored>, WriteError>>,
}

/// A handle; clones share the store, which ends with the last of them.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

struct Shared {
    view: ArcSwap<View>,
    feeds: RwLock<HashMap<Place, Arc<Feed>>>,
    /// How many events each feed keeps.
    history: usize,
    newest: watch::Sender<u64>,
}

impl Shared {
    fn feed(&self, place: &Place) -> Arc<Feed> {
        if let Some(feed) = self.feeds.read().unwrap_or_else(PoisonError::into_inner).get(place) {
            return feed.clone();
        }
        let mut feeds = self.feeds.write().unwrap_or_else(PoisonError::into_inner);
        feeds.entry(place.clone()).or_default().clone()
    }
}

impl Store {
    /// A store that forgets everything when it ends.
    pub fn memory(history: usize) -> Result<Self, OpenError> {
        Self::start(disk::Loaded::default(), None, history)
    }

    /// A store in a file, with all that was acknowledged before.
    pub fn open(path: &Path, history: usize) -> Result<Self, OpenError> {
        let (disk, loaded) = disk::Disk::open(path)?;
        Self::start(loaded, Some(disk), history)
    }

    fn start(loaded: disk::Loaded, disk: Option<disk::Disk>, history: usize) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            view: ArcSwap::from_pointee(loaded.view),
            feeds: RwLock::new(loaded.feeds),
            history: history.max(1),
            newest: watch::Sender::new(0),
        });
        let (requests, queue) = mpsc::channel();
        let writer = writer::Writer::new(shared.clone(), disk);
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(&queue))
            .map_err(OpenError::Thread)?;
        Ok(Self { shared, requests })
    }

    /// The newest committed state.
    pub fn view(&self) -> Arc<View> {
        self.shared.view.load_full()
    }

    /// The newest state with one place as it was at an earlier revision, as long as its history reaches back to it.
    pub fn view_at(&self, place: &Place, revision: u64) -> Result<Arc<View>, TooOld> {
        let newest = self.view();
        if revision >= newest.revision {
            return Ok(newest);
        }
        let since = self.feed(place).after(revision, newest.revision, usize::MAX)?;
        let mut view = View::clone(&newest);
        view.revision = revision;
        let objects = view.places.entry(place.clone()).or_default();
        for event in since.iter().rev() {
            match &event.previous {
                Some(previous) => objects.insert(previous.key.clone(), previous.clone()),
                None => objects.remove(&event.object.key),
            };
        }
        Ok(Arc::new(view))
    }

    /// What changes in a place.
    pub fn feed(&self, place: &Place) -> Arc<Feed> {
        self.shared.feed(place)
    }

    /// Changes with every commit anywhere.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.newest.subscribe()
    }

    /// Makes one change; when this returns, the change is on disk and visible.
    pub async fn commit(&self, write: Write) -> Result<Arc<Stored>, WriteError> {
        let (reply, answer) = oneshot::channel();
        let stopped = || WriteError::Failed("the store has stopped".into());
        self.requests.send(Request { write, reply }).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Waits until the store has reached a revision, for as long as the real server does.
    pub async fn reaches(&self, revision: u64) -> bool {
        const PATIENCE: Duration = Duration::from_secs(3);
        let mut changes = self.changes();
        let reached = async {
            while self.view().revision < revision {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.is_ok()
    }
}
