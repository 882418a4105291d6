//! Whose turn it is: moves wait so that no network and no node has too many at a time, and each is told what it waits for.
//!
//! ```text
//!            turn to start                          turn to hand over
//!   Waiting ──────────────► Placing ─ pod runs ─► Placed ──────────────► Moving
//!            cluster and outbound limits             inbound limit
//! ```
//!
//! A move that has started holds its place in the cluster and at its source until it is over. Where it goes is known only once
//! its target pod has a node, so that limit is kept by the second turn. Order: priority, then age. A move that must wait for
//! its own node lets others of other nodes pass, so a slow node holds up nobody else; whoever is first in the order and
//! has room always goes, so with every move that ends another begins.

use std::collections::BTreeMap;

use api::kubevirt::{MigrationOptions, MigrationPriority};
use api::names::reasons;
use jiff::Timestamp;

/// How many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub cluster: u32,
    pub outbound: u32,
    pub inbound: u32,
}

impl Limits {
    pub fn of(options: &MigrationOptions) -> Self {
        Self {
            cluster: options.parallel_migrations_per_cluster,
            outbound: options.parallel_outbound_migrations_per_node,
            inbound: options.parallel_inbound_migrations_per_node,
        }
    }
}

/// How far a move is, as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It has nothing yet.
    Waiting,
    /// Its target pod is made.
    Placing,
    /// Its target pod runs.
    Placed,
    /// The handlers have it.
    Moving,
}

/// One move that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// UID of the migration.
    pub uid: String,
    /// Which VM: namespace and name.
    pub instance: String,
    pub priority: Option<MigrationPriority>,
    pub created: Timestamp,
    /// Node that is left, if it is known.
    pub source: Option<String>,
    /// Node that takes over, once it is known.
    pub target: Option<String>,
    pub stage: Stage,
}

impl Entry {
    /// First things first. What nobody gave a priority was asked for by a person.
    fn order(&self) -> (u8, Timestamp, &str) {
        let rank = match self.priority.unwrap_or(MigrationPriority::UserTriggered) {
            MigrationPriority::SystemCritical => 0,
            MigrationPriority::UserTriggered => 1,
            MigrationPriority::SystemMaintenance => 2,
        };
        (rank, self.created, &self.uid)
    }
}

/// Why a move waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// One word for programs.
    pub reason: &'static str,
    /// One sentence for people.
    pub message: String,
}

/// Whether it is a move's turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Go,
    Wait(Wait),
}

/// Every move that is not over.
#[derive(Clone, Debug)]
pub struct Queue {
    entries: Vec<Entry>,
    limits: Limits,
}

impl Queue {
    pub fn new(mut entries: Vec<Entry>, limits: Limits) -> Self {
        entries.sort_by(|one, other| one.order().cmp(&other.order()));
        Self { entries, limits }
    }

    /// Whether the move of this UID is not over.
    pub fn has(&self, uid: Option<&str>) -> bool {
        uid.is_some_and(|uid| self.entry(uid).is_some())
    }

    /// Another move of the same VM that this one must leave the VM to: one that has begun, or an older one.
    pub fn rival(&self, uid: &str) -> Option<&Entry> {
        let own = self.entry(uid)?;
        let first = |entry: &&Entry| {
            entry.instance == own.instance
                && entry.uid != own.uid
                && (std::cmp::Reverse(entry.stage), entry.created, &entry.uid)
                    < (std::cmp::Reverse(own.stage), own.created, &own.uid)
        };
        self.entries.iter().find(first)
    }

    /// Whether this move may make its target pod. One that is not in the queue may do nothing.
    pub fn start(&self, uid: &str) -> Turn {
        let begun = |entry: &&Entry| entry.stage > Stage::Waiting;
        let mut cluster = count(self.entries.iter().filter(begun));
        let mut outbound: BTreeMap<Option<&str>, u32> = BTreeMap::new();
        for entry in self.entries.iter().filter(begun) {
            *outbound.entry(entry.source.as_deref()).or_default() += 1;
        }
        let mut ahead = 0;
        for entry in self.entries.iter().filter(|entry| entry.stage == Stage::Waiting) {
            let leaving = outbound.entry(entry.source.as_deref()).or_default();
            let full = if cluster >= self.limits.cluster {
                let message = format!(
                    "{cluster} VMs move in the cluster, and no more than {} may",
                    self.limits.cluster
                );
                Some((reasons::CLUSTER_LIMIT, message))
            } else if entry.source.is_some() && *leaving >= self.limits.outbound {
                let node = entry.source.as_deref().unwrap_or_default();
                let message =
                    format!("{leaving} VMs leave node {node}, and no more than {} may", self.limits.outbound);
                Some((reasons::OUTBOUND_LIMIT, message))
            } else {
                None
            };
            let own = entry.uid == uid;
            match full {
                None if own => return Turn::Go,
                None => {
                    cluster += 1;
                    *leaving += 1;
                }
                Some((reason, message)) if own => return wait(reason, message, ahead),
                Some(_) => ahead += 1,
            }
        }
        unknown()
    }

    /// Whether this move, whose target pod runs, may be given to the handlers.
    pub fn hand_over(&self, uid: &str) -> Turn {
        let Some(own) = self.entry(uid) else { return unknown() };
        let Some(node) = own.target.as_deref() else { return unknown() };
        let there = |entry: &&Entry| entry.target.as_deref() == Some(node);
        let arriving = count(self.entries.iter().filter(there).filter(|entry| entry.stage == Stage::Moving));
        let mut before = self.entries.iter().filter(there).filter(|entry| entry.stage == Stage::Placed);
        let ahead = count(before.by_ref().take_while(|entry| entry.uid != uid));
        if arriving.saturating_add(ahead) < self.limits.inbound {
            return Turn::Go;
        }
        let message =
            format!("{arriving} VMs arrive at node {node}, and no more than {} may", self.limits.inbound);
        wait(reasons::INBOUND_LIMIT, message, ahead)
    }

    fn entry(&self, uid: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.uid == uid)
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

fn wait(reason: &'static str, message: String, ahead: u32) -> Turn {
    let message = if ahead == 0 { message } else { format!("{message}; {ahead} wait before this one") };
    Turn::Wait(Wait { reason, message })
}

fn unknown() -> Turn {
    wait(reasons::CLUSTER_LIMIT, "the migration is not in the queue yet".into(), 0)
}

#[cfg(test)]
mod tests;
