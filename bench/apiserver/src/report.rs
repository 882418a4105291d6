//! What was measured: as a table for people, as JSON for programs, and against the targets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bench_figures::Summary;
use serde::Serialize;
use serde_json::json;

use crate::machine::Machine;
use crate::server::Side;

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Rate,
    P50,
    P99,
    /// Of the server, for one operation. Watch rows count deliveries; the cost of opening the watches is in it.
    Processor,
    Start,
    Resident,
    Proportional,
}

impl Metric {
    pub fn label(self) -> &'static str {
        match self {
            Self::Rate => "per second",
            Self::P50 => "p50, ms",
            Self::P99 => "p99, ms",
            Self::Processor => "CPU µs each",
            Self::Start => "to ready, ms",
            Self::Resident => "RSS, MiB",
            Self::Proportional => "PSS, MiB",
        }
    }

    /// What ours must stay below, whatever the real one does.
    fn limit(self) -> Option<f64> {
        match self {
            Self::Start => Some(200.0),
            Self::Resident => Some(30.0),
            _ => None,
        }
    }

    /// Whether a ratio of ours to the real one is ahead; none where being ahead is no target.
    fn ahead(self, ratio: f64) -> Option<bool> {
        match self {
            Self::Rate => Some(ratio > 1.0),
            Self::P99 | Self::Start | Self::Resident | Self::Proportional => Some(ratio < 1.0),
            Self::P50 | Self::Processor => None,
        }
    }
}

/// One number of one row, in each round, on each side.
struct Line {
    row: &'static str,
    metric: Metric,
    values: BTreeMap<Side, Vec<f64>>,
}

impl Line {
    fn summary(&self, side: Side) -> Option<Summary> {
        Summary::of(self.values.get(&side)?)
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.summary(Side::Godwit)?.median / self.summary(Side::Kubernetes)?.median)
    }

    /// Why this line misses its target.
    fn miss(&self) -> Option<String> {
        let ours = self.summary(Side::Godwit)?.median;
        if let Some(limit) = self.metric.limit().filter(|limit| ours >= *limit) {
            return Some(format!("above {limit}"));
        }
        (self.metric.ahead(self.ratio()?) == Some(false)).then(|| "behind".to_owned())
    }
}

#[derive(Default)]
pub struct Report {
    lines: Vec<Line>,
}

impl Report {
    pub fn record(&mut self, row: &'static str, side: Side, measured: Vec<(Metric, f64)>) {
        for (metric, value) in measured {
            let found = self.lines.iter().position(|line| line.row == row && line.metric == metric);
            let index = found.unwrap_or_else(|| {
                self.lines.push(Line { row, metric, values: BTreeMap::new() });
                self.lines.len() - 1
            });
            self.lines[index].values.entry(side).or_default().push(value);
        }
    }

    pub fn misses(&self) -> Vec<String> {
        let miss = |line: &Line| Some(format!("{}, {}: {}", line.row, line.metric.label(), line.miss()?));
        self.lines.iter().filter_map(miss).collect()
    }

    pub fn table(&self) -> String {
        let heads = ["row", "", "godwit", "(min..max)", "kubernetes", "(min..max)", "ratio", ""];
        let mut table = vec![heads.map(str::to_owned)];
        let mut last = "";
        for line in &self.lines {
            let name = if line.row == last { "" } else { line.row };
            last = line.row;
            let [ours, our_spread] = cells(line.summary(Side::Godwit));
            let [real, real_spread] = cells(line.summary(Side::Kubernetes));
            let ratio = line.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
            let miss = line.miss().unwrap_or_default();
            table.push([
                name.to_owned(),
                line.metric.label().to_owned(),
                ours,
                our_spread,
                real,
                real_spread,
                ratio,
                miss,
            ]);
        }
        align(&table)
    }

    pub fn json(&self, machine: &Machine, versions: &BTreeMap<&'static str, String>) -> serde_json::Value {
        let line = |line: &Line| {
            json!({
                "row": line.row,
                "metric": line.metric,
                "godwit": line.summary(Side::Godwit),
                "kubernetes": line.summary(Side::Kubernetes),
                "ratio": line.ratio(),
                "miss": line.miss(),
                "rounds": line.values,
            })
        };
        json!({
            "machine": machine,
            "versions": versions,
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

/// A median and its spread, as text.
fn cells(summary: Option<Summary>) -> [String; 2] {
    summary.map_or_else(Default::default, |Summary { median, min, max }| {
        [number(median), format!("({}..{})", number(min), number(max))]
    })
}

/// With about three digits that mean something.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The first two columns and the last are text and start at the left; the others are numbers and end at the right.
fn align<const N: usize>(table: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in table {
        let mut out = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column < 2 || column == N - 1 {
                write!(out, "{cell:<width$}  ")
            } else {
                write!(out, "{cell:>width$}  ")
            };
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(metric: Metric, ours: f64, real: Option<f64>) -> Report {
        let mut report = Report::default();
        report.record("row", Side::Godwit, vec![(metric, ours)]);
        if let Some(real) = real {
            report.record("row", Side::Kubernetes, vec![(metric, real)]);
        }
        report
    }

    #[test]
    fn a_row_is_missed_when_the_real_server_is_ahead() {
        assert!(report(Metric::Rate, 2.0, Some(1.0)).misses().is_empty());
        assert_eq!(report(Metric::Rate, 1.0, Some(2.0)).misses(), ["row, per second: behind"]);
        assert!(report(Metric::P99, 1.0, Some(2.0)).misses().is_empty());
        assert_eq!(report(Metric::P99, 2.0, Some(1.0)).misses(), ["row, p99, ms: behind"]);
        assert!(report(Metric::Processor, 2.0, Some(1.0)).misses().is_empty(), "no target");
    }

    #[test]
    fn a_limit_holds_also_without_the_real_server() {
        assert!(report(Metric::Resident, 29.0, None).misses().is_empty());
        assert_eq!(report(Metric::Resident, 31.0, None).misses(), ["row, RSS, MiB: above 30"]);
        assert_eq!(report(Metric::Start, 250.0, Some(5000.0)).misses(), ["row, to ready, ms: above 200"]);
    }

    #[test]
    fn columns_line_up() {
        let table = [["a", "b", "1", "x"], ["long", "", "100", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&table), "a     b    1  x\nlong     100\n");
    }
}
