//! What the launcher needs of a hypervisor. The program has libvirt behind it.
//!
//! Calls block. An implementation sees to it that its daemon runs: when it died it is started again, and the call goes on.

use std::error::Error;

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
}
