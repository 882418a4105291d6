//! What many measurements come to: percentiles of one run, median and spread of several. Every benchmark says it in these terms.

use std::time::Duration;

use serde::Serialize;

/// The smallest value that so many percent of the (sorted) values do not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// The profile that this program was built with: cargo names the directory of a program after it.
pub fn profile() -> std::io::Result<String> {
    let program = std::env::current_exe()?;
    let directory = program.parent().and_then(std::path::Path::file_name).unwrap_or_default();
    Ok(directory.to_string_lossy().into_owned())
}

/// What the rounds of one row agree on, and by how much they differ.
#[derive(Clone, Copy, Serialize)]
pub struct Summary {
    /// Half of them are no larger.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of at least one value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let half = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(percentile(&sorted[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "these are exact")]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[9.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert!(Summary::of(&[]).is_none());
    }
}
