//! WATCH: what happens to a selection of objects, in order, from a revision on.
//!
//! A watcher holds nothing but a cursor into the place's feed. It reads what came after the cursor whenever the feed
//! announces something; one that is too slow finds its history gone and is ended, to resume or list again.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::read::{MATCH, Selection, asked_revision, invalid_list};
use super::{Registry, is_verbatim, present};
use crate::http::Call;
use crate::http::negotiate::Accept;
use crate::http::reply::Reply;
use crate::kinds::Kind;
use crate::object;
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{Change, Event, Feed, Store, Stored};
use crate::table::{self, IncludeObject};

const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// Events or objects that go out as one piece.
const PIECE: usize = 256;

struct Watcher {
    store: Store,
    feed: Arc<Feed>,
    news: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    kind: Arc<Kind>,
    selection: Selection,
    form: Form,
    /// Objects that are shown as added before anything else.
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// Everything up to here has been shown.
    cursor: u64,
    bookmarks: Bookmarks,
    until: Instant,
    state: State,
}

#[derive(Clone, Copy)]
struct Bookmarks {
    wanted: bool,
    /// The end of the initial objects is marked.
    after_initial: bool,
    next: Instant,
}

#[derive(PartialEq)]
enum State {
    /// Headers go out before the first event: an empty piece does that.
    Opening,
    Initial,
    Live,
    Ended,
}

/// How objects are written.
#[derive(Clone, Copy)]
struct Form {
    accept: Accept,
    include: IncludeObject,
    /// Only the first table of a watch describes its columns.
    columns_sent: bool,
}

impl Registry {
    pub(super) fn watch(&self, call: &Call, kind: &Arc<Kind>) -> ApiResult<Reply> {
        let selection = Selection::parse(call, kind)?;
        let asked = asked_revision(call).map_err(|message| ApiError::new(500, "", message))?;
        let send_initial = initial_events(call)?;
        let feed = self.store.feed(&kind.storage);
        let news = feed.subscribe();
        let newest = self.store.view();
        let from_start = asked.unwrap_or_default() == 0;
        let (initial, cursor) = match send_initial {
            Some(true) => (true, newest.revision),
            Some(false) if from_start => (false, newest.revision),
            None if from_start => (true, newest.revision),
            _ => (false, asked.unwrap_or_default()),
        };
        if let Err(too_old) = feed.after(cursor, cursor, 0) {
            let message = format!("too old resource version: {cursor} ({})", too_old.trimmed + 1);
            return Ok(error_stream(&ApiError::expired(message)));
        }
        let initial: Vec<Arc<Stored>> = if initial {
            let all = newest.scan(&kind.storage, &selection.prefix, "");
            all.filter(|stored| selection.matches(kind, stored)).cloned().collect()
        } else {
            Vec::new()
        };
        let seconds = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let watcher = Watcher {
            store: self.store.clone(),
            feed,
            news,
            stopping: self.stopping.subscribe(),
            kind: kind.clone(),
            selection,
            form: Form {
                accept: call.accept,
                include: IncludeObject::parse(call.query.text("includeObject"))?,
                columns_sent: false,
            },
            initial: initial.into_iter(),
            cursor,
            bookmarks: Bookmarks {
                wanted: call.query.flag("allowWatchBookmarks"),
                after_initial: send_initial == Some(true),
                next: Instant::now() + BOOKMARK_EVERY,
            },
            until: Instant::now() + Duration::from_secs(seconds.unwrap_or_else(default_timeout)),
            state: State::Opening,
        };
        let pieces = futures::stream::unfold(watcher, |mut watcher| async move {
            let piece = watcher.next().await?;
            Some((piece, watcher))
        });
        Ok(Reply::stream("application/json", Box::pin(pieces)))
    }
}

