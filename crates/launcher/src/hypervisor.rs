//! What the launcher needs of a hypervisor. The program has libvirt behind it.
//!
//! Calls block. An implementation sees to it that its daemon runs: when it died it is started again, and the call goes on.

use std::error::Error;
use std::path::Path;

use api::kubevirt::ProgressSample;
use wire::MigrateOptions;

/// User and group that QEMU runs as, by number: the launcher's image need not know it. KubeVirt's, so that files that were its stay
/// readable.
pub const QEMU_USER: u32 = 107;

/// Something that the hypervisor did not do.
#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
pub struct HypervisorError {
    /// What it was to do: "starting domain default_testvm".
    pub operation: String,
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl HypervisorError {
    pub fn new(operation: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { operation: operation.into(), source: source.into() }
    }
}

/// Where a domain stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// There is none: it has not come yet, or did not stay.
    Absent,
    /// It stands still because it moves: it does not run here yet, or not any more.
    Moving,
    /// It runs at another hypervisor.
    Migrated,
    Running,
    Paused,
    /// The guest shut down.
    ShutDown,
    /// It was switched off.
    Destroyed,
    /// It, or the hypervisor under it, died; with what is known of it.
    Crashed(String),
}

/// A hypervisor with at most one domain.
pub trait Hypervisor: Send + Sync + 'static {
    /// Makes a network.
    fn create_network(&self, document: &str) -> Result<(), HypervisorError>;
    /// Takes a network away; one that is not there is well gone.
    fn destroy_network(&self, name: &str) -> Result<(), HypervisorError>;
    /// Makes the domain and starts it.
    fn start(&self, document: &str, paused: bool) -> Result<(), HypervisorError>;
    /// Presses the power button.
    fn press_power_button(&self) -> Result<(), HypervisorError>;
    /// Switches the domain off; one that is off is well off.
    fn kill(&self) -> Result<(), HypervisorError>;
    fn pause(&self) -> Result<(), HypervisorError>;
    fn resume(&self) -> Result<(), HypervisorError>;
    fn state(&self) -> Result<DomainState, HypervisorError>;
    /// Another hypervisor will bring a domain of this name.
    fn expect(&self, domain: &str);
    /// The process that runs the domain.
    fn process(&self) -> Result<u32, HypervisorError>;
    /// Moves the domain, with these disks of it, through the sockets in this directory, and answers when it is gone, or
    /// stays. Every other call is answered meanwhile. It arrives paused, unless it may move by post-copy.
    fn migrate(
        &self,
        options: &MigrateOptions,
        disks: Vec<String>,
        sockets: &Path,
    ) -> Result<(), HypervisorError>;
    /// How far the move is; none: there is none.
    fn progress(&self) -> Result<Option<ProgressSample>, HypervisorError>;
    /// How the last move went that came to its end; none: there was none.
    fn summary(&self) -> Result<Option<ProgressSample>, HypervisorError>;
    /// Has the move that is under way count on so many bytes a second when it decides how much may be left to send while the guest stands
    /// still; 0: on what it thinks. One that has just begun counts on [`migration::Pace::BEGINNING`].
    fn count_on(&self, bytes_per_second: u64) -> Result<(), HypervisorError>;
    /// Lets the domain run at its target, wherever its memory is.
    fn start_post_copy(&self) -> Result<(), HypervisorError>;
    /// Gives the move up.
    fn cancel_migration(&self) -> Result<(), HypervisorError>;
}
