//! The tunnel beside the relays that others use, in one run: throughput, processor time, latency.
//!
//! Every path leads from a unix socket of one process in one namespace to a unix socket of another in another, as between QEMU and QEMU
//! on two nodes. The contenders are measured in turns, a short while each, so that whatever else the machine does falls on all. This file is the order of
//! things; the other files are the things.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bench_figures::percentile;
use bench_stage::machine::{Machine, Meter, Use, await_quiet};
use bench_stage::{Stage, relay};
use clap::{Parser, Subcommand};

use contender::{Contender, Pair};
use far_end::FarEnd;
use load::{Path, mebibytes};
use report::{Figure, Report};

mod contender;
mod far_end;
mod load;
mod report;

/// A measurement is taken again when others had more of the machine than this.
const FOREIGN: f64 = 0.12;
const ATTEMPTS: usize = 4;

/// Measure the tunnel beside direct TCP, a relay in Go, haproxy and socat
///
/// Prints the median of the rounds with the smallest and the largest, and the ratios that are goals.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Option<Internal>,
    /// Only this contender, such as godwit-tls; may be given again
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One short round: to see that it works, not to learn a number
    #[arg(long)]
    quick: bool,
    /// Fail when a goal is missed
    #[arg(long)]
    check: bool,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How long to wait for a quiet machine before each measurement
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    patience: u64,
    /// Measure only this
    #[arg(long, value_enum)]
    measure: Option<Measure>,
}

/// What the benchmark starts itself as.
#[derive(Subcommand)]
enum Internal {
    #[command(flatten)]
    Stage(relay::Internal),
    /// The far end of every path, as a process: started by the benchmark itself
    #[command(hide = true)]
    FarEnd { exit: PathBuf, questions: PathBuf },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measure {
    Throughput,
    Latency,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    let relay = match options.command.take() {
        Some(Internal::FarEnd { exit, questions }) => {
            return bench_stage::end("bench-tunnel", far_end::run(&exit, &questions).map(|()| true));
        }
        Some(Internal::Stage(relay)) => Some(relay),
        None => None,
    };
    bench_stage::play("bench-tunnel", relay, |stage| run(&options, stage))
}

fn run(options: &Options, stage: &Stage) -> Result<bool> {
    let begun = Instant::now();
    let machine = Machine::look()?;
    let contenders = chosen(&options.only)?;
    if contenders.contains(&Contender::GoTls) {
        contender::build_go(stage)?;
    }
    let far = FarEnd::start(stage)?;
    let mut bench = Bench { options, stage, far, report: Report::default() };
    let rounds = if options.quick { 1 } else { options.rounds };
    for round in 1..=rounds {
        for contender in &contenders {
            bench.measure(*contender).with_context(|| format!("{}, round {round}", contender.name()))?;
        }
    }
    let Machine { cores, processor, kernel, profile, load_before } = &machine;
    println!(
        "{processor}, {cores} cores, Linux {kernel}, profile {profile}, load before {load_before}; {rounds} rounds"
    );
    print!("{}", bench.report.table());
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&bench.report.json(&machine))?;
        std::fs::write(file, json + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    eprintln!("done in {:.0} s", begun.elapsed().as_secs_f64());
    let misses = if options.check { bench.report.misses() } else { Vec::new() };
    for miss in &misses {
        eprintln!("missed: {miss}");
    }
    Ok(misses.is_empty())
}

fn chosen(only: &[String]) -> Result<Vec<Contender>> {
    if let Some(name) = only.iter().find(|name| !Contender::ALL.iter().any(|other| other.name() == *name)) {
        let names: Vec<&str> = Contender::ALL.iter().map(|contender| contender.name()).collect();
        bail!("there is no contender {name:?}; they are: {}", names.join(", "));
    }
    let wanted = |contender: &Contender| only.is_empty() || only.iter().any(|name| name == contender.name());
    let (here, absent): (Vec<_>, Vec<_>) =
        Contender::ALL.into_iter().filter(wanted).partition(|contender| contender.is_here());
    for contender in absent {
        eprintln!("{} is left out: its program is not installed here", contender.name());
    }
    Ok(here)
}

struct Bench<'a> {
    options: &'a Options,
    stage: &'a Stage,
    far: FarEnd,
    report: Report,
}

