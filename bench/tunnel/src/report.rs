//! What was measured: as a table for people, as JSON for programs, and against the targets.
//!
//! Rounds are interleaved, so two contenders are compared round by round, and the median of those ratios counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bench_figures::Summary;
use bench_stage::machine::Machine;
use serde::Serialize;
use serde_json::json;

use crate::contender::Contender;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    Throughput1,
    Processor1,
    Throughput4,
    Processor4,
    OpenP50,
    OpenP99,
    PageP50,
    PageP99,
    PageStream,
}

impl Figure {
    pub const ALL: [Self; 9] = [
        Self::Throughput1,
        Self::Processor1,
        Self::Throughput4,
        Self::Processor4,
        Self::OpenP50,
        Self::OpenP99,
        Self::PageP50,
        Self::PageP99,
        Self::PageStream,
    ];

    /// For a line of progress.
    pub fn short(self) -> &'static str {
        match self {
            Self::Throughput1 => "MiB/s",
            Self::Throughput4 => "4×MiB/s",
            Self::Processor1 | Self::Processor4 => "s/GiB",
            Self::OpenP50 => "open µs",
            Self::PageP50 => "page µs",
            Self::OpenP99 | Self::PageP99 => "p99",
            Self::PageStream => "beside MiB/s",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Throughput1 => "1 stream, MiB/s",
            Self::Processor1 => "1 stream, relay CPU s/GiB",
            Self::Throughput4 => "4 streams, MiB/s",
            Self::Processor4 => "4 streams, relay CPU s/GiB",
            Self::OpenP50 => "channel open and first page, p50 µs",
            Self::OpenP99 => "channel open and first page, p99 µs",
            Self::PageP50 => "page beside a stream, p50 µs",
            Self::PageP99 => "page beside a stream, p99 µs",
            Self::PageStream => "that stream meanwhile, MiB/s",
        }
    }
}

/// A goal is judged by so many rounds at least.
const ENOUGH: usize = 5;

/// Ours against another: which ratio is allowed.
struct Goal {
    figure: Figure,
    ours: Contender,
    other: Contender,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

fn goals() -> Vec<Goal> {
    use Bound::{AtLeast, AtMost};
    use Contender::{Direct, GoTls, GodwitPlain, GodwitTls, HaproxySplice, HaproxyTls, HaproxyTls64k};
    let goal = |figure, ours, other, bound| Goal { figure, ours, other, bound };
    let mut goals = vec![
        goal(Figure::Throughput1, GodwitTls, GoTls, AtLeast(2.0)),
        goal(Figure::Throughput4, GodwitTls, GoTls, AtLeast(2.0)),
        goal(Figure::Processor1, GodwitTls, GoTls, AtMost(0.55)),
        goal(Figure::Processor4, GodwitTls, GoTls, AtMost(0.55)),
        goal(Figure::OpenP50, GodwitTls, GoTls, AtMost(0.5)),
        goal(Figure::PageP99, GodwitTls, Direct, AtMost(4.0)),
        goal(Figure::Throughput1, GodwitPlain, HaproxySplice, AtLeast(1.0)),
        goal(Figure::Throughput4, GodwitPlain, HaproxySplice, AtLeast(1.0)),
    ];
    for other in [HaproxyTls, HaproxyTls64k] {
        for figure in [Figure::Throughput1, Figure::Throughput4, Figure::PageStream] {
            goals.push(goal(figure, GodwitTls, other, AtLeast(1.0)));
        }
        for figure in [
            Figure::Processor1,
            Figure::Processor4,
            Figure::OpenP50,
            Figure::OpenP99,
            Figure::PageP50,
            Figure::PageP99,
        ] {
            goals.push(goal(figure, GodwitTls, other, AtMost(1.0)));
        }
    }
    goals
}

#[derive(Default)]
pub struct Report {
    /// One value a round.
    values: BTreeMap<Figure, BTreeMap<Contender, Vec<f64>>>,
    /// The share of the machine that others had, in every measurement.
    foreign: Vec<f64>,
}

/// How a goal was met, or not.
#[derive(Serialize)]
struct Judgement {
    figure: Figure,
    ours: Contender,
    other: Contender,
    ratio: f64,
    goal: String,
    met: bool,
}

impl Report {
    pub fn record(&mut self, contender: Contender, figure: Figure, value: f64, foreign: f64) {
        self.foreign.push(foreign);
        self.values.entry(figure).or_default().entry(contender).or_default().push(value);
    }

    fn summary(&self, figure: Figure, contender: Contender) -> Option<Summary> {
        Summary::of(self.values.get(&figure)?.get(&contender)?)
    }

    /// The median of the rounds' ratios.
    fn ratio(&self, figure: Figure, ours: Contender, other: Contender) -> Option<f64> {
        let values = self.values.get(&figure)?;
        let ratios: Vec<f64> =
            values.get(&ours)?.iter().zip(values.get(&other)?).map(|(ours, other)| ours / other).collect();
        Summary::of(&ratios).map(|ratios| ratios.median)
    }

