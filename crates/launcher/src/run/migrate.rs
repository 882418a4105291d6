//! One move of the guest away: the hypervisor's long call, its progress beside it, and the truth after it.
//!
//! The target is told that the guest has left as soon as its process ends: libvirt says so too, but only after it has waited for that
//! process, and the guest stands still meanwhile. Until then the guest may go on here, and does if the move fails.
//!
//! Whether a move gets anywhere is decided in the crate `migration`; here it is looked at, and what is decided is done.

use std::time::{Duration, Instant};

use api::kubevirt::{MigrationMode, MigrationOptions};
use migration::{Convergence, Pace, Verdict};
use tracing::{debug, info, warn};
use wire::MigrateOptions;

use super::Executor;
use super::departure::{Farewell, Process};
use crate::domain;
use crate::hypervisor::{DomainState, Hypervisor};
use crate::supervise::Input;

/// How often the progress is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// A move under way, as far as it was seen.
struct Watched {
    begun: Instant,
    settings: MigrationOptions,
    /// None before it is known how much there is to move.
    convergence: Option<Convergence>,
    /// None: the hypervisor does not listen, and judges by itself.
    pace: Option<Pace>,
    mode: MigrationMode,
    given_up: Option<String>,
}

impl Executor {
    pub(super) async fn migrate(&self, options: MigrateOptions, paused: bool) {
        info!(?options, "the guest moves");
        let mut watched = Watched {
            begun: Instant::now(),
            settings: options.settings.clone(),
            convergence: None,
            pace: Some(Pace::default()),
            mode: MigrationMode::PreCopy,
            given_up: None,
        };
        let sockets = self.settings.migration_sockets();
        let disks = self.made.lock().await.plan.as_ref().map(domain::travelling).unwrap_or_default();
        let process = self.call(Hypervisor::process).await.and_then(Process::find);
        let mut farewell = Farewell::new(&sockets, &options.sockets, paused);
        let moving = self.call(move |hypervisor| hypervisor.migrate(&options, disks, &sockets));
        tokio::pin!(moving);
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                outcome = &mut moving => break outcome,
                () = Process::ended(process.as_ref()), if !farewell.is_said() => farewell.say().await,
                _ = ticks.tick() => {
                    farewell.keep().await;
                    self.look_at_move(&mut watched).await;
                }
            }
        };
        let Watched { given_up, mode, .. } = watched;
        let outcome = self.where_it_is(outcome, mode).await.map_err(|cause| given_up.unwrap_or(cause));
        if outcome.is_err() && mode == MigrationMode::Paused {
            self.report("resuming the guest after its move failed", Hypervisor::resume).await;
        }
        if outcome.is_ok() && !farewell.is_said() {
            farewell.say().await;
        }
        let sample = if outcome.is_ok() { self.call(Hypervisor::summary).await.ok().flatten() } else { None };
        self.say(Input::MoveEnded { outcome, sample });
    }

    /// The call's answer may be lost with the hypervisor's daemon; where the guest is, is not. One that still stands still here was left
    /// so by a daemon that does not know whether it runs elsewhere: it does not, as nobody was told that it left.
    async fn where_it_is(&self, outcome: Result<(), String>, mode: MigrationMode) -> Result<(), String> {
        let Err(cause) = outcome else { return Ok(()) };
        match self.call(Hypervisor::state).await {
            Ok(DomainState::Migrated) => Ok(()),
            Ok(DomainState::Moving) if mode != MigrationMode::PostCopy => {
                self.report("resuming the guest after its move failed", Hypervisor::resume).await;
                Err(cause)
            }
            _ => Err(cause),
        }
    }

    async fn look_at_move(&self, watched: &mut Watched) {
        let sample = match self.call(Hypervisor::progress).await {
            // Before the first page there is nothing to be late with.
            Ok(Some(sample)) if sample.total_bytes > 0 => sample,
            Ok(_) => return,
            Err(cause) => return warn!(cause, "the hypervisor does not say how far the move is"),
        };
        self.keep_pace(watched, sample.processed_bytes).await;
        let remaining = sample.remaining_bytes;
        let convergence = watched
            .convergence
            .get_or_insert_with(|| Convergence::new(&watched.settings, sample.total_bytes));
        let verdict = match watched.given_up {
            None => convergence.judge(watched.begun.elapsed(), remaining, watched.mode),
            Some(_) => Verdict::GoOn,
        };
        match verdict {
            Verdict::GoOn => {}
            Verdict::PostCopy => {
                watched.mode = MigrationMode::PostCopy;
                self.report("starting post-copy", Hypervisor::start_post_copy).await;
            }
            Verdict::Pause => {
                watched.mode = MigrationMode::Paused;
                self.report("pausing the guest for its move", Hypervisor::pause).await;
            }
            Verdict::GiveUp(reason) => {
                watched.given_up = Some(reason);
                self.report("giving the move up", Hypervisor::cancel_migration).await;
            }
        }
        self.say(Input::Moved { sample, mode: watched.mode });
    }

    /// The guest may be stopped when what is left takes no longer than it may stand still: for that the hypervisor has to know the road.
    async fn keep_pace(&self, watched: &mut Watched, sent: u64) {
        let Some(pace) = &mut watched.pace else { return };
        let Some(rate) = pace.measure(watched.begun.elapsed(), sent) else { return };
        debug!(rate, "the road, in bytes a second");
        if let Err(cause) = self.call(move |hypervisor| hypervisor.count_on(rate)).await {
            warn!(
                cause,
                "the hypervisor does not take the speed of the road, and is to judge that by itself"
            );
            watched.pace = None;
            if let Err(cause) = self.call(|hypervisor| hypervisor.count_on(0)).await {
                warn!(cause, "it may be late to stop the guest");
            }
        }
    }
}
