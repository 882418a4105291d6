//! What was measured: as a table for people, as JSON for programs, and against the targets.
//!
//! The ways are taken in turns, so two of them are compared round by round, and the median of those ratios counts.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use bench_figures::Summary;
use bench_stage::machine::Machine;
use serde::Serialize;
use serde_json::json;

use crate::way::Way;

/// Ours is to be so many times as fast as QEMU's own TLS.
const FASTER: f64 = 2.0;
/// Of so many moves the worst counts.
const ENOUGH: usize = 20;

/// What is compared with what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub busy: bool,
    pub connections: u8,
    pub way: Way,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.busy { "dirtying" } else { "idle" };
        let several = if self.connections > 1 { "connections" } else { "connection" };
        f.pad(&format!("{what}, {} {several}, {}", self.connections, self.way.name()))
    }
}

/// One move.
#[derive(Clone, Copy, Serialize)]
pub struct Move {
    pub seconds: f64,
    pub mebibytes: f64,
    /// From the moment that the guest stops at the source to the one that it runs at the target.
    pub downtime_ms: f64,
    /// Processor seconds of both sides of the tunnel.
    pub relays: f64,
    /// The share of the machine that went to processes that are none of ours.
    pub foreign: f64,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, mebibytes, downtime_ms, .. } = self;
        write!(f, "{seconds:>6.2} s {mebibytes:>6.0} MiB, standing still {downtime_ms:>4.0} ms")
    }
}

pub struct Report {
    downtime_limit_ms: u32,
    moves: BTreeMap<Row, Vec<Move>>,
}

impl Report {
    pub fn new(downtime_limit_ms: u32) -> Self {
        Self { downtime_limit_ms, moves: BTreeMap::new() }
    }

    pub fn record(&mut self, row: Row, took: Move) {
        self.moves.entry(row).or_default().push(took);
    }

    fn summary(&self, row: Row, of: impl Fn(&Move) -> f64) -> Option<Summary> {
        Summary::of(&self.moves.get(&row)?.iter().map(of).collect::<Vec<_>>())
    }

    /// How many times as fast as QEMU's own TLS.
    fn faster(&self, row: Row) -> Option<f64> {
        let other = self.moves.get(&Row { way: Way::QemuTls, ..row })?;
        let ratios: Vec<f64> = other
            .iter()
            .zip(self.moves.get(&row)?)
            .map(|(other, ours)| (ours.mebibytes / ours.seconds) / (other.mebibytes / other.seconds))
            .collect();
        Summary::of(&ratios).map(|ratios| ratios.median)
    }

    /// Moves through the tunnel, and the longest time that a guest stood still in one of them.
    fn worst_downtime(&self) -> Option<(usize, f64)> {
        let ours: Vec<f64> = self
            .moves
            .iter()
            .filter(|(row, _)| row.way == Way::Godwit)
            .flat_map(|(_, moves)| moves.iter().map(|took| took.downtime_ms))
            .collect();
        Some((ours.len(), Summary::of(&ours)?.max))
    }

    /// What the targets ask for and the numbers do not give.
    pub fn misses(&self) -> Vec<String> {
        let mut misses = Vec::new();
        for row in self.moves.keys().filter(|row| row.way == Way::Godwit) {
            if let Some(ratio) = self.faster(*row)
                && ratio < FASTER
            {
                misses.push(format!("{row}: {ratio:.2} times the rate of QEMU's own TLS, to be {FASTER}"));
            }
        }
        if let Some((count, worst)) = self.worst_downtime() {
            let limit = self.downtime_limit_ms;
            if worst > f64::from(limit) {
                misses.push(format!("a guest stood still for {worst:.0} ms, to be {limit} at most"));
            }
            if count < ENOUGH {
                misses.push(format!("{count} moves are too few to speak of the worst, to be {ENOUGH}"));
            }
        }
        misses
    }

    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<34}{:>22}{:>18}{:>20}{:>22}\n",
            "", "total s", "MiB/s", "MiB sent", "standing still ms"
        );
        for row in self.moves.keys() {
            let column = |of: fn(&Move) -> f64, digits: usize| {
                self.summary(*row, of).map_or_else(String::new, |Summary { median, min, max }| {
                    format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
                })
            };
            let columns = [
                column(|took| took.seconds, 2),
                column(|took| took.mebibytes / took.seconds, 0),
                column(|took| took.mebibytes, 0),
                column(|took| took.downtime_ms, 0),
            ];
            let [total, rate, sent, downtime] = columns;
            let _ = writeln!(text, "{row:<34}{total:>22}{rate:>18}{sent:>20}{downtime:>22}");
        }
        for row in self.moves.keys().filter(|row| row.way == Way::Godwit) {
            if let Some(ratio) = self.faster(*row) {
                let _ = writeln!(
                    text,
                    "{row}: {ratio:.2} times the rate of QEMU's own TLS (goal: at least {FASTER})"
                );
            }
        }
        if let Some((count, worst)) = self.worst_downtime() {
            let limit = self.downtime_limit_ms;
            let _ = writeln!(
                text,
                "the worst of {count} moves through the tunnel stood still for {worst:.0} ms (limit {limit})"
            );
        }
        text
    }

    pub fn json(&self, machine: &Machine) -> serde_json::Value {
        let rows: Vec<_> = self
            .moves
            .iter()
            .map(|(row, moves)| {
                json!({ "busy": row.busy, "connections": row.connections, "way": row.way, "moves": moves,
                    "times_qemu_tls": self.faster(*row) })
            })
            .collect();
        json!({ "machine": machine, "downtime_limit_ms": self.downtime_limit_ms, "rows": rows, "misses": self.misses() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_compared_round_by_round_and_the_worst_downtime_counts() {
        let mut report = Report::new(300);
        let took =
            |seconds, downtime_ms| Move { seconds, mebibytes: 700.0, downtime_ms, relays: 0.0, foreign: 0.0 };
        let row = |way| Row { busy: false, connections: 1, way };
        for _ in 0..ENOUGH {
            report.record(row(Way::QemuTls), took(3.0, 900.0));
            report.record(row(Way::Godwit), took(1.0, 120.0));
        }
        assert!(report.misses().is_empty(), "{:?}", report.misses());
        for _ in 0..ENOUGH {
            report.record(Row { connections: 4, ..row(Way::QemuTls) }, took(3.0, 10.0));
            report.record(Row { connections: 4, ..row(Way::Godwit) }, took(2.0, 301.0));
        }
        let missed = [
            "idle, 4 connections, godwit: 1.50 times the rate of QEMU's own TLS, to be 2",
            "a guest stood still for 301 ms, to be 300 at most",
        ];
        assert_eq!(report.misses(), missed);
    }
}
