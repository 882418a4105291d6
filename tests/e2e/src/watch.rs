//! Where a guest runs, seen from outside: by the processes of its hypervisors, and by what it says itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::json;

use crate::engine::Engine;
use crate::installation::Installation;

/// From the end of a move until nothing is left of its other side.
const SETTLED: Duration = Duration::from_mins(4);

/// The guest, as it was when it was last seen.
#[derive(Default)]
pub struct Guest {
    uptime: Duration,
}

impl Guest {
    /// It runs at one place, where the instance says, with its memory, and was never started again.
    pub fn is_well(&mut self, lab: &Installation, watch: &Watch) {
        lab.until_it_is("one launcher is left, and its node is the instance's", SETTLED, || {
            let node = lab.node_of("traveller");
            matches!(&lab.launchers()[..], [(_, on)] if *on == node)
        });
        lab.until_it_is("one QEMU is left, and its guest runs", SETTLED, || watch.runs());
        watch.never_twice();
        assert_eq!(lab.phase("traveller"), "Running");
        let checked = lab.ask(&json!({ "check": {} }));
        assert_eq!(checked["ok"], json!(true), "{checked}");
        let report = lab.ask(&json!({ "report": {} }));
        let uptime = Duration::from_millis(report["report"]["uptime_ms"].as_u64().unwrap());
        assert!(uptime > self.uptime, "it was started again: {uptime:?} after {:?}", self.uptime);
        self.uptime = uptime;
    }
}

/// Looks all the while which QEMU of the cluster has its guest run, by the time that its virtual processors take.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    /// Of each process: ticks of its virtual processors.
    running: HashMap<u32, u64>,
    /// The one that ran last.
    last: Option<u32>,
    /// Those whose guest had gone on in another.
    left: Vec<u32>,
    twice: Option<String>,
}

/// Of the kernel's clock, a hundred a second. To be made, or to load a guest's state, takes a virtual processor less.
const RUNS: u64 = 20;

impl Watch {
    pub fn start(lab: &Installation) -> Self {
        let engine = lab.engine();
        let (seen, end) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let (see, until) = (Arc::clone(&seen), Arc::clone(&end));
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                see.lock().unwrap().look(&*engine);
                thread::sleep(Duration::from_millis(100));
            }
        });
        Self { seen, end, thread: Some(thread) }
    }

    /// Whether the only one that is left has its guest run.
    fn runs(&self) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.running.len() == 1 && seen.last.is_some_and(|last| seen.running.contains_key(&last))
    }

    fn never_twice(&self) {
        let twice = self.seen.lock().unwrap().twice.clone();
        assert_eq!(twice, None);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Seen {
    fn look(&mut self, engine: &dyn Engine) {
        let now = machines(engine);
        self.running.retain(|process, _| now.contains_key(process));
        for (process, ticks) in now {
            let before = *self.running.entry(process).or_insert(ticks);
            if ticks < before + RUNS {
                continue;
            }
            self.running.insert(process, ticks);
            if self.left.contains(&process) {
                let text = format!("process {process} ran again after {:?} had run", self.last);
                self.twice.get_or_insert(text);
            }
            if self.last != Some(process) {
                self.left.extend(self.last.replace(process));
            }
        }
    }
}

/// Every QEMU of the cluster, with what its virtual processors have taken.
fn machines(engine: &dyn Engine) -> HashMap<u32, u64> {
    let all = engine.machine_processes("qemu-system").into_iter();
    all.map(|process| (process, ticks(process).unwrap_or_default())).collect()
}

fn ticks(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let of = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(") ")?;
        let mut times = rest.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
        name.contains("(CPU ").then(|| times.next().unwrap_or(0) + times.next().unwrap_or(0))
    };
    Some(threads.filter_map(of).sum())
}
