//! Fan-out: one writer, many watchers. Every watcher must see every event, once and in order.
//!
//! A server may close the stream of a watcher that falls behind; the watcher then resumes after the last event it saw, as
//! Kubernetes clients do, and its lateness counts. A gap, a repetition or a disorder fails the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use crate::client::{Api, Connection, field};
use crate::objects::{self, Numbers};
use crate::sample::Sample;

/// The writer stops after this time, even if it has not written all its events: a slow server must not hold up the others.
const WRITE_LIMIT: Duration = Duration::from_secs(20);
/// A watcher that has not seen all by then has lost some.
const DELIVERY_LIMIT: Duration = Duration::from_secs(90);

/// A delivery's latency runs from the start of its write, so it includes the write.
pub async fn run(api: &Api, watchers: usize, events: usize, namespace: &str) -> Result<Sample> {
    let mut writer = api.connect().await?;
    writer.post("/api/v1/namespaces", objects::namespace(namespace)).await?;
    let collection = objects::collection(namespace);
    let list = writer.get(&format!("{collection}?limit=1")).await?;
    let from = field(&list, "resourceVersion")?.to_owned();

    let clock = Arc::new(Clock::new(events));
    let mut running = JoinSet::new();
    for watcher in Watcher::open_all(api, watchers, &collection, &from).await? {
        running.spawn(watcher.run(Arc::clone(&clock)));
    }
    let start = Instant::now();
    write(&mut writer, &collection, &clock).await?;
    let received = tokio::time::timeout(DELIVERY_LIMIT, running.join_all()).await;
    let received = received.with_context(|| {
        let (seen, due) = (clock.delivered.load(Ordering::Relaxed), watchers * (clock.last() + 1));
        format!("{seen} of {due} deliveries came within {DELIVERY_LIMIT:?}")
    })?;
    let elapsed = start.elapsed();
    let mut latencies = Vec::with_capacity(watchers * events);
    let mut resumed = 0;
    for watcher in received {
        let (seen, times) = watcher?;
        latencies.extend(seen);
        resumed += times;
    }
    if clock.last() + 1 < events {
        eprintln!("    cut after {} of {events} events: {WRITE_LIMIT:?} had passed", clock.last() + 1);
    }
    if resumed > 0 {
        eprintln!("    {resumed} watchers were closed by the server and resumed");
    }
    Ok(Sample::new(latencies, elapsed))
}

/// Creates an object, changes it, creates the next one, …: each write as soon as the one before is acknowledged.
async fn write(connection: &mut Connection, collection: &str, clock: &Clock) -> Result<()> {
    let mut version = String::new();
    let start = Instant::now();
    for number in 0..clock.events() {
        let name = format!("o-{}", number / 2);
        if start.elapsed() > WRITE_LIMIT {
            clock.last.store(number, Ordering::Release);
        }
        clock.write_starts(number);
        let answer = if number % 2 == 0 {
            connection.post(collection, objects::object(&name, number)).await?
        } else {
            let object = objects::replacement(&name, &version, number);
            connection.put(&format!("{collection}/{name}"), object).await?
        };
        if number == clock.last() {
            break;
        }
        field(&answer, "resourceVersion")?.clone_into(&mut version);
    }
    Ok(())
}

/// When each write began, and which was the last: set before the write, so whoever sees an event can ask.
struct Clock {
    epoch: Instant,
    starts: Vec<AtomicU64>,
    last: AtomicUsize,
    delivered: AtomicUsize,
}

impl Clock {
    fn new(events: usize) -> Self {
        let starts = (0..events).map(|_| AtomicU64::new(0)).collect();
        let last = AtomicUsize::new(events.saturating_sub(1));
        Self { epoch: Instant::now(), starts, last, delivered: AtomicUsize::new(0) }
    }

    fn events(&self) -> usize {
        self.starts.len()
    }

    fn last(&self) -> usize {
        self.last.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn write_starts(&self, number: usize) {
        self.starts[number].store(self.now(), Ordering::Release);
    }

    fn since_write(&self, number: usize) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(self.starts[number].load(Ordering::Acquire)))
    }
}

