//! What happens next: the life of a launcher, as a function of what happened.
//!
//! ```text
//!           start,              networks made          domain runs                 shutdown, SIGTERM
//!  Waiting ───────► Preparing ─┬──────────────► Starting ─────────────► Running ─────────────────────► ShuttingDown
//!     │  prepare        │      │                    │ failed            ▲  │ the guest is gone,            │  │ ▲ wake:
//!     │  target         │      └─► ReadyForMigration ─► Arrived ────────┘  │ or moved away                 │  └─┘ press again,
//!     │ told to end     │ failed, or    │ it did not come                  │                               │      or switch off
//!     │                 │ told to end   │                                  │                               │
//!     └─────────────────┴───────────────┴───────────────────────► CleaningUp ◄─────────────────────────────┘
//!                                                                    │ networks gone, vNICs detached
//!                                                                    ▼
//!                                                                  Ended ──► exit: 0 if the guest ended well, else 1
//! ```
//!
//! A move away is a second, smaller life, beside Running and Paused:
//!
//! ```text
//!         migrate            gone          ┌► Completed ──► CleaningUp: ended well, and goes on elsewhere
//!  (none) ───────► Running ────────────────┤
//!    ▲                 │ cancel, shutdown  ├► Failed ────► the guest goes on here
//!    │                 └─► (given up) ─────┴► Cancelled ─► likewise
//!    └────────── the next move ─────────────────┘
//! ```
//!
//! A guest that comes in has arrived when all of it is here, and stands still: at the source it may yet go on, if the hypervisors lose each
//! other at that moment. It runs here once its process at the source is gone, which the source's launcher says, or a handler who knows.
//!
//! Who dies when:
//! - libvirtd dies: QEMU goes on, libvirtd is started again and finds it. Nobody else notices; a command waits meanwhile. If it cannot be
//!   started again for a long time, the launcher gives up, and QEMU ends with the pod.
//! - QEMU dies: the guest has crashed. The networks are taken away, and the launcher ends with an error.
//! - The launcher is asked to end (SIGTERM): the guest's power button is pressed, again and again, since a guest that is still booting
//!   does not hear it; when the grace period is over the guest is switched off.
//! - The launcher is asked to end while its guest moves: the guest is about to be safe elsewhere, so the move goes on; only when it comes
//!   to nothing the guest is shut down. Who really wants the guest to end says shutdown or kill, and the move is given up.
//! - The launcher is killed: it is the first process of its pod, so everything ends with it. The handler detaches the vNICs.
//!
//! Pure: it decides, [`crate::run`] does. Invariant: effects that make something are asked for once; from whatever state, an end is
//! reached once the guest is gone, and clean-up comes before it.

use std::time::Duration;

use api::kubevirt::{MigrationMode, ProgressSample, VirtualMachineInstance};
use wire::{
    Accelerator, AcceleratorPolicy, Command, Ending, InterfaceStatus, MigrateOptions, MigrationPhase,
    MigrationReport, Outcome, Phase, Status,
};

use crate::hypervisor::DomainState;

