//! How much may be left to send when the guest is stopped: as much as the road carries within the downtime that is allowed.
//!
//! A hypervisor that judges that by itself takes what went into its socket in a tenth of a second for the speed of the road. Buffers on
//! the way swallow the first megabytes at once, so a small guest is stopped at once, and stands still until a slow road has carried
//! what is left. Here the speed is what went in over longer, and only once buffers have filled.
//!
//! ```text
//!   nothing known: UNKNOWN ──► after the first SPAN: the best SPAN of the last RECENT, less what is kept back ──► ...
//!                     └─ PLENTY went in before that: no buffer holds so much, and a fast road need not be waited for ─┘
//! ```
//!
//! An estimate that is too low is no trap. A guest that writes keeps the road busy with at least what it writes, that is
//! measured, and so a pass over its memory that takes less than the downtime is always followed by the switch-over.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes a second that every road carries. With it, a guest that hardly writes moves at once, and another waits for the first measurement.
const UNKNOWN: u64 = 1 << 20;
/// What is measured over. Long beside the time in which buffers fill and bursts pass.
const SPAN: Duration = Duration::from_secs(1);
/// So many bytes are no longer in buffers: a transfer that has sent them within the first span has met its road.
const PLENTY: u64 = 128 << 20;
/// What buffers may hold of them, all together.
const BUFFERS: u64 = 32 << 20;
/// How long a measurement counts. The best of them does: a hypervisor that looks for pages to send has not met a slower road.
const RECENT: Duration = Duration::from_secs(5);
/// A change of less than this part is not worth telling.
const NOTICEABLE: u64 = 8;

/// How fast a transfer has gone so far.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// When so many bytes had been sent: those of the last span, and the one before them.
    samples: VecDeque<(Duration, u64)>,
    /// When spans ended, and their bytes a second.
    spans: VecDeque<(Duration, u64)>,
    told: Option<u64>,
}

impl Pace {
    /// What the hypervisor is to count on before anything was sent, in bytes a second.
    pub const BEGINNING: u64 = UNKNOWN;