    fn judgements(&self) -> Vec<Judgement> {
        let judge = |goal: Goal| {
            let Goal { figure, ours, other, bound } = goal;
            let ratio = self.ratio(figure, ours, other)?;
            let (goal, met) = match bound {
                Bound::AtLeast(least) => (format!("at least {least}"), ratio >= least),
                Bound::AtMost(most) => (format!("at most {most}"), ratio <= most),
            };
            Some(Judgement { figure, ours, other, ratio, goal, met })
        };
        goals().into_iter().filter_map(judge).collect()
    }

    /// What the targets ask for and the numbers do not give. What was not measured, or not often enough, is not met.
    pub fn misses(&self) -> Vec<String> {
        let say = |miss: Judgement| {
            let Judgement { figure, ours, other, ratio, goal, .. } = miss;
            let (title, ours, other) = (figure.title(), ours.name(), other.name());
            format!("{title}: {ours} is {ratio:.2} of {other}, to be {goal}")
        };
        let missed = self.judgements().into_iter().filter(|judgement| !judgement.met).map(say);
        let rounds = |goal: &Goal| Some(self.values.get(&goal.figure)?.get(&goal.other)?.len());
        let unmeasured = goals().into_iter().filter(|goal| rounds(goal) < Some(ENOUGH)).map(|goal| {
            let (title, other) = (goal.figure.title(), goal.other.name());
            format!("{title}: {other} was measured {} times, to be {ENOUGH}", rounds(&goal).unwrap_or(0))
        });
        missed.chain(unmeasured).collect()
    }

    pub fn table(&self) -> String {
        let mut text = String::new();
        for figure in Figure::ALL {
            let Some(values) = self.values.get(&figure) else {
                continue;
            };
            let _ = writeln!(text, "{}", figure.title());
            for contender in values.keys() {
                let Some(Summary { median, min, max }) = self.summary(figure, *contender) else {
                    continue;
                };
                let spread = format!("({}..{})", number(min), number(max));
                let _ = writeln!(text, "  {:<16}{:>8}  {spread}", contender.name(), number(median));
            }
        }
        let _ = writeln!(text, "goals (median of the rounds' ratios)");
        for Judgement { figure, ours, other, ratio, goal, met } in self.judgements() {
            let (ours, other) = (ours.name(), other.name());
            let verdict = if met { "" } else { "MISSED" };
            let what = format!("{ours} / {other}");
            let _ = writeln!(text, "  {:<38}{what:<32}{ratio:>7.2}  {goal:<13} {verdict}", figure.title());
        }
        if let Some(foreign) = Summary::of(&self.foreign) {
            let percent = |share: f64| share * 100.0;
            let (median, max) = (percent(foreign.median), percent(foreign.max));
            let _ = writeln!(
                text,
                "others had {median:.0} % of the machine in the median measurement, {max:.0} % in the worst"
            );
        }
        text
    }

    pub fn json(&self, machine: &Machine) -> serde_json::Value {
        let summaries: BTreeMap<&str, BTreeMap<&str, Option<Summary>>> = self
            .values
            .iter()
            .map(|(figure, values)| {
                let row =
                    values.keys().map(|contender| (contender.name(), self.summary(*figure, *contender)));
                (figure.title(), row.collect())
            })
            .collect();
        let rounds: BTreeMap<&str, BTreeMap<&str, &Vec<f64>>> = self
            .values
            .iter()
            .map(|(figure, values)| {
                (
                    figure.title(),
                    values.iter().map(|(contender, rounds)| (contender.name(), rounds)).collect(),
                )
            })
            .collect();
        json!({
            "machine": machine,
            "foreign": Summary::of(&self.foreign),
            "summaries": summaries,
            "rounds": rounds,
            "goals": self.judgements(),
        })
    }
}

/// With about three digits that mean something.
pub fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_missed_by_the_median_of_the_rounds_and_by_what_was_not_measured() {
        let mut report = Report::default();
        let about = |report: &Report, figure: Figure| -> Vec<String> {
            let of_go = |miss: &String| miss.starts_with(figure.title()) && miss.contains("go-tls");
            report.misses().into_iter().filter(of_go).collect()
        };
        let unmeasured = "1 stream, MiB/s: go-tls was measured 0 times, to be 5";
        assert_eq!(about(&report, Figure::Throughput1), [unmeasured]);
        for (ours, go) in [(900.0, 400.0), (300.0, 400.0), (840.0, 400.0), (300.0, 400.0), (880.0, 400.0)] {
            report.record(Contender::GodwitTls, Figure::Throughput1, ours, 0.0);
            report.record(Contender::GoTls, Figure::Throughput1, go, 0.0);
            report.record(Contender::GodwitTls, Figure::Processor4, 3.0, 0.0);
            report.record(Contender::GoTls, Figure::Processor4, 4.0, 0.0);
        }
        assert_eq!(about(&report, Figure::Throughput1), [""; 0]);
        let missed = "4 streams, relay CPU s/GiB: godwit-tls is 0.75 of go-tls, to be at most 0.55";
        assert_eq!(about(&report, Figure::Processor4), [missed]);
    }
}
