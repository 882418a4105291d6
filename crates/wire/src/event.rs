//! What a launcher tells the handler.
//!
//! A status is the whole truth at one moment, not a change: a handler that was away for a while has missed nothing once
//! it has the next one.

use std::{fmt, net::IpAddr};

use api::mac::MacAddress;
use serde::{Deserialize, Serialize};

use crate::{InterfaceName, MigrationReport, VnicName};

/// What a launcher tells every handler that is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The first thing that is said on a connection; a status follows.
    Hello {
        /// The launcher's [`VERSION`](crate::VERSION).
        version: u32,
    },
    /// Where things stand: after hello, after every change, and when asked.
    Status(Box<Status>),
    /// A command was not obeyed; nothing changed.
    Refused {
        /// Which: the name of the command, or `line` for what could not be read.
        command: String,
        /// Why, for people.
        reason: String,
    },
}

/// Where a launcher and its guest stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// In the life of the guest.
    pub phase: Phase,
    /// What executes the guest's instructions; none: not yet decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// Why it is not the processor, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator_reason: Option<String>,
    /// The vNICs, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceStatus>,
    /// The last move of the guest away from here, as far as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationReport>,
    /// How it ended: there from the moment on at which the guest is gone, while the launcher still tidies up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// What went wrong without an end to the guest, for people; the last few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Where a guest stands in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nobody has said yet what to run.
    #[default]
    Waiting,
    /// Its networks are being made.
    Preparing,
    /// It is being started.
    Starting,
    /// All is there but the guest, which comes from another launcher.
    ReadyForMigration,
    /// All of the guest is here, and stands still until it is known to have left where it came from.
    Arrived,
    /// It runs.
    Running,
    /// Its processors are stopped.
    Paused,
    /// It was asked to shut down.
    ShuttingDown,
    /// It is gone; its networks are being taken away.
    CleaningUp,
    /// All is gone; the launcher ends.
    Ended,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting for a VM",
            Self::Preparing => "making its networks",
            Self::Starting => "starting the guest",
            Self::ReadyForMigration => "waiting for the guest to come",
            Self::Arrived => "holding a guest that has not left its source",
            Self::Running => "running the guest",
            Self::Paused => "holding a paused guest",
            Self::ShuttingDown => "shutting the guest down",
            Self::CleaningUp => "cleaning up",
            Self::Ended => "at its end",
        })
    }
}

/// What executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU.
    Tcg,
}

impl Accelerator {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

/// A vNIC of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceStatus {
    /// Which.
    pub name: VnicName,
    /// The guest's Ethernet address.
    pub mac: MacAddress,
    /// Its interface in the pod.
    pub pod_interface: InterfaceName,
    /// The addresses that the guest is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Largest packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Well or not.
    pub outcome: Outcome,
    /// One word for programs: [`Ending::MIGRATED`], `GuestShutdown`, `Killed`, `Crashed`, `PreparationFailed`, `StartFailed`,
    /// `NeverStarted`, `NeverArrived`, `HypervisorLost`.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
}

impl Ending {
    /// The reason of a launcher whose guest goes on elsewhere: nothing has ended for the VM.
    pub const MIGRATED: &'static str = "Migrated";

    /// Whether the guest goes on elsewhere.
    pub fn is_migrated(&self) -> bool {
        self.reason == Self::MIGRATED
    }
}

/// Whether a guest ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It shut down, or was told to end.
    Succeeded,
    /// It crashed, or never ran.
    Failed,
}
