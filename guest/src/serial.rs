//! The serial line: one JSON object a line, `{"godwit-guest":{"event":…}}`.
//!
//! A thread writes; everyone else only hands it lines. A line that nobody reads must never hold up the guest: when the queue is full,
//! lines are dropped, and the next one that gets through says how many.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

const QUEUE: usize = 256;

#[derive(Debug)]
pub struct Serial {
    queue: SyncSender<Entry>,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// Answered when all before it is written.
    Flush(SyncSender<()>),
}

impl Serial {
    pub fn new(out: impl Write + Send + 'static) -> Self {
        let (queue, entries) = sync_channel(QUEUE);
        std::thread::spawn(move || write_all(out, &entries));
        Self { queue, dropped: AtomicU64::new(0) }
    }

    /// Says `event` with the members of `body`, which must be an object.
    pub fn say(&self, event: &str, body: &impl Serialize) {
        let line = line(event, body, self.dropped.swap(0, Ordering::Relaxed));
        if self.queue.try_send(Entry::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says that something went wrong; the guest goes on.
    pub fn complain(&self, text: &str) {
        self.say("error", &json!({ "text": text }));
    }

    /// Waits until what was said is on the line, but not for long.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.try_send(Entry::Flush(done)).is_ok() {
            // Nobody reads the line, or all is written: either way there is nothing more to wait for.
            let _ = wait.recv_timeout(Duration::from_secs(1));
        }
    }
}

fn line(event: &str, body: &impl Serialize, dropped: u64) -> String {
    let mut object = serde_json::Map::from_iter([("event".to_owned(), event.into())]);
    match serde_json::to_value(body) {
        Ok(Value::Object(members)) => object.extend(members),
        Ok(other) => drop(object.insert("value".to_owned(), other)),
        Err(cause) => drop(object.insert("unsaid".to_owned(), cause.to_string().into())),
    }
    if dropped > 0 {
        object.insert("dropped_before".to_owned(), dropped.into());
    }
    format!("{}\n", json!({ "godwit-guest": object }))
}

fn write_all(mut out: impl Write, entries: &Receiver<Entry>) {
    for entry in entries {
        match entry {
            // There is no other place to complain about a line that cannot be written.
            Entry::Line(line) => drop(out.write_all(line.as_bytes()).and_then(|()| out.flush())),
            Entry::Flush(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_object_with_the_event_first_named() {
        let line = line("lease", &json!({ "nic": "eth0" }), 0);
        assert_eq!(line, "{\"godwit-guest\":{\"event\":\"lease\",\"nic\":\"eth0\"}}\n");
    }

    #[test]
    fn a_reader_that_stands_still_costs_lines_and_they_are_counted() {
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.recv();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (release, gate) = sync_channel(0);
        let serial = Serial::new(Stuck(gate));
        for _ in 0..QUEUE * 2 {
            serial.say("report", &json!({}));
        }
        let dropped = serial.dropped.load(Ordering::Relaxed);
        assert!(dropped > 0 && dropped <= QUEUE as u64, "{dropped}");
        drop(release);
    }
}
