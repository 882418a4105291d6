//! How an owner comes to its addresses.
//!
//! ```text
//!  known ones ─► read ─┐
//!                      ▼
//!             ┌─► decide (crate addressing) ──refused──► undo what was made now ─► error
//!             │        │ choice
//!             │        ▼
//!             │   note in the journal ─► write each ──all written──► done
//!   learn ◄───┴─── outrun
//! ```
//!
//! The ledger knows only what was met on the way; an address of which nothing is known is taken for free, and the write tells.
//! After a few misses the whole network is read once, so that a full pool ends in an answer and not in a search.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use addressing::decision::{Choice, Refusal, Request, Start, Taking, Usage};
use addressing::ledger::Holding;
use addressing::{Ledger, Network, Pool, decide};
use api::godwit::AddressAllocation;
use sha2::{Digest as _, Sha256};

use crate::allocations::{Allocations, Held, Outcome, holding};
use crate::journal::{Entry, Record};
use crate::{Error, Owner};

/// Misses before the network is read as a whole.
const PROBES: u32 = 6;
/// Misses before it is given up: each means that another got an address, so this is seldom reached.
const ATTEMPTS: u32 = 500;
/// How many of those who hold a full pool are named.
const NAMED: usize = 6;

/// Who asks, for what.
pub(crate) struct Asked<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) owner: &'a Owner,
    pub(crate) wanted: &'a [IpAddr],
    /// Addresses that may be the owner's already.
    pub(crate) known: &'a [IpAddr],
    /// How long what is given now rests later. What rests now says itself for how long.
    pub(crate) rest_seconds: u32,
}

/// What was met on the way.
struct Search<'a, 'w> {
    api: &'a mut Allocations<'w>,
    asked: &'a Asked<'a>,
    ledger: Ledger<Owner>,
    objects: BTreeMap<IpAddr, AddressAllocation>,
    made: Vec<IpAddr>,
}

/// Gives the owner its addresses, one of each range, or none. `template` is what the journal notes, but for the addresses.
pub(crate) fn allocate(
    api: &mut Allocations<'_>,
    asked: &Asked<'_>,
    entry: &mut Entry,
    template: &Record,
) -> Result<Vec<Choice>, Error> {
    let mut search =
        Search { api, asked, ledger: Ledger::default(), objects: BTreeMap::new(), made: Vec::new() };
    for address in asked.known {
        search.learn(*address)?;
    }
    let (mut misses, mut whole) = (0, false);
    loop {
        if misses >= PROBES && !whole {
            search.learn_all()?;
            whole = true;
        }
        let start = Start::Spread(spread(asked.owner, misses));
        let request = Request { owner: asked.owner, wanted: asked.wanted, start };
        let choices = match decide(asked.pool, &search.ledger, &request, SystemTime::now()) {
            Ok(choices) => choices,
            // What was met is not all there is: who holds the rest, and whether it is so, the whole network says.
            Err(Refusal::Exhausted { .. }) if !whole => {
                search.learn_all()?;
                whole = true;
                continue;
            }
            Err(refusal) => {
                let error = explain(refusal, &search.ledger);
                search.undo(entry, template)?;
                return Err(error);
            }
        };
        entry.note(search.record(template, &choices))?;
        if search.write(&choices)? {
            // With the versions of the objects: DEL needs to ask nothing then.
            entry.note(search.record(template, &choices))?;
            return Ok(choices);
        }
        misses += 1;
        if misses >= ATTEMPTS {
            search.undo(entry, template)?;
            return Err(Error::Contended { attempts: misses });
        }
    }
}