/// How long a guest may take to hear the power button before it is pressed again.
const PATIENCE_SECONDS: u32 = 5;
/// How many problems a status holds.
const PROBLEMS: usize = 8;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A handler said something; `from` is its connection.
    Command {
        command: Command,
        from: u64,
    },
    /// The launcher is asked to end.
    Terminate,
    /// Networks and disks are there.
    Prepared {
        interfaces: Vec<InterfaceStatus>,
        accelerator: Accelerator,
        accelerator_reason: Option<String>,
    },
    PreparationFailed {
        cause: String,
    },
    /// The domain was started.
    Started,
    StartFailed {
        cause: String,
    },
    /// The domain is seen in another state than before.
    Domain(DomainState),
    /// The guest that comes here is gone from where it came from.
    Departed {
        /// A person paused it.
        paused: bool,
    },
    /// How far the move is.
    Moved {
        sample: ProgressSample,
        mode: MigrationMode,
    },
    /// The move is over: the guest is gone, or it goes on here because of this.
    MoveEnded {
        outcome: Result<(), String>,
        /// Of the whole, as far as it is known.
        sample: Option<ProgressSample>,
    },
    /// The time that was asked for is over.
    Woke,
    /// The hypervisor's daemon is gone and does not come back.
    HypervisorLost {
        cause: String,
    },
    /// What was made is gone, but for what these say.
    Cleaned {
        problems: Vec<String>,
    },
    /// Something went wrong that ends nothing.
    Problem {
        cause: String,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Prepare {
        vmi: Box<VirtualMachineInstance>,
        accelerator: AcceleratorPolicy,
    },
    StartDomain,
    /// Wait for the domain that another launcher brings.
    AwaitDomain,
    /// Let the domain run that has arrived, as soon as all of it is here.
    TakeOver,
    Migrate {
        options: Box<MigrateOptions>,
        /// A person paused the guest.
        paused: bool,
    },
    CancelMigration,
    PressPowerButton,
    Kill,
    Pause,
    Resume,
    /// Say [`Input::Woke`] later.
    Wake {
        after: Duration,
    },
    CleanUp,
    /// The status is another.
    Publish,
    Refuse {
        to: u64,
        command: &'static str,
        reason: String,
    },
    Exit {
        code: u8,
    },
}

/// How the guest is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Within(u32),
    AtOnce,
}

/// The launcher's state.
#[derive(Debug)]
pub struct Supervisor {
    status: Status,
    /// UID of the VM that was started.
    vmi: Option<String>,
    /// Seconds that the VM's spec gives the guest to shut down.
    grace_seconds: u32,
    /// The guest comes from another launcher.
    incoming: bool,
    /// The guest is gone from where it came from; whether it stays paused.
    departed: Option<bool>,
    /// Told to give the move up.
    cancelling: bool,
    /// Told to end before there was a guest to tell, or while it moved away.
    stop: Option<Stop>,
    /// Seconds that the guest has left to shut down.
    left: u32,
}

/// Without a VM that says otherwise.
const DEFAULT_GRACE_SECONDS: u32 = 30;

impl Default for Supervisor {
    fn default() -> Self {
        Self {
            status: Status::default(),
            vmi: None,
            grace_seconds: DEFAULT_GRACE_SECONDS,
            incoming: false,
            departed: None,
            cancelling: false,
            stop: None,
            left: 0,
        }
    }
}

impl Supervisor {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Takes in what happened, and answers with what is to be done, in that order.
    pub fn decide(&mut self, input: Input) -> Vec<Effect> {
        let before = self.status.clone();
        let mut effects = self.react(input);
        if self.status != before {
            // Before the end, so that whoever listens hears of it.
            let place = effects.iter().position(|effect| matches!(effect, Effect::Exit { .. }));
            effects.insert(place.unwrap_or(effects.len()), Effect::Publish);
        }
        effects
    }

