//! The domain's state, looked at again and again: the binding to libvirt has no events.

use std::time::{Duration, Instant};

use tracing::warn;

use super::Executor;
use crate::hypervisor::{DomainState, Hypervisor};
use crate::supervise::Input;

const INTERVAL: Duration = Duration::from_millis(200);
/// How long the hypervisor's daemon may be away before it is given up.
const PATIENCE: Duration = Duration::from_mins(1);

impl Executor {
    /// Reports every change, up to the end.
    pub(super) async fn follow_domain(&self) {
        let (mut known, mut heard) = (None, Instant::now());
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.call(Hypervisor::state).await {
                Ok(state) => {
                    heard = Instant::now();
                    let last = !matches!(state, DomainState::Running | DomainState::Paused);
                    if known.as_ref() != Some(&state) {
                        known = Some(state.clone());
                        self.say(Input::Domain(state));
                    }
                    if last {
                        return;
                    }
                }
                Err(cause) if heard.elapsed() > PATIENCE => {
                    self.say(Input::HypervisorLost { cause });
                    return;
                }
                Err(cause) => warn!(cause, "the hypervisor does not say how the guest is"),
            }
        }
    }
}
