//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write as _;
use std::fs::read_to_string;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::place::Place;
use crate::rows::{Measured, Row};

#[derive(Serialize)]
pub struct Report {
    cores: usize,
    kernel: String,
    /// Processes that wanted a processor in the minute before the run: others' work distorts the numbers.
    load_before: String,
    /// A write of 4 KiB that waits for the disk: every address is one at least, shared with others that wait.
    fsync_p50_ms: f64,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    row: &'static str,
    at_once: usize,
    calls: usize,
    failed: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Report {
    pub fn new(place: &Place) -> Result<Self> {
        let first = |path: &str| -> Result<String> {
            Ok(read_to_string(path)?.split_whitespace().next().unwrap_or_default().to_owned())
        };
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            kernel: first("/proc/sys/kernel/osrelease")?,
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
        let line = Line {
            row: row.name,
            at_once: row.at_once,
            calls,
            failed: measured.failed,
            per_second: count / measured.elapsed.as_secs_f64(),
            p50_ms: percentile(&sorted, 50),
            p99_ms: percentile(&sorted, 99),
            max_ms: percentile(&sorted, 100),
        };
        eprintln!(
            "{:<9} {:>6.1}/s  p50 {:.1} ms  p99 {:.1} ms",
            line.row, line.per_second, line.p50_ms, line.p99_ms
        );
        self.lines.push(line);
    }

    pub fn p99(&self, row: &str) -> Option<f64> {
        self.lines.iter().find(|line| line.row == row).map(|line| line.p99_ms)
    }

    pub fn table(&self) -> String {
        let Self { cores, kernel, load_before, fsync_p50_ms, .. } = self;
        let mut text = format!(
            "{cores} cores, Linux {kernel}, load before {load_before}, fsync p50 {fsync_p50_ms:.2} ms\n\n"
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<9} {:>8} {:>8} {:>6} {:>11} {:>8} {:>8} {:>8}",
            "row", "at once", "answered", "failed", "per second", "p50, ms", "p99, ms", "max, ms"
        );
        for Line { row, at_once, calls, failed, per_second, p50_ms, p99_ms, max_ms } in &self.lines {
            let _ = writeln!(
                text,
                "{row:<9} {at_once:>8} {calls:>8} {failed:>6} {per_second:>11.1} {p50_ms:>8.1} {p99_ms:>8.1} {max_ms:>8.1}"
            );
        }
        text
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
