//! What a guest answers, asked from a place that reaches it: a node, a pod, or outside.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::engine::Place;
use crate::installation::Installation;

impl Installation {
    /// Whether the guest says the same.
    pub fn echo(&self, place: Place<'_>, address: &str, text: &str) -> bool {
        let output = self.try_shell(place, &format!("echo '{text}' | timeout 5 socat -t4 - TCP:{address}:7"));
        String::from_utf8_lossy(&output.stdout).trim() == text
    }

    /// Its answer to a request of the control protocol.
    pub fn control(&self, place: Place<'_>, address: &str, request: &str) -> Option<Value> {
        let ask = format!("echo '{request}' | timeout 5 socat -t4 - TCP:{address}:7002");
        let answer = serde_json::from_slice::<Value>(&self.try_shell(place, &ask).stdout).ok()?;
        answer["ok"].as_bool().filter(|ok| *ok).map(|_| answer)
    }

    /// How long the guest has been up.
    pub fn uptime(&self, place: Place<'_>, address: &str) -> Option<Duration> {
        let report = self.control(place, address, r#"{"report":{}}"#)?;
        report["report"]["uptime_ms"].as_u64().map(Duration::from_millis)
    }

    /// A connection on which the guest counts.
    pub fn counter(&self, place: Place<'_>, address: &str) -> Counter {
        let mut child = self
            .command(place, &format!("exec socat - TCP:{address}:7001"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "every 100ms").unwrap();
        let count: Arc<Mutex<Count>> = Arc::default();
        let (lines, counted) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&count));
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                counted.lock().unwrap().take(&line);
            }
            counted.lock().unwrap().closed = true;
        });
        Counter { child, count }
    }
}

/// A connection to a guest's counter. It ends with this.
pub struct Counter {
    child: Child,
    count: Arc<Mutex<Count>>,
}

#[derive(Debug, Default, Clone)]
struct Count {
    last: u64,
    heard: Option<Instant>,
    longest_silence: Duration,
    closed: bool,
}

impl Count {
    fn take(&mut self, line: &str) {
        let number: u64 = line.split(' ').next().unwrap().parse().unwrap();
        assert!(number >= self.last, "a guest that counts {number} after {} is another", self.last);
        let now = Instant::now();
        let silence = self.heard.map_or(Duration::ZERO, |before| now - before);
        (self.last, self.heard) = (number, Some(now));
        self.longest_silence = self.longest_silence.max(silence);
    }
}

impl Counter {
    /// Whether the guest goes on counting, on the same connection.
    pub fn goes_on(&self, lab: &Installation) {
        let before = self.count.lock().unwrap().last;
        lab.until_it_is("the guest counts on", Duration::from_secs(15), || {
            let now = self.count.lock().unwrap().clone();
            assert!(!now.closed, "the connection to the guest broke: {now:?}");
            now.last > before
        });
    }

    pub fn longest_silence(&self) -> Duration {
        self.count.lock().unwrap().longest_silence
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // It ends when nobody talks to it; what does not ends with the cluster.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
