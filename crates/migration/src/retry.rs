//! When a VM that could not be moved is moved again by the system. What a person asked for is tried once.

use std::time::Duration;

/// The first pause, as KubeVirt has it; each is twice the one before.
const FIRST: Duration = Duration::from_secs(20);
/// More than an hour helps nobody.
const LONGEST: Duration = Duration::from_hours(1);

/// How long to wait after this many failures in a row.
pub fn pause_after(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
    FIRST.checked_mul(2_u32.saturating_pow(doublings)).map_or(LONGEST, |pause| pause.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_long_each_time() {
        let seconds: Vec<u64> = (0..5).map(|failures| pause_after(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 20, 40, 80, 160]);
        assert_eq!(pause_after(u32::MAX), LONGEST);
    }
}
