//! What a row of probe results comes to. Pure.
//!
//! ```text
//!            successThreshold in a row
//!   Unknown ───────────────────────────► Success
//!      │                                 │    ▲
//!      │ failureThreshold in a row       ▼    │
//!      └────────────────────────────────► Failure
//! ```

/// What is known of a container's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Unknown,
    Success,
    Failure,
}

/// Counts results of one probe of one run of a container.
#[derive(Debug, Clone)]
pub struct Tracker {
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    in_a_row: u32,
    health: Health,
}

impl Tracker {
    pub fn new(success_threshold: u32, failure_threshold: u32) -> Self {
        Self {
            success_threshold: success_threshold.max(1),
            failure_threshold: failure_threshold.max(1),
            last: None,
            in_a_row: 0,
            health: Health::Unknown,
        }
    }

    /// Takes a result; tells the health if that changed.
    pub fn take(&mut self, success: bool) -> Option<Health> {
        self.in_a_row = if self.last == Some(success) { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(success);
        let (threshold, health) = if success {
            (self.success_threshold, Health::Success)
        } else {
            (self.failure_threshold, Health::Failure)
        };
        let changed = self.in_a_row >= threshold && self.health != health;
        changed.then(|| {
            self.health = health;
            health
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thresholds_count_results_in_a_row() {
        let cases: [(u32, u32, &str, &str); 6] = [
            (1, 3, "+", "S"),
            (1, 3, "--+--", "..S.."),
            (1, 3, "---", "..F"),
            (2, 1, "-+-++-", "F...SF"),
            (1, 1, "++-+", "S.FS"),
            (0, 0, "-+", "FS"),
        ];
        for (success, failure, results, expected) in cases {
            let mut tracker = Tracker::new(success, failure);
            let told: String = results
                .chars()
                .map(|result| match tracker.take(result == '+') {
                    None => '.',
                    Some(Health::Success) => 'S',
                    Some(Health::Failure) => 'F',
                    Some(Health::Unknown) => '?',
                })
                .collect();
            assert_eq!(told, expected, "{success} {failure} {results}");
        }
    }

    proptest! {
        /// Whatever came before, enough results of one kind in a row decide, and never fewer.
        #[test]
        fn the_last_results_decide(
            before in proptest::collection::vec(any::<bool>(), 0..20),
            last in any::<bool>(),
            success in 1_u32..5,
            failure in 1_u32..5,
        ) {
            let mut tracker = Tracker::new(success, failure);
            for result in before {
                tracker.take(result);
            }
            tracker.take(!last);
            let settled = tracker.health;
            let threshold = if last { success } else { failure };
            for _ in 1..threshold {
                prop_assert_eq!(tracker.take(last), None);
                prop_assert_eq!(tracker.health, settled);
            }
            tracker.take(last);
            prop_assert_eq!(tracker.health, if last { Health::Success } else { Health::Failure });
        }
    }
}