impl Watcher {
    /// The next bytes for the client; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.state {
                State::Opening => {
                    self.state = State::Initial;
                    return Some(Bytes::new());
                }
                State::Initial => {
                    if let Some(piece) = self.initial_piece() {
                        return Some(piece);
                    }
                }
                State::Live => match self.live_piece() {
                    Some(piece) if !piece.is_empty() => return Some(piece),
                    Some(_) => {
                        if let Some(piece) = self.wait().await {
                            return Some(piece);
                        }
                    }
                    // The history is gone: the client resumes and is told so, or lists again.
                    None => return None,
                },
                State::Ended => return None,
            }
        }
    }

    fn initial_piece(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        let batch: Vec<Arc<Stored>> = self.initial.by_ref().take(PIECE).collect();
        for stored in &batch {
            self.write(&mut piece, "ADDED", stored);
        }
        if batch.len() < PIECE {
            self.state = State::Live;
            if self.bookmarks.after_initial {
                self.bookmark(&mut piece, true);
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }

    /// What came since the cursor, up to a piece; `None` when the history no longer reaches back to it.
    fn live_piece(&mut self) -> Option<Bytes> {
        let upto = self.store.view().revision;
        let events = self.feed.after(self.cursor, upto, PIECE).ok()?;
        let mut piece = BytesMut::new();
        for event in &events {
            self.event(&mut piece, event);
        }
        // A full piece may leave more behind; otherwise all up to the view has been seen.
        self.cursor = match events.last() {
            Some(last) if events.len() == PIECE => last.revision,
            _ => upto.max(self.cursor),
        };
        if piece.is_empty() && events.len() == PIECE { self.live_piece() } else { Some(piece.freeze()) }
    }

    /// Waits for news, the time of a bookmark, or the end.
    async fn wait(&mut self) -> Option<Bytes> {
        let wake = if self.bookmarks.wanted { self.bookmarks.next.min(self.until) } else { self.until };
        let due = tokio::select! {
            news = self.news.changed() => {
                if news.is_err() {
                    self.state = State::Ended;
                }
                return None;
            }
            _ = self.stopping.wait_for(|stopping| *stopping) => {
                self.state = State::Ended;
                return None;
            }
            () = tokio::time::sleep_until(wake) => Instant::now(),
        };
        let mut piece = BytesMut::new();
        if self.bookmarks.wanted {
            self.bookmarks.next = due + BOOKMARK_EVERY;
            self.bookmark(&mut piece, false);
        }
        if due >= self.until {
            self.state = State::Ended;
        }
        Some(piece.freeze())
    }

    /// An object that enters the selection is added, one that leaves it is deleted.
    fn event(&mut self, piece: &mut BytesMut, event: &Event) {
        let matches = |stored: &Arc<Stored>| self.selection.matches(&self.kind, stored);
        let before = event.previous.as_ref().is_some_and(matches);
        let after = event.change != Change::Deleted && matches(&event.object);
        match (before, after) {
            (false, true) => self.write(piece, "ADDED", &event.object),
            (true, true) => self.write(piece, "MODIFIED", &event.object),
            (true, false) if event.change == Change::Deleted => self.write(piece, "DELETED", &event.object),
            (true, false) => {
                if let Some(previous) = &event.previous {
                    let mut last = present(&self.kind, previous);
                    object::set_meta(&mut last, "resourceVersion", event.revision.to_string().into());
                    self.write_value(piece, "DELETED", last);
                }
            }
            (false, false) => {}
        }
    }

    fn write(&mut self, piece: &mut BytesMut, change: &str, stored: &Stored) {
        if self.form.accept == Accept::Object && is_verbatim(&self.kind) {
            write_frame(piece, change, &stored.json);
        } else {
            self.write_value(piece, change, present(&self.kind, stored));
        }
    }

    fn write_value(&mut self, piece: &mut BytesMut, change: &str, object: Value) {
        let shown = match self.form.accept {
            Accept::Object => object,
            Accept::PartialMetadata => table::partial_metadata(&object),
            Accept::Table => {
                let meta = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                let columns = !std::mem::replace(&mut self.form.columns_sent, true);
                table::render(&self.kind, &[object], &meta, self.form.include, columns)
            }
        };
        write_frame(piece, change, shown.to_string().as_bytes());
    }

    fn bookmark(&mut self, piece: &mut BytesMut, ends_initial: bool) {
        let (api_version, kind) = match self.form.accept {
            Accept::PartialMetadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
            Accept::Object | Accept::Table => (self.kind.api_version(), self.kind.kind.as_str()),
        };
        let mut meta = json!({ "resourceVersion": self.cursor.to_string()});
        if ends_initial {
            meta["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let bookmark = json!({ "kind": kind, "apiVersion": api_version, "metadata": meta });
        if self.form.accept == Accept::Table {
            self.write_value(piece, "BOOKMARK", bookmark);
        } else {
            write_frame(piece, "BOOKMARK", bookmark.to_string().as_bytes());
        }
    }
}

fn write_frame(piece: &mut BytesMut, change: &str, object: &[u8]) {
    piece.put_slice(b"{\"type\":\"");
    piece.put_slice(change.as_bytes());
    piece.put_slice(b"\",\"object\":");
    piece.put_slice(object);
    piece.put_slice(b"}\n");
}

/// A watch that cannot start is a watch with one event: an HTTP error would make clients ask the same again.
fn error_stream(error: &ApiError) -> Reply {
    let mut piece = BytesMut::new();
    write_frame(&mut piece, "ERROR", error.to_value().to_string().as_bytes());
    Reply::stream("application/json", Box::pin(futures::stream::once(async { piece.freeze() })))
}

/// `sendInitialEvents`, with the rules that bind it to `resourceVersionMatch`.
fn initial_events(call: &Call) -> ApiResult<Option<bool>> {
    let given = call.query.get("sendInitialEvents").is_some();
    let matching = call.query.text("resourceVersionMatch");
    let requires = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    match (given, matching) {
        (false, "") => Ok(None),
        (false, _) => {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            Err(invalid_list(vec![FieldError::forbidden(MATCH, detail)]))
        }
        (true, "NotOlderThan") => Ok(Some(call.query.flag("sendInitialEvents"))),
        (true, "") => Err(invalid_list(vec![FieldError::forbidden(MATCH, requires)])),
        (true, other) => {
            let supported = FieldError::not_supported(MATCH, &json!(other), &["NotOlderThan".to_owned()]);
            Err(invalid_list(vec![FieldError::forbidden(MATCH, requires), supported]))
        }
    }
}

/// Between 30 and 60 minutes, so that clients do not come back all at once.
fn default_timeout() -> u64 {
    let spread = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
    1800 + spread * 1800 / 255
}
