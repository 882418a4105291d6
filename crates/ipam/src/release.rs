//! How addresses become free again.
//!
//! Only what is still exactly this container's is released: a sandbox that was restarted may have taken it over, and a late
//! release must not take it away. An address of a claim stays the claim's. Repeating a release does no harm.

use std::time::SystemTime;

use crate::Error;
use crate::allocations::{Allocations, Held, Outcome};
use crate::journal::{Entry, Journal, Record};
use crate::wire::Wire;

/// How often a write is tried that others outrun.
const ATTEMPTS: u32 = 5;
/// How many forgotten releases a call catches up with: nobody should wait long for another's.
const CAUGHT_UP: usize = 16;

/// Frees everything that a record says is its container's.
pub(crate) fn release(wire: &mut Wire, record: &Record) -> Result<(), Error> {
    if record.owner.claim.is_some() {
        return Ok(());
    }
    let mut api = Allocations::of(wire, &record.network);
    for held in &record.addresses {
        one(&mut api, held, record)?;
    }
    Ok(())
}

fn one(api: &mut Allocations<'_>, held: &Held, record: &Record) -> Result<(), Error> {
    // The version that we wrote ourselves: if nobody has written since, it is ours and one request does.
    let mut known = held.resource_version.is_some().then(|| held.clone());
    for _ in 0..ATTEMPTS {
        let current = match known.take() {
            Some(known) => known,
            None => match api.get(held.address)? {
                Some(object) if object.spec.owner.as_ref() == Some(&record.owner) => {
                    let Some(current) = Held::of(&object) else { return Ok(()) };
                    current
                }
                // Free, at rest, or another's.
                _ => return Ok(()),
            },
        };
        let freed = if record.rest_seconds == 0 {
            api.forget(&current)?
        } else {
            matches!(api.rest(&current, SystemTime::now(), record.rest_seconds)?, Outcome::Done(_))
        };
        if freed {
            return Ok(());
        }
    }
    Err(Error::Contended { attempts: ATTEMPTS })
}

/// Frees what a file of the journal says, and removes the file.
pub(crate) fn entry(wire: &mut Wire, entry: Entry) -> Result<(), Error> {
    if let Some(record) = &entry.record {
        release(wire, record)?;
    }
    entry.remove()
}

/// Frees what earlier calls could not. The first failure ends it: the API server is most likely away.
pub(crate) fn catch_up(wire: &mut Wire, journal: &Journal) -> Result<(), Error> {
    for path in journal.released()?.into_iter().take(CAUGHT_UP) {
        if let Some(waiting) = Entry::try_lock(&path)? {
            entry(wire, waiting)?;
        }
    }
    Ok(())
}
