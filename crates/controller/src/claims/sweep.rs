//! Addresses that nobody holds any more, found again and again: of pods whose node is gone, of claims that somebody forced away.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::Context;
use crate::error::Error;

/// What is lost is lost for so long at most.
const PERIOD: Duration = Duration::from_mins(5);

/// Sweeps until dropped; the first time at once.
pub(crate) async fn run(context: Arc<Context>) {
    let mut turns = interval(PERIOD);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        match ipam::sweep::sweep(&context.client).await {
            Ok(swept) if swept.released.is_empty() => {}
            Ok(swept) => {
                tracing::info!(released = ?swept.released, kept = swept.kept, "addresses that nobody held");
            }
            Err(cause) => {
                let error = Error::api("sweeping", "addresses")(cause);
                tracing::warn!("{}; it is tried again in {} s", error.explain(), PERIOD.as_secs());
            }
        }
    }
}
