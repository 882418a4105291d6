//! What becomes of a transfer that does not come to an end: a guest may write memory faster than it is sent.
//!
//! ```text
//!   no less to send than before for `progress` ────────────────────────────────────► give up
//!   not done after `completion` ──┬─ disruption not allowed ───────────────────────► give up
//!                                 ├─ post-copy allowed ────► post-copy (never given up: half the guest is there)
//!                                 └─ otherwise ────► pause ──┬─ done after as long again: well
//!                                                            └─ not done ──────────► give up
//! ```
//!
//! As KubeVirt decides. The one who asks keeps the [`Convergence`] of a transfer and shows it each sample.

use std::time::Duration;

use api::kubevirt::{MigrationMode, MigrationOptions};

use crate::completion_timeout;

/// What is to be done about a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    /// Let the guest run at the target now; its memory follows.
    PostCopy,
    /// Let the guest stand still until its memory is there.
    Pause,
    /// Give up, for this reason.
    GiveUp(String),
}

/// How a transfer has gone so far.
#[derive(Clone, Debug)]
pub struct Convergence {
    completion: Duration,
    progress: Duration,
    post_copy: bool,
    disruption: bool,
    /// The least that ever remained, and when.
    best: Option<(u64, Duration)>,
}

impl Convergence {
    /// A transfer of so many bytes with these settings begins.
    pub fn new(options: &MigrationOptions, bytes: u64) -> Self {
        Self {
            completion: completion_timeout(options, bytes),
            progress: Duration::from_secs(u64::try_from(options.progress_timeout).unwrap_or_default()),
            post_copy: options.allow_post_copy,
            disruption: options.allow_workload_disruption,
            best: None,
        }
    }

    /// What is to be done, so long after the beginning, with so many bytes remaining.
    pub fn judge(&mut self, elapsed: Duration, remaining: u64, mode: MigrationMode) -> Verdict {
        if mode == MigrationMode::PostCopy {
            return Verdict::GoOn;
        }
        let since = match self.best {
            Some((best, since)) if remaining >= best => since,
            _ => {
                self.best = Some((remaining, elapsed));
                elapsed
            }
        };
        if !self.progress.is_zero() && elapsed.saturating_sub(since) > self.progress {
            return Verdict::GiveUp(format!(
                "Live migration stuck for {} seconds and has been aborted",
                self.progress.as_secs()
            ));
        }
        let rounds = if mode == MigrationMode::Paused { 2 } else { 1 };
        if elapsed <= self.completion.saturating_mul(rounds) {
            return Verdict::GoOn;
        }
        match mode {
            MigrationMode::PreCopy if self.disruption && self.post_copy => Verdict::PostCopy,
            MigrationMode::PreCopy if self.disruption => Verdict::Pause,
            _ => Verdict::GiveUp(format!(
                "Live migration is not completed after {} seconds and has been aborted",
                self.completion.saturating_mul(rounds).as_secs()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(post_copy: bool, disruption: bool) -> Convergence {
        let options = MigrationOptions {
            allow_post_copy: post_copy,
            allow_workload_disruption: disruption,
            ..MigrationOptions::default()
        };
        Convergence::new(&options, 1 << 30)
    }

    #[test]
    fn too_long_ends_as_the_settings_say() {
        use MigrationMode::{Paused, PostCopy, PreCopy};
        let late = 151 * SECOND;
        assert_eq!(of(false, false).judge(150 * SECOND, 5, PreCopy), Verdict::GoOn);
        assert!(matches!(of(false, false).judge(late, 5, PreCopy), Verdict::GiveUp(_)));
        assert_eq!(of(true, true).judge(late, 5, PreCopy), Verdict::PostCopy);
        assert_eq!(of(false, true).judge(late, 5, PreCopy), Verdict::Pause);
        assert_eq!(of(false, true).judge(late, 5, Paused), Verdict::GoOn);
        assert!(matches!(of(false, true).judge(301 * SECOND, 5, Paused), Verdict::GiveUp(_)));
        assert_eq!(of(true, true).judge(9999 * SECOND, 5, PostCopy), Verdict::GoOn);
    }

    #[test]
    fn no_progress_ends_it_whatever_the_size() {
        let options = MigrationOptions { progress_timeout: 10, ..MigrationOptions::default() };
        let mut transfer = Convergence::new(&options, 100 << 30);
        assert_eq!(transfer.judge(SECOND, 100, MigrationMode::PreCopy), Verdict::GoOn);
        assert_eq!(transfer.judge(11 * SECOND, 120, MigrationMode::PreCopy), Verdict::GoOn);
        assert_eq!(transfer.judge(11 * SECOND, 99, MigrationMode::PreCopy), Verdict::GoOn);
        assert_eq!(transfer.judge(21 * SECOND, 99, MigrationMode::PreCopy), Verdict::GoOn);
        assert!(matches!(transfer.judge(22 * SECOND, 99, MigrationMode::PreCopy), Verdict::GiveUp(_)));
    }

    proptest! {
        #[test]
        fn a_guest_that_is_half_there_is_never_given_up(elapsed: u32, remaining: u64, post_copy: bool) {
            let verdict = of(post_copy, true).judge(elapsed * SECOND, remaining, MigrationMode::PostCopy);
            prop_assert_eq!(verdict, Verdict::GoOn);
        }

        #[test]
        fn every_other_transfer_ends(post_copy: bool, disruption: bool, paused: bool) {
            let mode = if paused { MigrationMode::Paused } else { MigrationMode::PreCopy };
            prop_assert_ne!(of(post_copy, disruption).judge(10_000 * SECOND, 1, mode), Verdict::GoOn);
        }
    }
}
