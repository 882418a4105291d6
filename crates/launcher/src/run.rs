//! Does what [`crate::supervise`] decides: the one place where the launcher's parts meet.
//!
//! One task decides; everything that takes time is a task of its own and reports back as an input. Invariant: what was made is noted
//! before the next thing is made, so that cleaning up finds all of it.

use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use api::mac::MacAddress;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};
use tracing::{debug, info, warn};
use wire::{CNI_SOCKET, LAUNCHER_SOCKET, MIGRATION_SOCKETS, Status};

use crate::hypervisor::{Hypervisor, QEMU_USER};
use crate::proxy::Proxy;
use crate::serial::SerialLog;
use crate::server::Server;
use crate::supervise::{Effect, Input, Supervisor};
use crate::wiring::Wiring;

mod clean;
mod departure;
mod follow;
mod migrate;
mod prepare;
mod vnics;

use prepare::Made;

/// How long the last words to the handlers may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where the launcher has its things.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory that it shares with the handler.
    pub private: PathBuf,
    /// Its own directory.
    pub directory: PathBuf,
}

/// What is there before the VM is.
#[derive(Clone)]
struct Executor {
    hypervisor: Arc<dyn Hypervisor>,
    proxy: Proxy,
    wiring: Wiring,
    settings: Settings,
    inputs: mpsc::UnboundedSender<Input>,
    made: Arc<Mutex<Made>>,
}

/// The launcher cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("making the directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("listening at {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error("looking at the pod's network")]
    Network(#[source] net::Error),
    #[error("catching signals")]
    Signals(#[source] io::Error),
    #[error("following the guest's console")]
    Console(#[source] io::Error),
}

/// Runs one VM from beginning to end; answers with the code to exit with. The guest's console goes to `out`.
pub async fn run(
    hypervisor: Arc<dyn Hypervisor>,
    settings: Settings,
    out: impl Write + Send + 'static,
) -> Result<u8, RunError> {
    for path in [&settings.private, &settings.directory] {
        std::fs::create_dir_all(path).map_err(|source| RunError::Directory { path: path.clone(), source })?;
    }
    let sockets = settings.migration_sockets();
    make_for_qemu(&sockets).map_err(|source| RunError::Directory { path: sockets, source })?;
    let (inputs, mut input) = mpsc::unbounded_channel();
    let (published, status) = watch::channel(Status::default());
    let socket = settings.private.join(LAUNCHER_SOCKET);
    let server = Server::listen(&socket, inputs.clone(), status)
        .map_err(|source| RunError::Listen { path: socket, source })?;
    let console = SerialLog::follow(settings.console_log(), out).map_err(RunError::Console)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    let executor = Executor {
        proxy: Proxy::at(&settings.private.join(CNI_SOCKET)),
        wiring: Wiring::open().map_err(RunError::Network)?,
        made: Arc::default(),
        hypervisor,
        settings,
        inputs,
    };
    let mut supervisor = Supervisor::new();
    info!("waiting for a VM");
    let code = loop {
        let event = tokio::select! {
            Some(event) = input.recv() => event,
            _ = terminate.recv() => Input::Terminate,
            _ = interrupt.recv() => Input::Terminate,
        };
        let effects = supervisor.decide(event);
        let mut code = None;
        for effect in effects {
            match effect {
                Effect::Publish => {
                    let before = published.send_replace(supervisor.status().clone());
                    log_change(&before, supervisor.status());
                }
                Effect::Refuse { to, command, reason } => server.refuse(to, command, reason),
                Effect::Exit { code: with } => code = Some(with),
                other => executor.execute(other),
            }
        }
        if let Some(code) = code {
            break code;
        }
    };
    drop(published);
    if tokio::time::timeout(FAREWELL, server.finish()).await.is_err() {
        warn!("a handler does not read how it ended");
    }
    // Joins a thread that has at most one more look at a file.
    drop(console);
    Ok(code)
}

/// A move publishes its progress again and again, which is for handlers and not for a log.
fn log_change(before: &Status, now: &Status) {
    let life = |status: &Status| (status.phase, status.migration.as_ref().map(|report| report.phase));
    if life(before) == life(now) && before.ending == now.ending {
        debug!(?now, "status");
    } else {
        info!(phase = ?now.phase, migration = ?now.migration, ending = ?now.ending, "status");
    }
}

/// A directory in which QEMU makes and uses sockets.
fn make_for_qemu(directory: &std::path::Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::os::unix::fs::chown(directory, Some(QEMU_USER), Some(QEMU_USER))
}

impl Settings {
    /// Where QEMU meets the handlers of a move.
    fn migration_sockets(&self) -> PathBuf {
        self.private.join(MIGRATION_SOCKETS)
    }

    fn console_log(&self) -> PathBuf {
        self.directory.join("serial.log")
    }
}

impl Executor {
    /// Starts doing it; how it went comes as an input.
    fn execute(&self, effect: Effect) {
        let this = self.clone();
        tokio::spawn(async move {
            match effect {
                Effect::Prepare { vmi, accelerator } => this.prepare(&vmi, accelerator).await,
                Effect::StartDomain => this.start_domain().await,
                Effect::AwaitDomain => this.await_domain().await,
                Effect::TakeOver => this.take_over().await,
                Effect::Migrate { options, paused } => this.migrate(*options, paused).await,
                Effect::CancelMigration => {
                    this.report("giving the move up", Hypervisor::cancel_migration).await;
                }
                Effect::PressPowerButton => {
                    this.report("pressing the power button", Hypervisor::press_power_button).await;
                }
                Effect::Kill => this.report("switching the guest off", Hypervisor::kill).await,
                Effect::Pause => this.report("pausing the guest", Hypervisor::pause).await,
                Effect::Resume => this.report("resuming the guest", Hypervisor::resume).await,
                Effect::Wake { after } => {
                    tokio::time::sleep(after).await;
                    this.say(Input::Woke);
                }
                Effect::CleanUp => this.clean_up().await,
                Effect::Publish | Effect::Refuse { .. } | Effect::Exit { .. } => {}
            }
        });
    }

    /// Nobody listens once the launcher ends, and then it is too late for every input.
    fn say(&self, input: Input) {
        let _ = self.inputs.send(input);
    }

    /// A call of the hypervisor, off the threads that must not block.
    async fn call<T: Send + 'static, E: Error + Send + Sync + 'static>(
        &self,
        work: impl FnOnce(&dyn Hypervisor) -> Result<T, E> + Send + 'static,
    ) -> Result<T, String> {
        let hypervisor = self.hypervisor.clone();
        let outcome = tokio::task::spawn_blocking(move || work(&*hypervisor)).await;
        outcome.map_err(|panic| panic.to_string())?.map_err(|error| whole(&error))
    }

    /// A call whose failure is a problem, and no more.
    async fn report(
        &self,
        what: &'static str,
        work: impl FnOnce(&dyn Hypervisor) -> Result<(), crate::hypervisor::HypervisorError> + Send + 'static,
    ) {
        if let Err(cause) = self.call(work).await {
            warn!(cause, what, "failed");
            self.say(Input::Problem { cause });
        }
    }
}

/// An error and its causes.
fn whole(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn kernel_mac(mac: MacAddress) -> net::MacAddress {
    net::MacAddress(mac.0)
}