    fn react(&mut self, input: Input) -> Vec<Effect> {
        match (input, self.status.phase) {
            (Input::Command { command, from }, _) => self.command(command, from),
            // The guest may have left its source already: nobody else has it then.
            (Input::Terminate, _) if self.is_moving() || self.status.phase == Phase::Arrived => {
                let stop = Stop::Within(self.grace_seconds);
                self.stop = Some(self.stop.map_or(stop, |earlier| sooner(earlier, stop)));
                Vec::new()
            }
            (Input::Terminate, _) => self.stop(Stop::Within(self.grace_seconds)),
            (Input::Departed { paused }, _) => self.departed(paused),
            (Input::Moved { sample, mode }, _) => self.moved(sample, mode),
            (Input::MoveEnded { outcome, sample }, _) => self.move_ended(outcome, sample),
            (Input::Problem { cause }, _) => {
                self.problem(cause);
                Vec::new()
            }
            (Input::Prepared { interfaces, accelerator, accelerator_reason }, Phase::Preparing) => {
                self.status.interfaces = interfaces;
                self.status.accelerator = Some(accelerator);
                self.status.accelerator_reason = accelerator_reason;
                if self.stop.is_some() {
                    return self.end(never_started());
                }
                if self.incoming {
                    self.status.phase = Phase::ReadyForMigration;
                    return vec![Effect::AwaitDomain];
                }
                self.status.phase = Phase::Starting;
                vec![Effect::StartDomain]
            }
            (Input::PreparationFailed { cause }, Phase::Preparing) => {
                self.end(failed("PreparationFailed", cause))
            }
            (Input::Started, Phase::Starting) => {
                self.status.phase = Phase::Running;
                self.stop.take().map_or_else(Vec::new, |stop| self.stop(stop))
            }
            (Input::StartFailed { cause }, Phase::Starting) => self.end(failed("StartFailed", cause)),
            (
                Input::Domain(state),
                Phase::ReadyForMigration
                | Phase::Arrived
                | Phase::Running
                | Phase::Paused
                | Phase::ShuttingDown,
            ) => self.seen(state),
            (Input::Woke, Phase::ShuttingDown) => self.woke(),
            (
                Input::HypervisorLost { cause },
                Phase::ReadyForMigration
                | Phase::Arrived
                | Phase::Running
                | Phase::Paused
                | Phase::ShuttingDown,
            ) => self.end(failed("HypervisorLost", cause)),
            (Input::Cleaned { problems }, Phase::CleaningUp) => {
                for problem in problems {
                    self.problem(problem);
                }
                self.status.phase = Phase::Ended;
                let well =
                    self.status.ending.as_ref().is_some_and(|ending| ending.outcome == Outcome::Succeeded);
                vec![Effect::Exit { code: u8::from(!well) }]
            }
            // Late news of what is over already.
            _ => Vec::new(),
        }
    }

    fn command(&mut self, command: Command, from: u64) -> Vec<Effect> {
        let phase = self.status.phase;
        let refuse = |command, reason: String| vec![Effect::Refuse { to: from, command, reason }];
        let name = command.name();
        match (command, phase) {
            (Command::Start { vmi, accelerator }, Phase::Waiting) => self.prepare(vmi, accelerator),
            (Command::PrepareTarget { vmi, accelerator }, Phase::Waiting) => {
                self.incoming = true;
                self.prepare(vmi, accelerator)
            }
            (Command::Start { vmi, .. } | Command::PrepareTarget { vmi, .. }, _)
                if self.vmi == Some(vmi.metadata.uid.clone().unwrap_or_default()) =>
            {
                Vec::new()
            }
            (Command::Start { .. } | Command::PrepareTarget { .. }, phase) => {
                refuse(name, format!("the launcher is {phase}, and runs one VM only"))
            }
            (Command::Migrate { options }, phase) => match self.migrate(options, phase) {
                Ok(effects) => effects,
                Err(reason) => refuse(name, reason),
            },
            (Command::CancelMigration, _) if self.is_moving() => {
                self.cancelling = true;
                vec![Effect::CancelMigration]
            }
            (Command::CancelMigration, _) => refuse(name, "no move is under way".to_owned()),
            (Command::TakeOver { paused }, _) if self.incoming => self.departed(paused),
            (Command::TakeOver { .. }, _) => refuse(name, "no guest was to come here".to_owned()),
            (Command::Shutdown { grace_seconds }, _) => self.stop(Stop::Within(grace_seconds)),
            (Command::Kill, _) => self.stop(Stop::AtOnce),
            (Command::Pause, Phase::Running) => vec![Effect::Pause],
            (Command::Resume, Phase::Paused) => vec![Effect::Resume],
            // It is so already; and the conversation's own, which are answered there.
            (Command::Pause, Phase::Paused)
            | (Command::Resume, Phase::Running)
            | (Command::Hello { .. } | Command::Query, _) => Vec::new(),
            (Command::Pause | Command::Resume, phase) => {
                let reason = format!("the launcher is {phase}: no guest could be paused or resumed");
                refuse(name, reason)
            }
        }
    }

    fn prepare(&mut self, vmi: Box<VirtualMachineInstance>, accelerator: AcceleratorPolicy) -> Vec<Effect> {
        self.vmi = Some(vmi.metadata.uid.clone().unwrap_or_default());
        let grace = vmi.spec.termination_grace_period_seconds;
        self.grace_seconds =
            grace.map_or(DEFAULT_GRACE_SECONDS, |grace| u32::try_from(grace.max(0)).unwrap_or(u32::MAX));
        self.status.phase = Phase::Preparing;
        vec![Effect::Prepare { vmi, accelerator }]
    }

