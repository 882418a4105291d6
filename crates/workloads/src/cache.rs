//! One kind of object as this process knows it: a watch for all controllers, and the way by which they write.
//!
//! Invariant: a controller sees its own writes. What a write returned is put into the store at once, and no older
//! event of the watch takes it back. Without this a controller would make a pod twice, because the first was not
//! there to see yet; with it, a decision needs no memory of what was asked for before.
//!
//! It relies on resource versions that grow, as those of every Kubernetes API server do.

use std::collections::HashSet;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch::Sender;

use crate::Error;

/// A kind that can be cached.
pub trait Object:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

pub struct Cache<K: Object> {
    client: Client,
    /// What is watched: all of it, or one namespace.
    watched: Api<K>,
    /// Where an object of a namespace is written.
    place: fn(Client, &str) -> Api<K>,
    reader: Store<K>,
    feed: Mutex<Feed<K>>,
    changes: Arc<Sender<u64>>,
}

struct Feed<K: Object> {
    writer: Writer<K>,
    /// The newest version that the watch has told of. A write up to here is in the store, or has been deleted since.
    seen: u64,
    /// Objects that we know to be gone while the watch may still tell of their past.
    gone: HashSet<String>,
}

impl<K: Object> Cache<K> {
    pub fn new(
        client: &Client,
        watched: Api<K>,
        place: fn(Client, &str) -> Api<K>,
        changes: &Arc<Sender<u64>>,
    ) -> Self {
        let (reader, writer) = store();
        let feed = Mutex::new(Feed { writer, seen: 0, gone: HashSet::new() });
        Self { client: client.clone(), watched, place, reader, feed, changes: changes.clone() }
    }

    /// Keeps the store up to date; never ends on its own.
    pub async fn follow(&self) {
        let mut events = pin!(watch(self.watched.clone(), watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.see(&event),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "a watch failed; starting it again");
                }
            }
        }
    }

    /// Resolves once the first list is in the store.
    pub async fn ready(&self) {
        // The writer lives as long as this cache does, so it cannot be dropped before it is ready.
        let _ = self.reader.wait_until_ready().await;
    }

    /// Everything, in the order of names: decisions must not hang on the order of a hash map.
    pub fn all(&self) -> Vec<Arc<K>> {
        let mut all = self.reader.state();
        all.sort_by_cached_key(|object| (object.namespace(), object.name_any()));
        all
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = ObjectRef::<K>::new(name);
        self.reader.get(&if namespace.is_empty() { key } else { key.within(namespace) })
    }

    pub async fn create(&self, object: &K) -> Result<Arc<K>, Error> {
        let made = self.api(object).create(&PostParams::default(), object).await;
        made.map(|made| self.absorb(made)).map_err(|source| request("create", object, source))
    }

    /// Replaces an object, if it is still the one that was read.
    pub async fn replace(&self, object: &K) -> Result<Arc<K>, Error> {
        let api = self.api(object);
        let made = api.replace(&object.name_any(), &PostParams::default(), object).await;
        made.map(|made| self.absorb(made)).map_err(|source| request("update", object, source))
    }

    /// Replaces the status of an object, if it is still the one that was read.
    pub async fn replace_status(&self, object: &K) -> Result<Arc<K>, Error> {
        let api = self.api(object);
        let made = api.replace_status(&object.name_any(), &PostParams::default(), object).await;
        made.map(|made| self.absorb(made)).map_err(|source| request("update the status of", object, source))
    }

    /// A merge patch of `object`, if it is still the one that was read.
    pub async fn patch(&self, object: &K, mut change: Value) -> Result<Arc<K>, Error> {
        change["metadata"]["uid"] = object.uid().into();
        change["metadata"]["resourceVersion"] = object.resource_version().into();
        let api = self.api(object);
        let made = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(change)).await;
        made.map(|made| self.absorb(made)).map_err(|source| request("update", object, source))
    }

    /// Deletes an object, and no later one of its name. That it is gone already is as good.
    pub async fn delete(&self, object: &K, grace_seconds: Option<u32>) -> Result<(), Error> {
        let mut how = DeleteParams::background();
        how.grace_period_seconds = grace_seconds;
        how.preconditions = Some(Preconditions { uid: object.uid(), resource_version: None });
        match self.api(object).delete(&object.name_any(), &how).await {
            Ok(_) => self.refresh(object).await,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.forget(object);
                Ok(())
            }
            Err(source) => Err(request("delete", object, source)),
        }
    }

    /// Reads an object anew, after a request that does not answer with it.
    pub async fn refresh(&self, object: &K) -> Result<(), Error> {
        let found = self.api(object).get_opt(&object.name_any()).await;
        match found.map_err(|source| request("read", object, source))? {
            Some(found) if found.uid() == object.uid() => {
                self.absorb(found);
            }
            _ => self.forget(object),
        }
        Ok(())
    }

    /// Whether the server has an object of that name now.
    pub async fn exists(&self, object: &K) -> Result<bool, Error> {
        let found = self.api(object).get_metadata_opt(&object.name_any()).await;
        found.map(|found| found.is_some()).map_err(|source| request("read", object, source))
    }

    pub fn api(&self, object: &K) -> Api<K> {
        (self.place)(self.client.clone(), &object.namespace().unwrap_or_default())
    }

    fn feed(&self) -> MutexGuard<'_, Feed<K>> {
        // Nothing in here can fail half-way.
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self, event: &Event<K>) {
        let mut feed = self.feed();
        match event {
            Event::Apply(object) => {
                feed.seen = feed.seen.max(version(object));
                if self.is_older(object) || object.uid().is_some_and(|uid| feed.gone.contains(&uid)) {
                    return;
                }
            }
            Event::Delete(object) => {
                feed.seen = feed.seen.max(version(object));
                feed.gone.remove(&object.uid().unwrap_or_default());
                if self.is_older(object) {
                    return;
                }
            }
            Event::InitApply(object) => feed.seen = feed.seen.max(version(object)),
            Event::Init => {}
            Event::InitDone => feed.gone.clear(),
        }
        feed.writer.apply_watcher_event(event);
        drop(feed);
        self.tell();
    }

    /// Takes the answer to a write, unless the watch is past it.
    fn absorb(&self, object: K) -> Arc<K> {
        let mut feed = self.feed();
        if version(&object) > feed.seen && !self.is_older(&object) {
            feed.writer.apply_watcher_event(&Event::Apply(object.clone()));
        }
        drop(feed);
        self.tell();
        Arc::new(object)
    }

    fn forget(&self, object: &K) {
        let mut feed = self.feed();
        if self.cached(object).is_some_and(|known| known.uid() == object.uid()) {
            feed.gone.extend(object.uid());
            feed.writer.apply_watcher_event(&Event::Delete(object.clone()));
        }
        drop(feed);
        self.tell();
    }

    fn cached(&self, object: &K) -> Option<Arc<K>> {
        self.get(&object.namespace().unwrap_or_default(), &object.name_any())
    }

    fn is_older(&self, object: &K) -> bool {
        self.cached(object).is_some_and(|known| version(&*known) > version(object))
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

fn version<K: Object>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn request<K: Object>(verb: &'static str, object: &K, source: kube::Error) -> Error {
    let name = object.meta().name.clone().or(object.meta().generate_name.clone()).unwrap_or_default();
    let name = match object.namespace() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    };
    Error::Request { verb, kind: K::kind(&()).into_owned(), name, source: Box::new(source) }
}

#[cfg(test)]
mod tests;
