//! The hypervisor by libvirt: the only file that knows it.
//!
//! One connection, behind a lock. A call that finds it broken sees to it that the daemon runs, connects anew and is made once more; what
//! was done already when the connection broke is then found done. A move takes long, so it has a connection of its own.

mod migration;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::kubevirt::ProgressSample;
use launcher::hypervisor::{DomainState, Hypervisor, HypervisorError};
use tracing::{info, warn};
use virt::connect::Connect;
use virt::domain::{
    Domain, DomainPausedReason as Paused, DomainShutoffReason, DomainState as State,
    DomainStateReason as Reason,
};
use virt::enumutil::Enum;
use virt::error::{Error, ErrorNumber, clear_error_callback};
use virt::sys;
use wire::MigrateOptions;

use crate::daemon::Daemon;

const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(50);

pub struct Libvirt {
    inner: Mutex<Inner>,
}

struct Inner {
    daemon: Daemon,
    connection: Option<Connect>,
    /// The name of the one domain.
    domain: Option<String>,
}

impl Libvirt {
    /// Starts the daemon and connects.
    pub fn start(directory: &Path, private: &Path) -> anyhow::Result<Self> {
        // Errors are returned; libvirt would also print them.
        clear_error_callback();
        let mut inner =
            Inner { daemon: Daemon::configure(directory, private)?, connection: None, domain: None };
        inner.connect()?;
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Ends the daemon.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.connection = None;
        inner.daemon.stop();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        operation: impl Into<String>,
        work: impl Fn(&Connect) -> Result<T, Error>,
    ) -> Result<T, HypervisorError> {
        self.lock().with(operation.into(), work)
    }

    fn with_domain<T>(
        &self,
        operation: &str,
        work: impl Fn(&Domain) -> Result<T, Error>,
    ) -> Result<T, HypervisorError> {
        let mut inner = self.lock();
        let Some(name) = inner.domain.clone() else {
            return Err(HypervisorError::new(operation, "there is no domain"));
        };
        inner
            .with(format!("{operation} {name}"), |connection| work(&connection.lookup_domain_by_name(&name)?))
    }
}

/// The daemon at a socket.
fn uri(socket: &Path) -> String {
    format!("qemu+unix:///system?socket={}", socket.display())
}