impl Bench<'_> {
    fn measure(&mut self, contender: Contender) -> Result<()> {
        let pair = Pair::start(self.stage, contender)?;
        let path = Path::new(self.stage, &self.far, contender);
        // The first connection of a process pays for things that no later one does.
        path.bulk(1, 64 << 20)?;
        let wanted = |measure| self.options.measure.is_none_or(|only| only == measure);
        let mut measured = Vec::new();
        if wanted(Measure::Throughput) {
            measured.extend(self.throughput(contender, &pair, &path)?);
        }
        if wanted(Measure::Latency) {
            measured.extend(self.latency(&pair, &path)?);
        }
        let said: Vec<String> = measured
            .iter()
            .map(|(figure, value, _)| format!("{} {}", figure.short(), report::number(*value)))
            .collect();
        eprintln!("{:<16}{}", contender.name(), said.join("  "));
        for (figure, value, foreign) in measured {
            self.report.record(contender, figure, value, foreign);
        }
        Ok(())
    }

    fn throughput(
        &self,
        contender: Contender,
        pair: &Pair,
        path: &Path<'_>,
    ) -> Result<Vec<(Figure, f64, f64)>> {
        let bytes: u64 = if self.options.quick { 256 << 20 } else { 2 << 30 };
        let rows =
            [(1, Figure::Throughput1, Figure::Processor1), (4, Figure::Throughput4, Figure::Processor4)];
        let mut measured = Vec::new();
        for (streams, throughput, processor) in rows {
            let (time, used) = self.quietly(pair, || path.bulk(streams, bytes))?;
            measured.push((throughput, mebibytes(bytes) / time.as_secs_f64(), used.foreign));
            if contender != Contender::Direct {
                measured.push((processor, used.ours / (mebibytes(bytes) / 1024.0), used.foreign));
            }
        }
        Ok(measured)
    }

    fn latency(&self, pair: &Pair, path: &Path<'_>) -> Result<Vec<(Figure, f64, f64)>> {
        let quick = self.options.quick;
        let (mut opened, used) = self.quietly(pair, || path.opens(if quick { 20 } else { 300 }))?;
        let [p50, p99] = percentiles(&mut opened);
        let mut measured = vec![(Figure::OpenP50, p50, used.foreign), (Figure::OpenP99, p99, used.foreign)];
        let time = Duration::from_millis(if quick { 300 } else { 2000 });
        let ((mut pages, rate), used) = self.quietly(pair, || path.pages_beside_a_stream(time))?;
        let [p50, p99] = percentiles(&mut pages);
        let figures = [(Figure::PageP50, p50), (Figure::PageP99, p99), (Figure::PageStream, rate)];
        measured.extend(figures.map(|(figure, value)| (figure, value, used.foreign)));
        Ok(measured)
    }

    /// Measures, again if others took too much of the machine: what came of the quietest attempt.
    fn quietly<T>(&self, pair: &Pair, measure: impl Fn() -> Result<T>) -> Result<(T, Use)> {
        let mut best: Option<(T, Use)> = None;
        for _ in 0..if self.options.quick { 1 } else { ATTEMPTS } {
            let mut all = pair.pids();
            all.push(self.far.pid());
            await_quiet(FOREIGN, Duration::from_secs(self.options.patience), &all)?;
            let (all, relays) = (Meter::start(&all)?, Meter::start(&pair.pids())?);
            let measured = measure()?;
            let used = Use { ours: relays.stop()?.ours, foreign: all.stop()?.foreign };
            if best.as_ref().is_none_or(|(_, best)| used.foreign < best.foreign) {
                best = Some((measured, used));
            }
            if used.foreign < FOREIGN {
                break;
            }
        }
        best.context("nothing was measured")
    }
}

/// Half, and all but one in a hundred, in microseconds.
fn percentiles(latencies: &mut [Duration]) -> [f64; 2] {
    latencies.sort_unstable();
    [50, 99].map(|percent| percentile(latencies, percent).as_secs_f64() * 1e6)
}