impl Search<'_, '_> {
    /// Writes what is chosen; false: somebody was faster, and what there is now was learnt.
    fn write(&mut self, choices: &[Choice]) -> Result<bool, Error> {
        for choice in choices {
            let (owner, rest) = (&self.asked.owner.0, self.asked.rest_seconds);
            let known = self.objects.get(&choice.address);
            let outcome = match (choice.taking, known) {
                (Taking::Kept, Some(object)) if object.spec.owner.as_ref() == Some(owner) => continue,
                // Of a sandbox before this one, or at rest for long enough.
                (Taking::Kept | Taking::Rested, Some(object)) => self.api.take(object, owner, rest)?,
                _ => self.api.create((choice.address, choice.network.prefix_length()), owner, rest)?,
            };
            match outcome {
                Outcome::Done(object) => {
                    if choice.taking != Taking::Kept {
                        self.made.push(choice.address);
                    }
                    self.note(choice.address, Some(*object));
                }
                Outcome::Outrun => {
                    self.learn(choice.address)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn learn(&mut self, address: IpAddr) -> Result<(), Error> {
        let object = self.api.get(address)?;
        self.note(address, object);
        Ok(())
    }

    fn learn_all(&mut self) -> Result<(), Error> {
        for object in self.api.list()? {
            if let Ok(address) = object.spec.address.parse() {
                self.note(address, Some(object));
            }
        }
        Ok(())
    }

    fn note(&mut self, address: IpAddr, object: Option<AddressAllocation>) {
        if let Some(object) = object {
            self.ledger.note(address, holding(&object));
            self.objects.insert(address, object);
        } else {
            self.ledger.forget(address);
            self.objects.remove(&address);
        }
    }

    /// All or nothing: what was made in this call was never used, so it need not rest.
    fn undo(&mut self, entry: &mut Entry, template: &Record) -> Result<(), Error> {
        for address in std::mem::take(&mut self.made) {
            if let Some(held) = self.objects.get(&address).and_then(Held::of)
                && self.api.forget(&held)?
            {
                self.note(address, None);
            }
        }
        let left = self
            .ledger
            .owned_by(self.asked.owner)
            .filter_map(|address| Held::of(self.objects.get(&address)?));
        let record = Record { addresses: left.collect(), ..template.clone() };
        entry.note(record)
    }

    /// The journal's record of what is ours, or will be if we are not outrun.
    fn record(&self, template: &Record, choices: &[Choice]) -> Record {
        let chosen = choices.iter().map(|choice| {
            let ours = self
                .objects
                .get(&choice.address)
                .filter(|object| object.spec.owner.as_ref() == Some(&self.asked.owner.0));
            ours.and_then(Held::of).unwrap_or(Held {
                address: choice.address,
                prefix_length: choice.network.prefix_length(),
                uid: None,
                resource_version: None,
            })
        });
        Record { addresses: chosen.collect(), ..template.clone() }
    }
}

/// A number that depends on who asks and how often it missed: those who ask at once start far apart, and one that asks again
/// begins where it began.
fn spread(owner: &Owner, misses: u32) -> u128 {
    let mut hash = Sha256::new();
    hash.update(owner.key());
    hash.update(misses.to_be_bytes());
    let mut number = [0; 16];
    number.copy_from_slice(&hash.finalize()[..16]);
    u128::from_be_bytes(number)
}

fn explain(refusal: Refusal<Owner>, ledger: &Ledger<Owner>) -> Error {
    match refusal {
        Refusal::Exhausted { network, usage, .. } => exhausted(network, &usage, ledger),
        other => Error::Refused(Box::new(other)),
    }
}

/// Who holds a network that has no free address.
pub(crate) fn exhausted(network: Network, usage: &Usage, ledger: &Ledger<Owner>) -> Error {
    let first = usage.rested_at.and_then(|until| until.duration_since(SystemTime::now()).ok());
    let first = first.map(|wait| format!("; the first of them can be given in {} s", wait.as_secs() + 1));
    let summary = format!("{network} has no free address: {usage}{}", first.unwrap_or_default());
    let mut namespaces: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut named = Vec::new();
    let interval = network.interval();
    for (address, held) in ledger.within(&interval) {
        let Holding::Owned(owner) = held else { continue };
        let (pods, claims) = namespaces.entry(owner.namespace()).or_default();
        *(if owner.0.claim.is_some() { claims } else { pods }) += 1;
        if named.len() < NAMED {
            named.push(format!("{address} {owner}"));
        }
    }
    let counts: Vec<String> = (namespaces.iter())
        .map(|(namespace, (pods, claims))| {
            format!("namespace {namespace}: {pods} by pods, {claims} by claims")
        })
        .collect();
    let holders = format!("{}; among them: {}", counts.join(", "), named.join(", "));
    Error::Exhausted { summary, holders }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::godwit::{AddressOwner, ClaimReference, PodInterface};

    fn pod(name: &str) -> Owner {
        let pod = PodInterface {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            interface: "net1".into(),
            node_name: "node-1".into(),
            ..PodInterface::default()
        };
        Owner(AddressOwner { pod: Some(pod), claim: None })
    }

    #[test]
    fn a_full_pool_says_how_full_and_by_whom() {
        let claim = ClaimReference { namespace: "vms".into(), name: "web.blue".into(), uid: "c".into() };
        let claim = Owner(AddressOwner { pod: None, claim: Some(claim) });
        let holdings = [("10.0.0.1", pod("a")), ("10.0.0.2", claim)];
        let ledger: Ledger<Owner> = holdings
            .into_iter()
            .map(|(address, owner)| (address.parse().unwrap(), Holding::Owned(owner)))
            .collect();
        let usage = Usage { capacity: 2, taken: 2, resting: 0, rested_at: None };
        let error = exhausted("10.0.0.0/30".parse().unwrap(), &usage, &ledger);
        assert_eq!(
            error.to_string(),
            "10.0.0.0/30 has no free address: of 2 that can be given, 2 are taken and 0 are resting"
        );
        let details = error.details();
        for part in [
            "namespace default: 1 by pods, 0 by claims",
            "namespace vms: 0 by pods, 1 by claims",
            "10.0.0.1 pod default/a (interface net1, node node-1)",
            "10.0.0.2 claim vms/web.blue",
            "widen the range",
        ] {
            assert!(details.contains(part), "{part:?} is not in {details:?}");
        }
        assert_eq!(error.code(), crate::codes::EXHAUSTED);
    }

    #[test]
    fn one_owner_begins_where_it_began_and_others_elsewhere() {
        assert_eq!(spread(&pod("a"), 0), spread(&pod("a"), 0));
        assert_ne!(spread(&pod("a"), 0), spread(&pod("a"), 1));
        let starts: std::collections::BTreeSet<u128> =
            (0..1000).map(|number| spread(&pod(&number.to_string()), 0) % 100_000).collect();
        assert!(starts.len() > 980, "{} different starts of 1000", starts.len());
    }
}