    /// So long after the beginning so many bytes had been sent. What the hypervisor is to count on from now, in bytes a second, if that is
    /// other than what it was told last.
    pub fn measure(&mut self, elapsed: Duration, sent: u64) -> Option<u64> {
        if sent == 0 {
            return None;
        }
        if self.samples.back().is_some_and(|(last, bytes)| elapsed <= *last || sent < *bytes) {
            // Memory after disks, or a clock that stood still: another transfer as far as this can tell.
            self.samples.clear();
            self.spans.clear();
        }
        self.samples.push_back((elapsed, sent));
        let rate = |bytes: u64, time: Duration| {
            bytes.saturating_mul(1000) / u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
        };
        if elapsed < SPAN && sent >= PLENTY {
            self.spans.push_back((elapsed, rate(sent - BUFFERS, elapsed)));
        }
        let is_span = |begin: &(Duration, u64)| elapsed.saturating_sub(begin.0) >= SPAN;
        while self.samples.get(1).is_some_and(is_span) {
            self.samples.pop_front();
        }
        if let Some((began, before)) = self.samples.front().copied().filter(is_span) {
            self.spans.push_back((elapsed, rate(sent - before, elapsed.saturating_sub(began))));
        }
        while self.spans.front().is_some_and(|(ended, _)| elapsed.saturating_sub(*ended) > RECENT) {
            self.spans.pop_front();
        }
        let best = self.spans.iter().map(|(_, rate)| *rate).max()?;
        // A quarter of the downtime is for what is still in buffers, for the state of devices, and for starting the guest.
        let value = (best - best / 4).max(UNKNOWN);
        let told = self.told.unwrap_or(UNKNOWN);
        if value.abs_diff(told) < (told / NOTICEABLE).max(1) {
            return None;
        }
        self.told = Some(value);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TICK: Duration = Duration::from_millis(250);
    const MIB: u64 = 1 << 20;

    /// What is told last of a transfer that sent so many bytes in each tick.
    fn told(ticks: &[u64]) -> Option<u64> {
        let (mut pace, mut sent, mut last) = (Pace::default(), 0, None);
        for (number, bytes) in (1..).zip(ticks) {
            sent += bytes;
            last = pace.measure(TICK * number, sent).or(last);
        }
        last
    }

    #[test]
    fn buffers_that_fill_are_not_the_road() {
        let mut ticks = vec![64 * MIB];
        ticks.extend([10 * MIB; 4]);
        assert_eq!(told(&ticks), Some(30 * MIB), "three quarters of 40 MiB a second");
        assert_eq!(told(&ticks[..4]), None, "nothing is told before a whole span was seen");
    }

    #[test]
    fn a_fast_road_is_known_before_a_slow_one() {
        assert_eq!(
            told(&[160 * MIB]),
            Some(384 * MIB),
            "three quarters of what no buffer holds, in a quarter of a second"
        );
        assert_eq!(told(&[100 * MIB]), None, "buffers may have it");
        assert_eq!(told(&[100 * MIB, 100 * MIB]), Some(252 * MIB));
    }

    #[test]
    fn a_hypervisor_that_looks_for_pages_has_not_met_a_slower_road_but_a_road_that_stays_slow_is_slow() {
        let fast = vec![100 * MIB; 8];
        let then = |ticks: usize| [fast.clone(), vec![5 * MIB; ticks]].concat();
        assert_eq!(told(&then(8)), Some(300 * MIB));
        assert_eq!(told(&then(40)), Some(15 * MIB));
    }

    #[test]
    fn what_hardly_changes_is_told_once() {
        let mut pace = Pace::default();
        let mut values = (1..100_u32).filter_map(|tick| {
            let wobble = u64::from(tick % 3) * 1024;
            pace.measure(TICK * tick, u64::from(tick) * 10 * MIB + wobble)
        });
        assert!(values.next().is_some());
        assert_eq!(values.next(), None);
    }

    #[test]
    fn one_that_begins_anew_is_measured_anew() {
        let mut pace = Pace::default();
        for (tick, sent) in (1..).zip([90, 91, 92, 1, 41, 81, 121, 161]) {
            if let Some(value) = pace.measure(TICK * tick, sent * MIB) {
                assert_eq!(value, 120 * MIB);
                return;
            }
        }
        panic!("never measured");
    }

    proptest! {
        #[test]
        fn never_more_than_the_best_whole_span_nor_less_than_what_every_road_carries(
            ticks in prop::collection::vec(0_u64..1 << 30, 1..60),
        ) {
            let best = ticks[1..].windows(4).map(|span| span.iter().sum()).max().unwrap_or(0);
            // Of the first quarters of a second, what buffers do not hold, in a whole one.
            let early = (1..4_u32).map(|count| {
                let sent: u64 = ticks.iter().take(count as usize).sum();
                if sent < PLENTY { 0 } else { (sent - BUFFERS) * 4 / u64::from(count) }
            });
            let best = early.fold(best, u64::max);
            if let Some(value) = told(&ticks) {
                prop_assert!(value <= u64::max(best, UNKNOWN), "{value} of {best}");
                prop_assert!(value >= UNKNOWN);
            }
        }

        #[test]
        fn a_steady_road_is_told_within_a_span_and_a_tick(rate in 2 * MIB..1 << 40, first in 1..BUFFERS) {
            let mut ticks = vec![first];
            ticks.extend([rate / 4; 4]);
            let value = told(&ticks).unwrap_or(UNKNOWN);
            prop_assert!(value >= rate / 8 * 5 && value <= rate, "{value} of {rate}");
        }

        #[test]
        fn nothing_that_is_measured_breaks_it(samples in prop::collection::vec((0_u64..u64::MAX, any::<u64>()), 0..50)) {
            let mut pace = Pace::default();
            for (millis, sent) in samples {
                if let Some(value) = pace.measure(Duration::from_millis(millis), sent) {
                    prop_assert!(value >= UNKNOWN);
                }
            }
        }
    }
}
