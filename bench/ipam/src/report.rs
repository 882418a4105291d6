//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write as _;
use std::fs::read_to_string;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench_figures::Summary;
use serde::Serialize;

use crate::place::Place;
use crate::rows::{Measured, Row};

#[derive(Serialize)]
pub struct Report {
    cores: usize,
    kernel: String,
    /// Of cargo, for this program.
    profile: String,
    /// Processes that wanted a processor in the minute before the run: others' work distorts the numbers.
    load_before: String,
    /// A write of 4 KiB that waits for the disk: every address is one at least, shared with others that wait.
    fsync_p50_ms: f64,
    lines: Vec<Line>,
}

/// A row, over the rounds.
#[derive(Serialize)]
struct Line {
    row: &'static str,
    at_once: usize,
    calls: usize,
    failed: usize,
    per_second: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
    max_ms: Vec<f64>,
}

impl Report {
    pub fn new(place: &Place) -> Result<Self> {
        let first = |path: &str| -> Result<String> {
            Ok(read_to_string(path)?.split_whitespace().next().unwrap_or_default().to_owned())
        };
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            kernel: first("/proc/sys/kernel/osrelease")?,
            profile: bench_figures::profile()?,
            load_before: first("/proc/loadavg")?,
            fsync_p50_ms: fsync(place.path())?,
            lines: Vec::new(),
        })
    }

    pub fn add(&mut self, row: &Row, measured: Measured) {
        let mut sorted = measured.latencies;
        sorted.sort_unstable();
        let calls = sorted.len();
        let count = u32::try_from(calls).map_or(f64::INFINITY, f64::from);
        let rate = count / measured.elapsed.as_secs_f64();
        let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(&sorted, percent));
        eprintln!("{:<9} {rate:>6.1}/s  p50 {p50:.1} ms  p99 {p99:.1} ms", row.name);
        let known = self.lines.iter().position(|line| line.row == row.name);
        let line = known.unwrap_or_else(|| {
            self.lines.push(Line::new(row));
            self.lines.len() - 1
        });
        let line = &mut self.lines[line];
        line.calls += calls;
        line.failed += measured.failed;
        line.per_second.push(rate);
        line.p50_ms.push(p50);
        line.p99_ms.push(p99);
        line.max_ms.push(max);
    }

    /// In the median of the rounds.
    pub fn p99(&self, row: &str) -> Option<f64> {
        let line = self.lines.iter().find(|line| line.row == row)?;
        Some(Summary::of(&line.p99_ms)?.median)
    }

    pub fn table(&self) -> String {
        let Self { cores, kernel, profile, load_before, fsync_p50_ms, .. } = self;
        let mut text = format!(
            "{cores} cores, Linux {kernel}, profile {profile}, load before {load_before}, fsync p50 {fsync_p50_ms:.2} ms\n\n"
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<9} {:>7} {:>8} {:>6} {:>10} {:>8} {:>22} {:>8}",
            "row", "at once", "answered", "failed", "per second", "p50, ms", "p99, ms", "max, ms"
        );
        for Line { row, at_once, calls, failed, per_second, p50_ms, p99_ms, max_ms } in &self.lines {
            let median = |values: &[f64]| Summary::of(values).map_or(0.0, |summary| summary.median);
            let p99 = Summary::of(p99_ms).map_or_else(String::new, |all| {
                format!("{:.1}  ({:.1}..{:.1})", all.median, all.min, all.max)
            });
            let _ = writeln!(
                text,
                "{row:<9} {at_once:>7} {calls:>8} {failed:>6} {:>10.1} {:>8.1} {p99:>22} {:>8.1}",
                median(per_second),
                median(p50_ms),
                median(max_ms),
            );
        }
        text
    }
}

impl Line {
    fn new(row: &Row) -> Self {
        Self {
            row: row.name,
            at_once: row.at_once,
            calls: 0,
            failed: 0,
            per_second: Vec::new(),
            p50_ms: Vec::new(),
            p99_ms: Vec::new(),
            max_ms: Vec::new(),
        }
    }
}

/// The percentile of the (sorted) values, in milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    bench_figures::percentile(sorted, percent).as_secs_f64() * 1e3
}

fn fsync(directory: &Path) -> Result<f64> {
    let mut file = std::fs::File::create(directory.join("fsync"))?;
    let mut latencies = Vec::new();
    for _ in 0..100 {
        let begin = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        latencies.push(begin.elapsed());
    }
    latencies.sort_unstable();
    Ok(percentile(&latencies, 50))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "these are exact")]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_secs).collect();
        assert_eq!(percentile(&sorted, 50), 100_000.0);
        assert_eq!(percentile(&sorted, 99), 198_000.0);
        assert_eq!(percentile(&sorted, 100), 200_000.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }
}
