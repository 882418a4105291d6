//! Which part begins when: as many at a time as there are places, in the order that they are given in.

use std::collections::BTreeMap;
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

/// The next of the waiting parts that there is room for. A part that takes more places than there are runs alone.
fn next(waiting: &[usize], free: usize, places: usize) -> Option<usize> {
    waiting.iter().position(|part| (*part).min(places) <= free)
}

/// Runs parts to their ends; those that the record says have passed are taken from there.
pub fn run_all(
    parts: Vec<Part>,
    places: usize,
    record: &mut Record,
    progress: &mut Progress,
) -> Result<Vec<Done>> {
    let mut ended = Vec::new();
    let mut waiting = Vec::new();
    for part in parts {
        match record.passed(&part.name) {
            Some(done) if part.may_be_resumed => ended.push(done.clone()),
            _ => waiting.push(part),
        }
    }
    let total = waiting.len();
    let logs = progress.logs().to_owned();
    let (sender, results) = mpsc::channel::<(String, Result<Done>)>();
    let mut running: BTreeMap<String, (usize, Instant)> = BTreeMap::new();
    let mut finished = 0;
    while finished < total {
        loop {
            let free = places - running.values().map(|(places, _)| places).sum::<usize>();
            let sizes: Vec<_> = waiting.iter().map(|part| part.places).collect();
            let Some(place) = next(&sizes, free, places) else { break };
            let part = waiting.remove(place);
            running.insert(part.name.clone(), (part.places.min(places), Instant::now()));
            let (sender, logs) = (sender.clone(), logs.clone());
            // The thread lives as long as the part: the kernel ends the part with the thread that started it.
            thread::Builder::new()
                .name(part.name.clone())
                .spawn(move || {
                    let done = process::run(&part, &logs);
                    // Nobody waits for it when the runner itself has failed.
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
        progress.tick(running.iter().map(|(name, (_, since))| (name.as_str(), since.elapsed())));
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_parts_run_and_never_more_than_there_is_room_for(
            sizes in prop::collection::vec(1_usize..6, 0..30), places in 1_usize..5,
        ) {
            let (mut waiting, mut running) = (sizes.clone(), Vec::new());
            let mut begun = 0;
            while begun < sizes.len() {
                let used: usize = running.iter().sum();
                prop_assert!(used <= places);
                match next(&waiting, places - used, places) {
                    Some(place) => {
                        running.push(waiting.remove(place).min(places));
                        begun += 1;
                    }
                    // Whatever waits finds room when something ends.
                    None => prop_assert!(running.pop().is_some()),
                }
            }
        }
    }

    #[test]
    fn the_first_that_fits_begins() {
        assert_eq!(next(&[4, 2, 1], 2, 4), Some(1));
        assert_eq!(next(&[4, 3], 2, 4), None);
        assert_eq!(next(&[9], 4, 4), Some(0));
    }
}
