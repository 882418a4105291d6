//! Which part begins when: at most so many at a time, in the order in which they are given.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::parts::Part;
use crate::process;
use crate::record::{Done, Record};
use crate::show::Progress;

/// How often what runs is shown.
const TICK: Duration = Duration::from_secs(1);

/// Runs parts to their ends; those that the record says have passed are taken from there.
pub fn run_all(
    parts: Vec<Part>,
    at_once: usize,
    record: &mut Record,
    progress: &mut Progress,
) -> Result<Vec<Done>> {
    let mut ended = Vec::new();
    let mut waiting = VecDeque::new();
    for part in parts {
        match record.passed(&part.name) {
            Some(done) if part.may_be_resumed => ended.push(done.clone()),
            _ => waiting.push_back(part),
        }
    }
    let total = waiting.len();
    let logs = progress.logs().to_owned();
    let (sender, results) = mpsc::channel::<(String, Result<Done>)>();
    let mut running: BTreeMap<String, Instant> = BTreeMap::new();
    let mut finished = 0;
    while finished < total {
        while running.len() < at_once
            && let Some(part) = waiting.pop_front()
        {
            running.insert(part.name.clone(), Instant::now());
            let (sender, logs) = (sender.clone(), logs.clone());
            // The thread lives as long as the part: the kernel ends the part with the thread that started it.
            thread::Builder::new()
                .name(part.name.clone())
                .spawn(move || {
                    let done = process::run(&part, &logs);
                    // The receiver is gone if the runner itself has failed.
                    let _ = sender.send((part.name, done));
                })
                .context("starting a thread for a part")?;
        }
        match results.recv_timeout(TICK) {
            Ok((name, done)) => {
                let done = done.with_context(|| format!("running {name}"))?;
                running.remove(&name);
                finished += 1;
                record.add(&done)?;
                progress.ended(&done, finished, total);
                ended.push(done);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(error @ RecvTimeoutError::Disconnected) => return Err(error).context("waiting for parts"),
        }
        progress.tick(running.iter().map(|(name, since)| (name.as_str(), since.elapsed())));
    }
    Ok(ended)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]
mod tests {
    use super::*;
    use crate::process::tests::part;

    #[test]
    fn all_parts_run_and_never_more_than_may() {
        let logs = tempfile::tempdir().unwrap();
        let file = logs.path().join("order");
        let script = format!("echo begin >>{0}; echo end >>{0}", file.display());
        let parts = (0..8).map(|number| Part { name: format!("part {number}"), ..part(&script) }).collect();
        let (mut record, mut progress) = (Record::open(None).unwrap(), Progress::new(logs.path()));
        let done = run_all(parts, 2, &mut record, &mut progress).unwrap();
        assert!(done.len() == 8 && done.iter().all(|done| done.succeeded), "{done:?}");
        let order = std::fs::read_to_string(file).unwrap();
        let (mut now, mut most) = (0, 0);
        for line in order.lines() {
            now += if line == "begin" { 1 } else { -1 };
            most = most.max(now);
        }
        assert!(now == 0 && (1..=2).contains(&most), "{order}");
    }
}
