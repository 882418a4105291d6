//! The migrations that a node expects as their target: the usual answer to "may this connection come in?".
//!
//! A registration is a door with a guest list of one. It opens with [`Registrations::register`] and closes when the guard is
//! dropped: whoever comes later is a stranger. Connections that are open then go on to their end; [`Registration::cut`] ends
//! them at once.
//!
//! Without TLS a token stands in for the certificate. It is good for every connection of its registration, because libvirt opens
//! several in parallel, but only from the source's address, only for the registered channels, and only while the guard lives.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use identity::Member;

use crate::authorise::{Authorise, Destination, Proof, Refusal};
use crate::counters::{Counters, Ledger};
use crate::route::{Channel, Migration, Route};
use crate::token::Token;

/// How the source of a migration is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// By the name in its certificate.
    Certificate(Member),
    /// Without TLS: by the token that it was given, and its address.
    Token { token: Token, address: IpAddr },
}

#[derive(Debug, thiserror::Error)]
#[error(
    "migration {migration} is registered already; its first registration must end before a second one can begin"
)]
pub struct AlreadyRegistered {
    pub migration: Migration,
}

/// All registrations of a listener. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Registrations {
    entries: Arc<Mutex<HashMap<Migration, Arc<Entry>>>>,
    ledger: Ledger,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    channels: BTreeMap<Channel, Destination>,
}

impl Registrations {
    /// Those whose bytes are counted there too.
    pub fn counted_in(ledger: &Ledger) -> Self {
        Self { ledger: ledger.clone(), ..Self::default() }
    }

    /// How many doors are open.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Lets the source of a migration connect to these unix sockets, until the guard is dropped.
    pub fn register(
        &self,
        migration: Migration,
        source: Source,
        channels: impl IntoIterator<Item = (Channel, PathBuf)>,
    ) -> Result<Registration, AlreadyRegistered> {
        let counted = |channel| self.ledger.counters(channel);
        let channels = channels
            .into_iter()
            .map(|(channel, path)| (channel, Destination::new(path).counted(counted(channel))))
            .collect();
        let entry = Arc::new(Entry { source, channels });
        let mut entries = self.lock();
        if entries.contains_key(&migration) {
            return Err(AlreadyRegistered { migration });
        }
        entries.insert(migration.clone(), Arc::clone(&entry));
        drop(entries);
        Ok(Registration { registrations: self.clone(), migration, entry })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Migration, Arc<Entry>>> {
        // Every change is one call on the map: it is whole whatever panicked.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Authorise for Registrations {
    fn authorise(&self, proof: &Proof<'_>, route: &Route) -> Result<Destination, Refusal> {
        let entry = self.lock().get(&route.migration).cloned().ok_or(Refusal::UnknownMigration)?;
        match (proof, &entry.source) {
            (Proof::Certificate(member), Source::Certificate(source)) if *member == source => {}
            (Proof::Token { token, address }, Source::Token { token: ours, address: source }) => {
                if *token != ours {
                    return Err(Refusal::Token);
                }
                if address != source {
                    return Err(Refusal::OtherAddress);
                }
            }
            _ => return Err(Refusal::OtherSource),
        }
        entry.channels.get(&route.channel).cloned().ok_or(Refusal::UnknownChannel)
    }
}

/// An open door. Dropping it closes the door.
#[derive(Debug)]
#[must_use = "dropping a registration ends it"]
pub struct Registration {
    registrations: Registrations,
    migration: Migration,
    entry: Arc<Entry>,
}

impl Registration {
    pub fn migration(&self) -> &Migration {
        &self.migration
    }

    /// What has moved on each channel so far.
    pub fn counters(&self) -> impl Iterator<Item = (Channel, &Counters)> {
        self.entry.channels.iter().map(|(channel, destination)| (*channel, &*destination.counters))
    }

    /// Ends every connection of the migration that is open now.
    pub fn cut(&self) {
        for destination in self.entry.channels.values() {
            destination.lines.cut();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registrations.lock().remove(&self.migration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(migration: &str, channel: Channel) -> Route {
        Route::new(Migration::new(migration).unwrap(), channel)
    }

    fn member(node: &str) -> Member {
        Member::new("alaska", "virt-handler", node).unwrap()
    }

    #[test]
    fn only_the_recorded_source_comes_in_and_only_while_the_guard_lives() {
        let registrations = Registrations::default();
        let memory = route("m1", Channel::MEMORY);
        let ask = |node: &str, route: &Route| {
            registrations.authorise(&Proof::Certificate(&member(node)), route).map(|there| there.path)
        };
        assert_eq!(ask("node-1", &memory), Err(Refusal::UnknownMigration));
        let source = Source::Certificate(member("node-1"));
        let channels = [(Channel::MEMORY, PathBuf::from("/memory"))];
        let guard =
            registrations.register(memory.migration.clone(), source.clone(), channels.clone()).unwrap();
        assert!(registrations.register(memory.migration.clone(), source, channels).is_err());
        assert_eq!(ask("node-1", &memory), Ok("/memory".into()));
        assert_eq!(ask("node-2", &memory), Err(Refusal::OtherSource));
        assert_eq!(ask("node-1", &route("m1", Channel::RPC)), Err(Refusal::UnknownChannel));
        let token = Token::generate().unwrap();
        let proof = Proof::Token { token: &token, address: [192, 0, 2, 1].into() };
        assert_eq!(registrations.authorise(&proof, &memory).err(), Some(Refusal::OtherSource));
        drop(guard);
        assert_eq!(ask("node-1", &memory), Err(Refusal::UnknownMigration));
    }

    #[test]
    fn a_token_is_bound_to_its_migration_and_to_the_address_of_the_source() {
        let registrations = Registrations::default();
        let (token, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        let (here, there) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 9]));
        let channels = [(Channel::MEMORY, PathBuf::from("/memory"))];
        let memory = route("m1", Channel::MEMORY);
        let _guards = [("m1", &token), ("m2", &other)].map(|(migration, token)| {
            let source = Source::Token { token: token.clone(), address: here };
            registrations.register(Migration::new(migration).unwrap(), source, channels.clone()).unwrap()
        });
        let ask = |token, address| registrations.authorise(&Proof::Token { token, address }, &memory).err();
        assert_eq!(ask(&token, here), None);
        assert_eq!(ask(&token, here), None, "for each of the parallel connections");
        assert_eq!(ask(&other, here), Some(Refusal::Token), "the token of another migration");
        assert_eq!(ask(&token, there), Some(Refusal::OtherAddress));
        let proof = Proof::Certificate(&member("node-1"));
        assert_eq!(registrations.authorise(&proof, &memory).err(), Some(Refusal::OtherSource));
    }
}