    fn is_arriving(&self) -> bool {
        matches!(self.status.phase, Phase::ReadyForMigration | Phase::Arrived)
    }

    fn is_moving(&self) -> bool {
        self.status.migration.as_ref().is_some_and(|report| !report.phase.is_final())
    }

    /// A move that is known already is answered by the status, however it stands.
    fn migrate(&mut self, options: Box<MigrateOptions>, phase: Phase) -> Result<Vec<Effect>, String> {
        if let Some(known) = &self.status.migration {
            if known.uid == options.uid {
                return Ok(Vec::new());
            }
            if !known.phase.is_final() {
                return Err(format!("the guest is on its way with migration {} already", known.uid));
            }
        }
        if !matches!(phase, Phase::Running | Phase::Paused) {
            return Err(format!("the launcher is {phase}: no guest could move"));
        }
        self.cancelling = false;
        self.status.migration = Some(MigrationReport {
            uid: options.uid.clone(),
            phase: MigrationPhase::Running,
            mode: MigrationMode::PreCopy,
            reason: None,
            sample: ProgressSample::default(),
        });
        Ok(vec![Effect::Migrate { options, paused: phase == Phase::Paused }])
    }

    /// Nothing has to wait any more: what is here of the guest is all there is.
    fn departed(&mut self, paused: bool) -> Vec<Effect> {
        if !self.is_arriving() || self.departed.is_some() {
            return Vec::new();
        }
        self.departed = Some(paused);
        if !paused {
            return vec![Effect::TakeOver];
        }
        if self.status.phase == Phase::ReadyForMigration {
            return Vec::new();
        }
        self.status.phase = Phase::Paused;
        self.stop.take().map_or_else(Vec::new, |stop| self.stop(stop))
    }

    fn moved(&mut self, sample: ProgressSample, mode: MigrationMode) -> Vec<Effect> {
        if let Some(report) = self.status.migration.as_mut().filter(|report| !report.phase.is_final()) {
            (report.sample, report.mode) = (sample, mode);
        }
        Vec::new()
    }

    fn move_ended(&mut self, outcome: Result<(), String>, sample: Option<ProgressSample>) -> Vec<Effect> {
        let Some(report) = self.status.migration.as_mut().filter(|report| !report.phase.is_final()) else {
            return Vec::new();
        };
        report.sample = sample.unwrap_or_else(|| std::mem::take(&mut report.sample));
        report.phase = match &outcome {
            Ok(()) => MigrationPhase::Completed,
            Err(_) if self.cancelling => MigrationPhase::Cancelled,
            Err(_) => MigrationPhase::Failed,
        };
        report.reason = outcome.err();
        match (report.phase, self.status.phase) {
            (_, Phase::CleaningUp | Phase::Ended) => Vec::new(),
            (MigrationPhase::Completed, _) => self.end(migrated()),
            _ => self.stop.take().map_or_else(Vec::new, |stop| self.stop(stop)),
        }
    }

    /// A guest that moves is left alone until the move is given up: it could not be asked to shut down meanwhile. To switch it off can be
    /// done at any time.
    fn stop(&mut self, stop: Stop) -> Vec<Effect> {
        if !self.is_moving() || stop == Stop::AtOnce {
            return self.stop_guest(stop);
        }
        self.stop = Some(self.stop.map_or(stop, |earlier| sooner(earlier, stop)));
        if std::mem::replace(&mut self.cancelling, true) { Vec::new() } else { vec![Effect::CancelMigration] }
    }

