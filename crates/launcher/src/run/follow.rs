//! The domain's state, looked at again and again: the binding to libvirt has no events.

use std::time::{Duration, Instant};

use tracing::warn;

use super::Executor;
use crate::hypervisor::{DomainState, Hypervisor};
use crate::supervise::Input;

const INTERVAL: Duration = Duration::from_millis(200);
/// While a domain is about to arrive: its handler waits to say that it runs.
const ARRIVAL_INTERVAL: Duration = Duration::from_millis(50);
/// While a guest stands still that could run.
const TAKE_OVER_INTERVAL: Duration = Duration::from_millis(10);
/// How long the hypervisor's daemon may be away before it is given up.
const PATIENCE: Duration = Duration::from_mins(1);

impl Executor {
    /// Reports every change, up to the end.
    pub(super) async fn follow_domain(&self) {
        let mut ticks = ticks(INTERVAL);
        let mut known = None;
        while let Some(state) = self.next_state(&mut ticks, known.as_ref()).await {
            let last = is_last(&state);
            known = Some(state.clone());
            self.say(Input::Domain(state));
            if last {
                return;
            }
        }
    }

    /// Follows a domain that is not there yet. One that was seen on its way and is gone did not come; one that stands still may yet go on
    /// where it came from, so it is announced when it runs.
    pub(super) async fn follow_arrival(&self) {
        let mut ticks = ticks(ARRIVAL_INTERVAL);
        let mut known = DomainState::Absent;
        while known != DomainState::Running {
            let Some(state) = self.next_state(&mut ticks, Some(&known)).await else { return };
            known = state.clone();
            self.say(Input::Domain(state));
            if is_last(&known) {
                return;
            }
        }
        self.announce().await;
        self.follow_domain().await;
    }

    /// Lets the domain run that has arrived, or is about to.
    pub(super) async fn take_over(&self) {
        let mut ticks = ticks(TAKE_OVER_INTERVAL);
        loop {
            ticks.tick().await;
            match self.call(Hypervisor::state).await {
                Ok(DomainState::Paused) => match self.call(Hypervisor::resume).await {
                    Ok(()) => return,
                    Err(cause) => warn!(cause, "the guest that has arrived does not go on; trying again"),
                },
                Ok(DomainState::Absent | DomainState::Moving) => {}
                // It runs, or it is over: who follows it says so.
                Ok(_) => return,
                Err(cause) => warn!(cause, "the hypervisor does not say how the guest is"),
            }
        }
    }

    /// The next state that is another; none: the hypervisor is lost, which was said.
    async fn next_state(
        &self,
        ticks: &mut tokio::time::Interval,
        known: Option<&DomainState>,
    ) -> Option<DomainState> {
        let mut heard = Instant::now();
        loop {
            ticks.tick().await;
            match self.call(Hypervisor::state).await {
                Ok(state) if known != Some(&state) => return Some(state),
                Ok(_) => heard = Instant::now(),
                Err(cause) if heard.elapsed() > PATIENCE => {
                    self.say(Input::HypervisorLost { cause });
                    return None;
                }
                Err(cause) => warn!(cause, "the hypervisor does not say how the guest is"),
            }
        }
    }
}

fn ticks(interval: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

/// Nothing follows.
fn is_last(state: &DomainState) -> bool {
    !matches!(state, DomainState::Running | DomainState::Paused | DomainState::Moving)
}
