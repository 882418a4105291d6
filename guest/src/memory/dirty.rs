//! A thread that makes memory dirty at a rate: one word a page, page after page through the working set, a new value each round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pace::Pace;
use super::{Dirty, Dirtying, PAGES_PER_MIB, Page};
use crate::lock;

const TICK: Duration = Duration::from_millis(5);
/// Over how long the achieved rate is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Dropping it ends the thread and gives the memory back.
#[derive(Debug)]
pub struct Dirtier {
    asked: Dirty,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    achieved: Mutex<f64>,
}

impl Dirtier {
    pub fn start(asked: Dirty, pages: Vec<Page>) -> Self {
        let shared = Arc::new(Shared::default());
        let seen = Arc::clone(&shared);
        let pace = Pace::new(asked.mib_per_s.saturating_mul(PAGES_PER_MIB));
        let thread = std::thread::spawn(move || touch(pages, pace, &seen));
        Self { asked, shared, thread: Some(thread) }
    }

    pub fn status(&self) -> Dirtying {
        Dirtying { asked: self.asked, achieved_mib_per_s: *lock(&self.shared.achieved) }
    }
}

impl Drop for Dirtier {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and if it did there is nothing left to end.
            let _ = thread.join();
        }
    }
}

fn touch(mut pages: Vec<Page>, mut pace: Pace, shared: &Shared) {
    let start = Instant::now();
    let (mut next, mut round) = (0, 1);
    let (mut window, mut touched) = (start, 0_u64);
    while !shared.stop.load(Ordering::Relaxed) {
        let due = pace.due(start.elapsed());
        for _ in 0..due {
            pages[next][0] = round;
            next += 1;
            if next == pages.len() {
                (next, round) = (0, round + 1);
            }
        }
        // Nobody reads the pages; the writes must happen all the same.
        std::hint::black_box(&mut pages);
        touched += due;
        if window.elapsed() >= WINDOW {
            *lock(&shared.achieved) = mib_per_s(touched, window.elapsed());
            (window, touched) = (Instant::now(), 0);
        }
        std::thread::sleep(TICK);
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate for people, of counts far below 2^52")]
fn mib_per_s(pages: u64, time: Duration) -> f64 {
    let rate = pages as f64 / PAGES_PER_MIB as f64 / time.as_secs_f64();
    (rate * 10.0).round() / 10.0
}
