//! A move of the guest to another launcher: what the source's launcher is told of it, and what it tells.
//!
//! The sockets are in [`MIGRATION_SOCKETS`](crate::MIGRATION_SOCKETS) and are named after the instance and the channel, on both sides
//! alike: where the source's QEMU connects, the target's listens.

use api::kubevirt::{MigrationMode, MigrationOptions, ProgressSample};
use serde::{Deserialize, Serialize};

/// How a guest is to move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MigrateOptions {
    /// UID of the migration.
    pub uid: String,
    /// What the names of its sockets begin with: see [`MigrateOptions::socket`].
    pub sockets: String,
    /// What was settled for this move.
    pub settings: MigrationOptions,
}

impl MigrateOptions {
    /// The name of the socket of a channel of the move of an instance.
    pub fn socket(instance: &str, channel: u16) -> String {
        // libvirt's own calls are channel 0, and came before channels had numbers.
        if channel == 0 {
            format!("{instance}-source.sock")
        } else {
            format!("{instance}-{channel}-source.sock")
        }
    }
}

/// What the launcher of the source tells the one of the target. A guest that has arrived runs only once it is known to have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "departure", rename_all = "kebab-case")]
pub enum Departure {
    /// The guest is still here. It changes nothing, and keeps the connection in use.
    Pending,
    /// The guest is gone from here, and cannot come back.
    Gone {
        /// A person paused it: so it stays.
        paused: bool,
    },
}

/// How a move stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    /// UID of the migration.
    pub uid: String,
    /// In the life of the move.
    pub phase: MigrationPhase,
    /// How the guest moves at present.
    pub mode: MigrationMode,
    /// Why it failed or was given up, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far it is; which network it takes is the handler's to know.
    #[serde(default)]
    pub sample: ProgressSample,
}

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationPhase {
    /// The guest is on its way, and runs here.
    Running,
    /// It is there, and not here: nothing can run here any more.
    Completed,
    /// It runs here, and not there.
    Failed,
    /// As failed, because somebody asked for it.
    Cancelled,
}

impl MigrationPhase {
    /// Whether nothing more happens to it.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Running)
    }
}
