//! How much is due by now, at a given rate. Pure.
//!
//! Whoever is late catches up a little, never all: after the pause of a migration the guest goes on at its rate, without a burst that
//! nobody asked for.

use std::time::Duration;

/// The most that is caught up at once.
const CATCH_UP: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    per_second: u64,
    /// What was done or forgiven.
    settled: u64,
}

impl Pace {
    pub fn new(per_second: u64) -> Self {
        Self { per_second, settled: 0 }
    }

    /// How many are due now, `elapsed` after the start; the caller does them. Time never goes backwards.
    pub fn due(&mut self, elapsed: Duration) -> u64 {
        let target = within(self.per_second, elapsed);
        let behind = target.saturating_sub(self.settled);
        self.settled = self.settled.max(target);
        behind.min(within(self.per_second, CATCH_UP).max(1))
    }
}

fn within(per_second: u64, time: Duration) -> u64 {
    let count = u128::from(per_second).saturating_mul(time.as_nanos()) / 1_000_000_000;
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Looked at often enough, the pace is the rate, to within one.
        #[test]
        fn steady_looks_give_the_rate(rate in 0_u64..10_000_000, steps in prop::collection::vec(1_u64..100_000, 1..200)) {
            let (mut pace, mut elapsed, mut done) = (Pace::new(rate), Duration::ZERO, 0_u64);
            for step in steps {
                elapsed += Duration::from_micros(step);
                done += pace.due(elapsed);
            }
            let exact = u128::from(rate) * elapsed.as_micros() / 1_000_000;
            prop_assert!(u128::from(done) <= exact, "{done} > {exact}");
            prop_assert!(u128::from(done) + 1 >= exact, "{done} < {exact}");
        }

        /// However long nobody looked, at most the catch-up is due, and the rate holds afterwards.
        #[test]
        fn a_pause_is_not_made_up_for(rate in 10_u64..1_000_000, pause in 1_u64..1_000_000) {
            let mut pace = Pace::new(rate);
            let pause = Duration::from_millis(pause);
            prop_assert!(pace.due(pause) <= rate / 10);
            prop_assert!(pace.due(pause + Duration::from_millis(50)) <= rate / 20 + 1);
        }
    }

    #[test]
    fn a_slow_rate_is_kept_too() {
        let mut pace = Pace::new(1);
        assert_eq!(pace.due(Duration::from_millis(999)), 0);
        assert_eq!(pace.due(Duration::from_millis(1001)), 1);
        assert_eq!(pace.due(Duration::from_millis(1999)), 0);
    }
}