    fn stop_guest(&mut self, stop: Stop) -> Vec<Effect> {
        match (self.status.phase, stop) {
            (Phase::Waiting | Phase::ReadyForMigration, _) => self.end(never_started()),
            (Phase::Arrived, _) if self.departed.is_none() => self.end(never_started()),
            (Phase::Preparing | Phase::Starting | Phase::Arrived, _) => {
                self.stop = Some(self.stop.map_or(stop, |earlier| sooner(earlier, stop)));
                Vec::new()
            }
            (Phase::Running | Phase::Paused, Stop::Within(seconds)) if seconds > 0 => {
                self.status.phase = Phase::ShuttingDown;
                self.left = seconds;
                vec![Effect::PressPowerButton, self.nap()]
            }
            // Pressed once more; the rest of the time is the shorter of the two.
            (Phase::ShuttingDown, Stop::Within(seconds)) if seconds > 0 => {
                self.left = self.left.min(seconds);
                Vec::new()
            }
            (Phase::Running | Phase::Paused | Phase::ShuttingDown, _) => {
                self.status.phase = Phase::ShuttingDown;
                self.left = 0;
                vec![Effect::Kill, self.nap()]
            }
            (Phase::CleaningUp | Phase::Ended, _) => Vec::new(),
        }
    }

    /// Until the button is pressed again, or the guest switched off; also if it should be off already, and is not.
    fn nap(&self) -> Effect {
        let seconds = if self.left == 0 { PATIENCE_SECONDS } else { self.left.min(PATIENCE_SECONDS) };
        Effect::Wake { after: Duration::from_secs(seconds.into()) }
    }

    fn woke(&mut self) -> Vec<Effect> {
        self.left = self.left.saturating_sub(PATIENCE_SECONDS);
        let act = if self.left == 0 { Effect::Kill } else { Effect::PressPowerButton };
        vec![act, self.nap()]
    }

    fn seen(&mut self, state: DomainState) -> Vec<Effect> {
        let ending = match state {
            DomainState::Moving => return Vec::new(),
            DomainState::Running | DomainState::Paused if self.status.phase == Phase::ShuttingDown => {
                return Vec::new();
            }
            // It was stopped for the move's sake, which is no state of the guest's own; or the move itself tells how it ended.
            DomainState::Paused | DomainState::Migrated if self.is_moving() => return Vec::new(),
            DomainState::Paused if self.is_arriving() && self.departed != Some(true) => {
                self.status.phase = Phase::Arrived;
                return Vec::new();
            }
            DomainState::Running if self.is_arriving() => {
                self.status.phase = Phase::Running;
                return self.stop.take().map_or_else(Vec::new, |stop| self.stop(stop));
            }
            DomainState::Running => {
                self.status.phase = Phase::Running;
                return Vec::new();
            }
            DomainState::Paused => {
                self.status.phase = Phase::Paused;
                return Vec::new();
            }
            DomainState::Migrated => migrated(),
            DomainState::Absent if self.is_arriving() => {
                failed("NeverArrived", "the guest was on its way here, and did not come")
            }
            DomainState::Absent => failed("Crashed", "the guest is gone, and nobody knows how"),
            DomainState::ShutDown => succeeded("GuestShutdown", "the guest shut down"),
            DomainState::Destroyed => succeeded("Killed", "the guest was switched off"),
            DomainState::Crashed(cause) => failed("Crashed", format!("the guest crashed: {cause}")),
        };
        self.end(ending)
    }

    fn end(&mut self, ending: Ending) -> Vec<Effect> {
        self.status.phase = Phase::CleaningUp;
        self.status.ending = Some(ending);
        vec![Effect::CleanUp]
    }

    fn problem(&mut self, cause: String) {
        let problems = &mut self.status.problems;
        if problems.len() == PROBLEMS {
            problems.remove(0);
        }
        problems.push(cause);
    }
}

fn sooner(one: Stop, other: Stop) -> Stop {
    match (one, other) {
        (Stop::Within(one), Stop::Within(other)) => Stop::Within(one.min(other)),
        _ => Stop::AtOnce,
    }
}

fn succeeded(reason: &str, message: impl Into<String>) -> Ending {
    Ending { outcome: Outcome::Succeeded, reason: reason.to_owned(), message: message.into() }
}

fn failed(reason: &str, message: impl Into<String>) -> Ending {
    Ending { outcome: Outcome::Failed, reason: reason.to_owned(), message: message.into() }
}

fn migrated() -> Ending {
    succeeded(Ending::MIGRATED, "the guest moved, and goes on elsewhere")
}

fn never_started() -> Ending {
    failed("NeverStarted", "the launcher was told to end before the guest ran")
}

#[cfg(test)]
mod tests;
