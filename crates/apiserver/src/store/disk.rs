//! The store's file: objects, the recent history, and the counters that must survive.
//!
//! Objects and history change in one transaction, flushed before it is reported. Never read after start.

use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Change, Event, Feed, OpenError, Place, Stored, View};

/// `place NUL key` to the object.
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// Revision to (place, key, change, object, previous object or nothing).
const HISTORY: TableDefinition<u64, HistoryRow> = TableDefinition::new("history");
type HistoryRow = (&'static str, &'static str, u8, &'static [u8], &'static [u8]);
/// Place to the newest revision that its history no longer has.
const TRIMMED: TableDefinition<&str, u64> = TableDefinition::new("trimmed");
/// The last revision given out.
const REVISION: TableDefinition<(), u64> = TableDefinition::new("revision");

/// Everything is in memory anyway: the database needs room for one batch, not a cache.
const CACHE_BYTES: usize = 4 << 20;

pub(super) struct Disk {
    database: Database,
}

/// What a file held.
#[derive(Default)]
pub(super) struct Loaded {
    pub view: View,
    pub feeds: HashMap<Place, Arc<Feed>>,
}

/// One event on its way to disk.
pub(super) struct Record<'a> {
    pub place: &'a Place,
    pub event: &'a Event,
}

impl Disk {
    pub(super) fn open(path: &Path) -> Result<(Self, Loaded), OpenError> {
        let failed = |source: redb::Error| OpenError::Database {
            path: path.display().to_string(),
            source: Box::new(source),
        };
        // Secrets are among the objects: the file is its owner's alone.
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|cause| failed(redb::Error::Io(cause)))?;
        let database = Database::builder().set_cache_size(CACHE_BYTES).create_file(file);
        let database = database.map_err(|cause| failed(cause.into()))?;
        let disk = Self { database };
        disk.create_tables().map_err(failed)?;
        let loaded = disk.load().map_err(|cause| match cause {
            LoadError::Database(source) => failed(*source),
            LoadError::Entry(entry) => OpenError::Corrupt { path: path.display().to_string(), entry },
        })?;
        Ok((disk, loaded))
    }

    fn create_tables(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(HISTORY)?;
        transaction.open_table(TRIMMED)?;
        transaction.open_table(REVISION)?;
        transaction.commit()?;
        Ok(())
    }

    fn load(&self) -> Result<Loaded, LoadError> {
        let transaction = self.database.begin_read()?;
        let mut view = View::default();
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (address, json) = entry?;
            let (place, key) =
                address.value().split_once('\0').ok_or_else(|| LoadError::entry(address.value()))?;
            let stored = read_object(key, json.value())?;
            view.places.entry(place.into()).or_default().insert(key.into(), stored);
        }
        view.revision = transaction.open_table(REVISION)?.get(())?.map_or(0, |revision| revision.value());
        let mut histories: HashMap<Place, (VecDeque<Arc<Event>>, u64)> = HashMap::new();
        for entry in transaction.open_table(TRIMMED)?.iter()? {
            let (place, revision) = entry?;
            histories.entry(place.value().into()).or_default().1 = revision.value();
        }
        for entry in transaction.open_table(HISTORY)?.iter()? {
            let (revision, row) = entry?;
            let (place, key, change, json, previous) = row.value();
            let event = Event {
                revision: revision.value(),
                change: read_change(change).ok_or_else(|| LoadError::entry(key))?,
                object: read_object(key, json)?,
                previous: if previous.is_empty() { None } else { Some(read_object(key, previous)?) },
            };
            histories.entry(place.into()).or_default().0.push_back(Arc::new(event));
        }
        let feeds = histories
            .into_iter()
            .map(|(place, (events, trimmed))| (place, Arc::new(Feed::restore(events, trimmed))))
            .collect();
        Ok(Loaded { view, feeds })
    }

    /// Writes a batch and flushes it.
    pub(super) fn commit<'a>(
        &self,
        revision: u64,
        records: impl Iterator<Item = Record<'a>>,
        trimmed: &[(&Place, Vec<u64>)],
    ) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut history = transaction.open_table(HISTORY)?;
            for Record { place, event } in records {
                let key = &event.object.key;
                let json = event.object.json.as_ref();
                let address = format!("{place}\0{key}");
                match event.change {
                    Change::Deleted => objects.remove(address.as_str())?,
                    Change::Added | Change::Modified => objects.insert(address.as_str(), json)?,
                };
                let previous = event.previous.as_ref().map_or(&[][..], |stored| &stored.json);
                history
                    .insert(event.revision, (&**place, &**key, write_change(event.change), json, previous))?;
            }
            let mut newest_trimmed = transaction.open_table(TRIMMED)?;
            for (place, revisions) in trimmed {
                for revision in revisions {
                    history.remove(revision)?;
                }
                if let Some(newest) = revisions.last() {
                    newest_trimmed.insert(&***place, newest)?;
                }
            }
            transaction.open_table(REVISION)?.insert((), revision)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

enum LoadError {
    Database(Box<redb::Error>),
    Entry(String),
}

impl LoadError {
    fn entry(text: &str) -> Self {
        Self::Entry(text.replace('\0', " "))
    }
}

impl<E: Into<redb::Error>> From<E> for LoadError {
    fn from(cause: E) -> Self {
        Self::Database(Box::new(cause.into()))
    }
}

fn read_object(key: &str, json: &[u8]) -> Result<Arc<Stored>, LoadError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        metadata: Version,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        resource_version: String,
    }
    let versioned: Versioned = serde_json::from_slice(json).map_err(|_| LoadError::entry(key))?;
    let revision = versioned.metadata.resource_version.parse().map_err(|_| LoadError::entry(key))?;
    let stored = Stored::new(revision, key.into(), Bytes::copy_from_slice(json));
    stored.map(Arc::new).map_err(|_| LoadError::entry(key))
}

fn write_change(change: Change) -> u8 {
    match change {
        Change::Added => 0,
        Change::Modified => 1,
        Change::Deleted => 2,
    }
}

fn read_change(byte: u8) -> Option<Change> {
    [Change::Added, Change::Modified, Change::Deleted].get(usize::from(byte)).copied()
}
