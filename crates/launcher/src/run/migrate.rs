//! One move of the guest away: the hypervisor's long call, its progress beside it, and the truth after it.

use std::time::{Duration, Instant};

use api::kubevirt::MigrationMode;
use tracing::{info, warn};
use wire::MigrateOptions;

use super::Executor;
use crate::convergence::{Convergence, Verdict};
use crate::domain;
use crate::hypervisor::{DomainState, Hypervisor};
use crate::supervise::Input;

/// How often the progress is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

impl Executor {
    pub(super) async fn migrate(&self, options: MigrateOptions) {
        info!(?options, "the guest moves");
        let mut watch = Convergence::new(&options);
        let mut given_up = None;
        let sockets = self.settings.migration_sockets();
        let disks = self.made.lock().await.plan.as_ref().map(domain::travelling).unwrap_or_default();
        let moving = self.call(move |hypervisor| hypervisor.migrate(&options, disks, &sockets));
        tokio::pin!(moving);
        let (begun, mut ticks) = (Instant::now(), tokio::time::interval(INTERVAL));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                outcome = &mut moving => break outcome,
                _ = ticks.tick() => self.look_at_move(begun.elapsed(), &mut watch, &mut given_up).await,
            }
        };
        let outcome = self.where_it_is(outcome).await.map_err(|cause| given_up.unwrap_or(cause));
        if outcome.is_err() && watch.mode() == MigrationMode::Paused {
            self.report("resuming the guest after its move failed", Hypervisor::resume).await;
        }
        let sample = if outcome.is_ok() { self.call(Hypervisor::summary).await.ok().flatten() } else { None };
        self.say(Input::MoveEnded { outcome, sample });
    }

    /// The call's answer may be lost with the hypervisor's daemon; where the guest is, is not.
    async fn where_it_is(&self, outcome: Result<(), String>) -> Result<(), String> {
        let Err(cause) = outcome else { return Ok(()) };
        match self.call(Hypervisor::state).await {
            Ok(DomainState::Migrated) => Ok(()),
            _ => Err(cause),
        }
    }

    async fn look_at_move(&self, elapsed: Duration, watch: &mut Convergence, given_up: &mut Option<String>) {
        let sample = match self.call(Hypervisor::progress).await {
            Ok(Some(sample)) => sample,
            Ok(None) => return,
            Err(cause) => return warn!(cause, "the hypervisor does not say how far the move is"),
        };
        let verdict = if given_up.is_some() { Verdict::GoOn } else { watch.judge(elapsed, &sample) };
        self.say(Input::Moved { sample, mode: watch.mode() });
        match verdict {
            Verdict::GoOn => {}
            Verdict::PostCopy => self.report("starting post-copy", Hypervisor::start_post_copy).await,
            Verdict::Pause => self.report("pausing the guest for its move", Hypervisor::pause).await,
            Verdict::GiveUp { reason } => {
                *given_up = Some(reason);
                self.report("giving the move up", Hypervisor::cancel_migration).await;
            }
        }
    }
}
