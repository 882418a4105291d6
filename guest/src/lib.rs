//! The test guest: the one process of a virtual machine that tests, the demo and benchmarks move about.
//!
//! It does what is asked over TCP and says what it sees on the serial line; `guest/README.md` has the protocol. It never writes to a
//! disk and keeps nothing over a restart. Its invariant: whatever it says about itself (addresses, rates, memory) it has just read or
//! measured, so a test may believe it.
//!
//! - [`boot`]: being process 1: mounts, modules, the power button, the end. [`options`]: what the kernel command line asks for.
//! - [`network`]: every NIC up and leased; on [`kernel`] (netlink), [`dhcp4`] and [`dhcp6`].
//! - [`services`]: the TCP ports; [`control`]: the protocol of one of them; [`outgoing`]: connections that the guest opens.
//! - [`memory`]: memory dirtied at a rate, filled and checked.
//! - [`serial`]: the lines on the serial console.

pub mod boot;
pub mod control;
pub mod dhcp4;
pub mod dhcp6;
pub mod kernel;
pub mod memory;
pub mod network;
pub mod options;
pub mod outgoing;
pub mod serial;
pub mod services;

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

pub use self::control::Power;

/// All that the guest is: shared by the services, the network and process 1.
#[derive(Debug)]
pub struct Guest {
    pub memory: memory::Memory,
    pub network: network::Network,
    pub outgoing: outgoing::Outgoing,
    pub serial: serial::Serial,
    pub power: Power,
}

/// What the guest sees of itself at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub uptime_ms: u64,
    pub nics: Vec<network::Nic>,
    pub dirty: Option<memory::Dirtying>,
    pub filled: Option<memory::Filled>,
    pub connections: Vec<outgoing::Connection>,
}

impl Guest {
    pub fn new(serial: serial::Serial, power: Power) -> Arc<Self> {
        Arc::new(Self {
            memory: memory::Memory::default(),
            network: network::Network::default(),
            outgoing: outgoing::Outgoing::default(),
            serial,
            power,
        })
    }

    /// Of the machine, by the kernel's clock.
    pub fn uptime_ms(&self) -> u64 {
        uptime_ms(&std::fs::read_to_string("/proc/uptime").unwrap_or_default()).unwrap_or_default()
    }

    pub fn report(&self) -> Report {
        Report {
            uptime_ms: self.uptime_ms(),
            nics: self.network.nics(),
            dirty: self.memory.dirtying(),
            filled: self.memory.filled(),
            connections: self.outgoing.connections(),
        }
    }
}

/// Seconds with two decimals, then more that is not for us.
fn uptime_ms(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 1000 + hundredths.parse::<u64>().ok()? * 10)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A lock whose holder panicked still guards the same value, and the guest must go on.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_of_the_kernel_is_read() {
        assert_eq!(super::uptime_ms("12.05 20.30\n"), Some(12_050));
        assert_eq!(super::uptime_ms(""), None);
    }
}
