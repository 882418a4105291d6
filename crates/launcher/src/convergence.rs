//! Whether a move gets anywhere, and what is done when it does not.
//!
//! ```text
//!            time over: post-copy allowed ─────────────────────────────► PostCopy ─► nothing stops it any more
//!  PreCopy ─┬ time over: disruption allowed ─► Paused ─ time over again ─┐
//!           ├ time over ─────────────────────────────────────────────────┼► given up
//!           └ no progress for too long ──────────────────────────────────┘
//! ```
//!
//! Pure: samples and the time since the move began go in, one verdict comes out. Invariant: after post-copy has begun, a
//! move is never given up; the guest's memory is in two places then, and giving up would lose it.

use std::time::Duration;

use api::kubevirt::{MigrationMode, ProgressSample};
use wire::MigrateOptions;

const GIB: u64 = 1 << 30;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    /// Let the guest run at the target.
    PostCopy,
    /// Let it stand still.
    Pause,
    GiveUp {
        reason: String,
    },
}

/// One move, watched.
#[derive(Clone, Debug)]
pub struct Convergence {
    per_gib: u64,
    without_progress: Duration,
    post_copy: bool,
    disruption: bool,
    mode: MigrationMode,
    /// The least that was ever left, and when it was seen first.
    least: Option<(u64, Duration)>,
}

impl Convergence {
    pub fn new(options: &MigrateOptions) -> Self {
        Self {
            per_gib: options.seconds_per_gib,
            without_progress: Duration::from_secs(options.progress_timeout_seconds),
            post_copy: options.post_copy,
            disruption: options.workload_disruption,
            mode: MigrationMode::PreCopy,
            least: None,
        }
    }

    /// How the guest moves at present.
    pub fn mode(&self) -> MigrationMode {
        self.mode
    }

    /// Takes in how far the move is, so long after it began.
    pub fn judge(&mut self, elapsed: Duration, sample: &ProgressSample) -> Verdict {
        if self.mode == MigrationMode::PostCopy || sample.total_bytes == 0 {
            return Verdict::GoOn;
        }
        let (least, since) = match self.least {
            Some((least, since)) if sample.remaining_bytes >= least => (least, since),
            _ => (sample.remaining_bytes, elapsed),
        };
        self.least = Some((least, since));
        let stuck = elapsed.saturating_sub(since);
        if stuck >= self.without_progress {
            let left = sample.remaining_bytes;
            let reason =
                format!("the move is stuck: {left} bytes are left, and that for {} s", stuck.as_secs());
            return Verdict::GiveUp { reason };
        }
        let allowed = self.allowed(sample.total_bytes);
        if elapsed < allowed {
            return Verdict::GoOn;
        }
        if self.mode == MigrationMode::PreCopy && self.post_copy {
            self.mode = MigrationMode::PostCopy;
            return Verdict::PostCopy;
        }
        if self.mode == MigrationMode::PreCopy && self.disruption {
            self.mode = MigrationMode::Paused;
            return Verdict::Pause;
        }
        let rates = format!(
            "the guest writes {} bytes/s, {} bytes/s are sent",
            sample.dirty_bytes_per_second, sample.bytes_per_second
        );
        let reason = format!("the move did not end within {} s: {rates}", allowed.as_secs());
        Verdict::GiveUp { reason }
    }

    /// A guest that stands still has as much time again.
    fn allowed(&self, total_bytes: u64) -> Duration {
        let once = self.per_gib.saturating_mul(total_bytes.div_ceil(GIB).max(1));
        let times = if self.mode == MigrationMode::Paused { 2 } else { 1 };
        Duration::from_secs(once.saturating_mul(times))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(post_copy: bool, workload_disruption: bool) -> MigrateOptions {
        MigrateOptions {
            post_copy,
            workload_disruption,
            seconds_per_gib: 10,
            progress_timeout_seconds: 30,
            ..MigrateOptions::default()
        }
    }

    /// A guest of 2 GiB with this much left.
    fn left(remaining_bytes: u64) -> ProgressSample {
        ProgressSample { total_bytes: 2 * GIB, remaining_bytes, ..ProgressSample::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn when_the_time_is_over() {
        for (post_copy, disruption, expected) in [
            (true, true, vec![Verdict::PostCopy, Verdict::GoOn]),
            (true, false, vec![Verdict::PostCopy, Verdict::GoOn]),
            (false, true, vec![Verdict::Pause]),
        ] {
            let mut watch = Convergence::new(&options(post_copy, disruption));
            assert_eq!(watch.judge(at(19), &left(900)), Verdict::GoOn);
            for (seconds, verdict) in (20..).zip(expected) {
                assert_eq!(watch.judge(at(seconds), &left(900 - seconds)), verdict);
            }
        }
        let mut watch = Convergence::new(&options(false, false));
        let Verdict::GiveUp { reason } = watch.judge(at(20), &left(900)) else { panic!("it is given up") };
        assert!(reason.starts_with("the move did not end within 20 s"), "{reason}");
    }

    #[test]
    fn a_guest_that_stands_still_has_the_time_again() {
        let mut watch = Convergence::new(&options(false, true));
        assert_eq!(watch.judge(at(20), &left(900)), Verdict::Pause);
        assert_eq!(watch.mode(), MigrationMode::Paused);
        assert_eq!(watch.judge(at(39), &left(800)), Verdict::GoOn);
        assert!(matches!(watch.judge(at(40), &left(700)), Verdict::GiveUp { .. }));
    }

    #[test]
    fn progress_is_a_new_least() {
        let mut watch = Convergence::new(&MigrateOptions { seconds_per_gib: 1000, ..options(true, true) });
        for (seconds, remaining) in [(0, 900), (29, 899), (40, 950), (58, 899)] {
            assert_eq!(watch.judge(at(seconds), &left(remaining)), Verdict::GoOn);
        }
        let Verdict::GiveUp { reason } = watch.judge(at(59), &left(905)) else { panic!("it is stuck") };
        assert!(reason.contains("905 bytes are left, and that for 30 s"), "{reason}");
    }

    proptest! {
        #[test]
        fn post_copy_is_never_given_up(samples in prop::collection::vec((0..1000_u64, any::<u64>()), 0..50)) {
            let mut watch = Convergence::new(&options(true, true));
            let mut begun = false;
            let mut elapsed = 0;
            for (seconds, remaining) in samples {
                elapsed += seconds;
                let verdict = watch.judge(at(elapsed), &left(remaining));
                prop_assert!(!begun || verdict == Verdict::GoOn);
                begun |= verdict == Verdict::PostCopy;
            }
        }
    }
}
