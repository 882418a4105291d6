//! Memory that a migration has to carry: dirtied at a rate, or filled with a pattern that can be checked afterwards.
//!
//! At most one working set is dirtied and one fill held at a time; a new one replaces the old. Never takes more than is available:
//! process 1 that runs out of memory takes the machine with it.

mod dirty;
mod pace;
mod pattern;

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use self::dirty::Dirtier;
use self::pattern::Block;
use crate::lock;

/// What a page is to the machine, and what one touch makes dirty.
const PAGE: usize = 4096;
const PAGES_PER_MIB: u64 = 256;
/// Left for everything else.
const RESERVE_MIB: u64 = 16;

type Page = [u64; PAGE / 8];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dirty {
    pub mib_per_s: u64,
    pub working_set_mib: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    pub mib: u64,
    #[serde(default)]
    pub pattern: Pattern,
    /// Of the random pattern; 1 unless told.
    pub seed: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    #[default]
    Random,
    Zero,
}

/// What is asked for and what is achieved, over about the last second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dirtying {
    #[serde(flatten)]
    pub asked: Dirty,
    pub achieved_mib_per_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Filled {
    pub mib: u64,
    pub pattern: Pattern,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "there is no room for {asked} MiB: {available} MiB are available, of which {RESERVE_MIB} stay free"
    )]
    NoRoom { asked: u64, available: u64 },
    #[error("a working set of 0 MiB cannot be dirtied: ask for null to stop")]
    EmptyWorkingSet,
    #[error("nothing was filled: send a fill first")]
    NothingFilled,
    #[error("the memory differs from its pattern at byte {offset}")]
    Damaged { offset: u64 },
}

#[derive(Debug, Default)]
pub struct Memory {
    dirtier: Mutex<Option<Dirtier>>,
    block: Mutex<Option<Block>>,
    /// Apart from the block, so that a report never waits for a fill or a check.
    filled: Mutex<Option<Filled>>,
}

impl Memory {
    /// Dirties memory as asked from now on; `None` stops it and gives the memory back.
    pub fn dirty(&self, asked: Option<Dirty>) -> Result<(), Error> {
        let mut dirtier = lock(&self.dirtier);
        *dirtier = None;
        if let Some(asked) = asked {
            if asked.working_set_mib == 0 {
                return Err(Error::EmptyWorkingSet);
            }
            *dirtier = Some(Dirtier::start(asked, pages(asked.working_set_mib)?));
        }
        Ok(())
    }

    pub fn dirtying(&self) -> Option<Dirtying> {
        lock(&self.dirtier).as_ref().map(Dirtier::status)
    }

    pub fn fill(&self, asked: Fill) -> Result<Filled, Error> {
        let mut block = lock(&self.block);
        *block = None;
        *lock(&self.filled) = None;
        let filled = Filled { mib: asked.mib, pattern: asked.pattern, seed: asked.seed.unwrap_or(1) };
        *block = Some(Block::fill(pages(asked.mib)?, filled));
        *lock(&self.filled) = Some(filled);
        Ok(filled)
    }

    pub fn check(&self) -> Result<Filled, Error> {
        let block = lock(&self.block);
        block.as_ref().ok_or(Error::NothingFilled)?.check()
    }

    pub fn filled(&self) -> Option<Filled> {
        *lock(&self.filled)
    }
}

/// Pages that are really there, not only promised.
fn pages(mib: u64) -> Result<Vec<Page>, Error> {
    let available = available_mib(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default());
    let no_room = Error::NoRoom { asked: mib, available };
    if mib.saturating_add(RESERVE_MIB) > available {
        return Err(no_room);
    }
    let count = usize::try_from(mib * PAGES_PER_MIB).map_err(|_| no_room.clone())?;
    let mut pages = Vec::new();
    pages.try_reserve_exact(count).map_err(|_| no_room)?;
    pages.resize(count, [0; PAGE / 8]);
    Ok(pages)
}

fn available_mib(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_checks_and_a_second_fill_replaces_it() {
        let memory = Memory::default();
        assert_eq!(memory.check(), Err(Error::NothingFilled));
        let random = Fill { mib: 2, pattern: Pattern::Random, seed: Some(7) };
        let filled = memory.fill(random).unwrap();
        assert_eq!((memory.check(), memory.filled()), (Ok(filled), Some(filled)));
        memory.fill(Fill { mib: 1, pattern: Pattern::Zero, seed: None }).unwrap();
        assert_eq!(memory.check().map(|filled| filled.mib), Ok(1));
    }

    #[test]
    fn more_than_there_is_is_refused_with_the_numbers() {
        let asked = Fill { mib: 1 << 40, pattern: Pattern::Random, seed: None };
        let error = Memory::default().fill(asked).unwrap_err().to_string();
        assert!(error.starts_with("there is no room for 1099511627776 MiB: "), "{error}");
        assert_eq!(available_mib("MemTotal: 9 kB\nMemAvailable:   204800 kB\n"), 200);
    }

    #[test]
    fn dirtying_stops_when_told() {
        let memory = Memory::default();
        let asked = Dirty { mib_per_s: 1, working_set_mib: 1 };
        memory.dirty(Some(asked)).unwrap();
        assert_eq!(memory.dirtying().map(|dirtying| dirtying.asked), Some(asked));
        memory.dirty(None).unwrap();
        assert_eq!(memory.dirtying(), None);
        let empty = memory.dirty(Some(Dirty { mib_per_s: 1, working_set_mib: 0 }));
        assert_eq!(empty, Err(Error::EmptyWorkingSet));
    }
}
