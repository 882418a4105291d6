//! What a handler tells a launcher.

use api::kubevirt::VirtualMachineInstance;
use serde::{Deserialize, Serialize};

use crate::MigrateOptions;

/// What a handler tells a launcher. The launcher answers with [`Event`](crate::Event)s, to every handler that is connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// The first thing that is said on a connection.
    Hello {
        /// The handler's [`VERSION`](crate::VERSION).
        version: u32,
    },
    /// Run this VM. A launcher runs one VM once: the same VM again changes nothing, another is refused.
    Start {
        /// The VM, with the MAC addresses of its vNICs in its spec or in its status.
        vmi: Box<VirtualMachineInstance>,
        /// What may execute the guest's instructions.
        #[serde(default)]
        accelerator: AcceleratorPolicy,
    },
    /// Make everything for this VM but the guest, which comes from another launcher. As with start: one VM once.
    PrepareTarget {
        /// The VM, as for start.
        vmi: Box<VirtualMachineInstance>,
        /// What executes the guest's instructions where it comes from.
        #[serde(default)]
        accelerator: AcceleratorPolicy,
    },
    /// Move the guest through the sockets of a migration to the launcher at their other end. The same move again changes
    /// nothing: how it stands is in [`Status::migration`](crate::Status).
    Migrate {
        /// Which, and how.
        options: Box<MigrateOptions>,
    },
    /// Give the move up; the guest stays here. It is too late once the guest has begun to run there.
    CancelMigration,
    /// The guest that has arrived here is gone from where it came from: let it run. Said when the source's launcher cannot say it
    /// itself; a second time changes nothing.
    TakeOver {
        /// A person paused it: so it stays.
        paused: bool,
    },
    /// Ask the guest to shut down, and switch it off if it has not done so in time.
    #[serde(rename_all = "camelCase")]
    Shutdown {
        /// How long the guest has.
        grace_seconds: u32,
    },
    /// Switch the guest off.
    Kill,
    /// Stop the guest's processors.
    Pause,
    /// Let them go on.
    Resume,
    /// Say where things stand.
    Query,
}

impl Command {
    /// Its name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Start { .. } => "start",
            Self::PrepareTarget { .. } => "prepare-target",
            Self::Migrate { .. } => "migrate",
            Self::CancelMigration => "cancel-migration",
            Self::TakeOver { .. } => "take-over",
            Self::Shutdown { .. } => "shutdown",
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Query => "query",
        }
    }
}

/// What may execute the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorPolicy {
    /// The processor if a guest really boots on it, which the launcher tries, else QEMU. What came of it is in
    /// [`Status::accelerator`](crate::Status): a handler remembers it for its node and asks for it by name next time.
    #[default]
    Probe,
    /// The processor.
    Kvm,
    /// QEMU.
    Tcg,
}