impl Inner {
    /// A daemon that is just dying still takes connections; so one that breaks at once is tried again.
    fn connect(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            self.daemon.ensure()?;
            match Connect::open(Some(&uri(self.daemon.socket()))) {
                Ok(connection) => {
                    info!(version = connection.lib_version().unwrap_or_default(), "connected to libvirtd");
                    self.connection = Some(connection);
                    return Ok(());
                }
                Err(error) if begun.elapsed() > CONNECT_DEADLINE => {
                    return Err(error).context("connecting to libvirtd");
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    /// Does the work on a connection that works.
    fn with<T>(
        &mut self,
        operation: String,
        work: impl Fn(&Connect) -> Result<T, Error>,
    ) -> Result<T, HypervisorError> {
        if let Some(connection) = &self.connection {
            match work(connection) {
                Err(error) if !connection.is_alive().unwrap_or(false) => {
                    warn!(%error, "the connection to libvirtd broke");
                    self.connection = None;
                }
                outcome => return outcome.map_err(|error| HypervisorError::new(operation, error)),
            }
        }
        if let Err(cause) = self.connect() {
            return Err(HypervisorError::new(operation, cause));
        }
        let Some(connection) = &self.connection else {
            return Err(HypervisorError::new(operation, "there is no connection to libvirtd"));
        };
        work(connection).map_err(|error| HypervisorError::new(operation, error))
    }
}

impl Hypervisor for Libvirt {
    fn create_network(&self, document: &str) -> Result<(), HypervisorError> {
        self.with("making a network", |connection| connection.create_network_xml(document).map(drop))
    }

    fn destroy_network(&self, name: &str) -> Result<(), HypervisorError> {
        self.with(format!("taking away network {name}"), |connection| {
            match connection.lookup_network_by_name(name) {
                Ok(network) => network.destroy(),
                Err(error) if error.code().is(ErrorNumber::NoNetwork) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn start(&self, document: &str, paused: bool) -> Result<(), HypervisorError> {
        // A domain that is defined says after its end how it ended; one that is not is just gone.
        let name =
            self.with("defining the domain", |connection| connection.define_domain_xml(document)?.name())?;
        self.lock().domain = Some(name);
        let flags = if paused { sys::VIR_DOMAIN_START_PAUSED } else { sys::VIR_DOMAIN_NONE };
        self.with_domain("starting domain", |domain| {
            if domain.is_active()? { Ok(()) } else { domain.create_with_flags(flags) }
        })
    }

    fn press_power_button(&self) -> Result<(), HypervisorError> {
        self.with_domain("pressing the power button of domain", |domain| {
            domain.shutdown_flags(sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
        })
    }

    fn kill(&self) -> Result<(), HypervisorError> {
        self.with_domain(
            "switching off domain",
            |domain| {
                if domain.is_active()? { domain.destroy() } else { Ok(()) }
            },
        )
    }

    fn pause(&self) -> Result<(), HypervisorError> {
        self.with_domain("pausing domain", Domain::suspend)
    }

    fn resume(&self) -> Result<(), HypervisorError> {
        self.with_domain("resuming domain", Domain::resume)
    }

    fn state(&self) -> Result<DomainState, HypervisorError> {
        let mut inner = self.lock();
        let Some(name) = inner.domain.clone() else { return Ok(DomainState::Absent) };
        inner.with(format!("looking at domain {name}"), |connection| {
            match connection.lookup_domain_by_name(&name) {
                Ok(domain) => state(&domain),
                Err(error) if error.code().is(ErrorNumber::NoDomain) => Ok(DomainState::Absent),
                Err(error) => Err(error),
            }
        })
    }

    fn expect(&self, domain: &str) {
        self.lock().domain = Some(domain.to_owned());
    }

    fn process(&self) -> Result<u32, HypervisorError> {
        let operation = "looking for the guest's process";
        let Some(name) = self.lock().domain.clone() else {
            return Err(HypervisorError::new(operation, "there is no domain"));
        };
        let file = format!("/run/libvirt/qemu/{name}.pid");
        let number = std::fs::read_to_string(file).map_err(|error| HypervisorError::new(operation, error))?;
        number.trim().parse().map_err(|error| HypervisorError::new(operation, error))
    }

    fn migrate(
        &self,
        options: &MigrateOptions,
        disks: Vec<String>,
        sockets: &Path,
    ) -> Result<(), HypervisorError> {
        let (name, socket) = {
            let inner = self.lock();
            (inner.domain.clone(), inner.daemon.socket().to_owned())
        };
        let operation = "moving the guest";
        let Some(name) = name else { return Err(HypervisorError::new(operation, "there is no domain")) };
        let moved = Connect::open(Some(&uri(&socket)))
            .and_then(|connection| connection.lookup_domain_by_name(&name))
            .and_then(|domain| migration::migrate(&domain, options, disks, sockets));
        moved.map_err(|error| HypervisorError::new(operation, error))
    }

    fn progress(&self) -> Result<Option<ProgressSample>, HypervisorError> {
        self.with_domain("looking at the move of domain", |domain| migration::progress(domain, 0))
    }

    fn summary(&self) -> Result<Option<ProgressSample>, HypervisorError> {
        self.with_domain("looking at the move of domain", |domain| {
            migration::progress(domain, sys::VIR_DOMAIN_JOB_STATS_COMPLETED)
        })
    }

    fn count_on(&self, bytes_per_second: u64) -> Result<(), HypervisorError> {
        let operation = "telling the move of the domain how fast the road is";
        let said = self.with_domain(operation, |domain| migration::count_on(domain, bytes_per_second))?;
        migration::accepted(&said).map_err(|refusal| HypervisorError::new(operation, refusal))
    }

    fn start_post_copy(&self) -> Result<(), HypervisorError> {
        self.with_domain("starting post-copy of domain", migration::start_post_copy)
    }

    fn cancel_migration(&self) -> Result<(), HypervisorError> {
        self.with_domain("giving up the move of domain", migration::cancel)
    }
}

/// A domain that comes in is defined when all of it is there, and not before. Until then its state means nothing: it may look as if it
/// ran, and be gone a moment later. One that was started here is defined from the beginning.
fn state(domain: &Domain) -> Result<DomainState, Error> {
    if !domain.is_persistent()? {
        return Ok(DomainState::Moving);
    }
    let (state, reason) = domain.state()?;
    let Enum::Known(state) = state else { return Ok(DomainState::Running) };
    Ok(match (state, reason) {
        (State::Paused, Enum::Known(Reason::Paused(Enum::Known(Paused::PostCopyFailed)))) => {
            DomainState::Crashed("its memory was lost on the way".to_owned())
        }
        (
            State::Paused,
            Enum::Known(Reason::Paused(Enum::Known(
                Paused::Migration | Paused::PostCopy | Paused::StartingUp,
            ))),
        ) => DomainState::Moving,
        (State::Paused | State::PMSuspended, _) => DomainState::Paused,
        (State::Shutoff, Enum::Known(Reason::Shutoff(Enum::Known(reason)))) => ended(domain, reason)?,
        (State::Shutoff | State::Crashed, _) => DomainState::Crashed(last_words(&domain.name()?)),
        // A domain that shuts down still runs.
        _ => DomainState::Running,
    })
}

/// A domain that was saved or never started does not occur here.
fn ended(domain: &Domain, reason: DomainShutoffReason) -> Result<DomainState, Error> {
    Ok(match reason {
        DomainShutoffReason::Shutdown => DomainState::ShutDown,
        DomainShutoffReason::Destroyed => DomainState::Destroyed,
        DomainShutoffReason::Migrated => DomainState::Migrated,
        _ => DomainState::Crashed(last_words(&domain.name()?)),
    })
}

/// What QEMU said last, which is what there is to know about its death.
fn last_words(domain: &str) -> String {
    let log = std::fs::read_to_string(format!("/var/log/libvirt/qemu/{domain}.log")).unwrap_or_default();
    let words = log.lines().rev().find(|line| line.contains("qemu-system") && !line.starts_with('/'));
    words.map_or_else(|| "QEMU died without a word".to_owned(), |words| format!("QEMU said last: {words}"))
}