struct Watcher {
    api: Api,
    collection: String,
    stream: Incoming,
    /// Keeps the connection open.
    connection: Connection,
    /// The version of the last event seen.
    version: String,
    resumed: usize,
}

impl Watcher {
    /// Some at a time: a handshake costs both sides processor time, and a thousand at once would overflow the backlog.
    async fn open_all(api: &Api, count: usize, collection: &str, from: &str) -> Result<Vec<Self>> {
        let mut watchers = Vec::with_capacity(count);
        let mut opening = JoinSet::new();
        for started in 0..count {
            let (api, collection, from) = (api.clone(), collection.to_owned(), from.to_owned());
            opening.spawn(async move {
                let (connection, stream) = open(&api, &collection, &from).await?;
                anyhow::Ok(Self { api, collection, stream, connection, version: from, resumed: 0 })
            });
            if started >= 32 {
                watchers.extend(opening.join_next().await.transpose()?.transpose()?);
            }
        }
        for watcher in opening.join_all().await {
            watchers.push(watcher?);
        }
        Ok(watchers)
    }

    /// The latency of each event, in order, and how often the stream was resumed.
    async fn run(mut self, clock: Arc<Clock>) -> Result<(Vec<Duration>, usize)> {
        let numbers = Numbers::new();
        let mut latencies = Vec::with_capacity(clock.events());
        let mut lines = Lines::default();
        while latencies.len() <= clock.last() {
            let Some(chunk) = self.chunk().await else {
                self.resume().await?;
                lines = Lines::default();
                continue;
            };
            let received = latencies.len();
            lines.feed(&chunk, |line| {
                let Some(number) = numbers.first(line) else {
                    return not_ours(line);
                };
                ensure!(number == latencies.len(), "event {number} came where {} was due", latencies.len());
                latencies.push(clock.since_write(number));
                field(line, "resourceVersion")?.clone_into(&mut self.version);
                Ok(())
            })?;
            clock.delivered.fetch_add(latencies.len() - received, Ordering::Relaxed);
        }
        Ok((latencies, self.resumed))
    }

    /// The next piece of the stream; none when the server has closed it.
    async fn chunk(&mut self) -> Option<Bytes> {
        self.stream.frame().await?.ok()?.into_data().ok()
    }

    async fn resume(&mut self) -> Result<()> {
        (self.connection, self.stream) = open(&self.api, &self.collection, &self.version).await?;
        self.resumed += 1;
        Ok(())
    }
}

/// A server may put objects of its own into a new namespace; but an error ends a watch.
fn not_ours(event: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(event);
    ensure!(!text.contains(r#""type":"ERROR""#), "the watch failed: {text}");
    Ok(())
}

async fn open(api: &Api, collection: &str, from: &str) -> Result<(Connection, Incoming)> {
    let mut connection = api.connect().await?;
    let path = format!("{collection}?watch=1&resourceVersion={from}&timeoutSeconds=600");
    let response = connection.open(Method::GET, &path, "", Bytes::new()).await?;
    Ok((connection, response.into_body()))
}

/// Cuts a stream into lines. Most chunks are whole lines, and those are not copied.
#[derive(Default)]
struct Lines {
    unfinished: Vec<u8>,
}

impl Lines {
    fn feed(&mut self, chunk: &[u8], mut line: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            if self.unfinished.is_empty() {
                line(&rest[..end])?;
            } else {
                self.unfinished.extend_from_slice(&rest[..end]);
                line(&self.unfinished)?;
                self.unfinished.clear();
            }
            rest = &rest[end + 1..];
        }
        self.unfinished.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_are_whole_however_the_stream_is_cut() {
        let text = b"one\ntwo\nthree\n";
        for cut in 0..text.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for chunk in [&text[..cut], &text[cut..]] {
                let keep = |line: &[u8]| {
                    seen.push(line.to_vec());
                    Ok(())
                };
                lines.feed(chunk, keep).unwrap();
            }
            assert_eq!(seen, [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
        }
    }
}
