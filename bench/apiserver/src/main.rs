//! The embedded API server beside the real one, in one run: throughput, latency, start and memory.
//!
//! Both write to the same disk and wait for it. They are measured in turns, a short while each, so that whatever else the
//! machine does falls on both. This file is the order of things; the other files are the things.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use machine::Machine;
use report::Report;
use rows::{Effort, ROWS, Row, Work};
use server::{Server, Side, Workplace};

mod client;
mod load;
mod machine;
mod objects;
mod process;
mod report;
mod rows;
mod sample;
mod server;
mod watch;

/// Measure the embedded API server beside kube-apiserver and etcd
///
/// Prints the median of the rounds with the smallest and the largest, and godwit's as a multiple of kubernetes'.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Options {
    /// Only this row, such as "create 16", or all rows that begin with this word; may be given again
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// How often each row is measured on each server; heavy rows are measured three times for five
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One short round: to see that it works, not to learn a number
    #[arg(long)]
    quick: bool,
    /// Leave the real server out
    #[arg(long)]
    no_kubernetes: bool,
    /// Leave ours out
    #[arg(long, conflicts_with_all = ["no_kubernetes", "check"])]
    no_godwit: bool,
    /// Fail unless ours is ahead in every row, idles below 30 MiB and is ready within 200 ms
    #[arg(long)]
    check: bool,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program to measure [default: the godwit next to this program]
    #[arg(long, env = "GODWIT_BIN", value_name = "FILE")]
    godwit: Option<PathBuf>,
    /// Where the servers keep their data while they run: on a disk [default: the directory of this program]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match start(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-apiserver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> Result<bool> {
    raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // On the main thread, to which the servers' lives are tied.
    let result = runtime.block_on(async {
        tokio::select! {
            result = run(options) => result,
            error = interrupted() => Err(error),
        }
    });
    runtime.shutdown_background();
    result
}

/// A thousand watchers are a thousand connections, here and in the servers, which inherit this limit.
fn raise_file_limit() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raising the limit of open files")
}

async fn interrupted() -> anyhow::Error {
    let wait = async {
        let mut signals = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ];
        let [terminate, interrupt, hangup] = &mut signals;
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {}, _ = hangup.recv() => {} }
        anyhow::Ok(())
    };
    wait.await.err().unwrap_or_else(|| anyhow::anyhow!("interrupted"))
}

/// Whether the targets are met, or were not asked for.
async fn run(options: &Options) -> Result<bool> {
    let begun = Instant::now();
    let rows = chosen(&options.only)?;
    let beside = std::env::current_exe()?.parent().context("this program lies nowhere")?.to_owned();
    let godwit = options.godwit.clone().unwrap_or_else(|| beside.join("godwit"));
    let sides = sides(options, &godwit)?;
    let workplace = Workplace::new(options.dir.as_deref().unwrap_or(&beside))?;
    let machine = Machine::look(workplace.path())?;

    let mut bench = Bench { options, godwit, workplace, report: Report::default(), started: 0 };
    let mut servers = Vec::new();
    for row in &rows {
        if let Work::Start = row.work {
            servers = bench.starts(&sides, row).await?;
        }
    }
    for side in &sides[servers.len()..] {
        servers.push(bench.start(*side).await?);
    }
    let versions = versions(&servers).await?;
    bench.load(&servers, &rows).await?;
    drop(servers);

    print_facts(&machine, &versions);
    print!("{}", bench.report.table());
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&bench.report.json(&machine, &versions))?;
        std::fs::write(file, json + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    eprintln!("done in {:.0} s", begun.elapsed().as_secs_f64());
    let misses = if options.check { bench.report.misses() } else { Vec::new() };
    for miss in &misses {
        eprintln!("missed: {miss}");
    }
    Ok(misses.is_empty())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Row>> {
    let fits = |row: &Row, word: &str| row.name == word || row.name.starts_with(&format!("{word} "));
    if let Some(word) = only.iter().find(|word| !ROWS.iter().any(|row| fits(row, word))) {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!("there is no row {word:?}; the rows are: {}", names.join(", "));
    }
    let wanted = |row: &&Row| only.is_empty() || only.iter().any(|word| fits(row, word));
    Ok(ROWS.iter().filter(wanted).collect())
}

fn sides(options: &Options, godwit: &Path) -> Result<Vec<Side>> {
    let mut sides = Vec::new();
    if !options.no_godwit {
        if !godwit.exists() {
            bail!("{} is not there: build it with `make build`", godwit.display());
        }
        sides.push(Side::Godwit);
    }
    if !options.no_kubernetes {
        if server::kubernetes_is_built() {
            sides.push(Side::Kubernetes);
        } else {
            eprintln!("kube-apiserver is not built here (`tools/setup kubernetes`): only godwit is measured");
        }
    }
    Ok(sides)
}

struct Bench<'a> {
    options: &'a Options,
    godwit: PathBuf,
    workplace: Workplace,
    report: Report,
    /// Servers so far: each has a directory of its own.
    started: usize,
}

impl Bench<'_> {
    fn rounds(&self, row: &Row) -> usize {
        match self.options.rounds as usize {
            _ if self.options.quick => 1,
            rounds if row.heavy => (rounds * 3).div_ceil(5),
            rounds => rounds,
        }
    }

    async fn start(&mut self, side: Side) -> Result<Server> {
        self.started += 1;
        let directory = self.workplace.path().join(format!("{}-{}", side.name(), self.started));
        Server::start(side, &self.godwit, &directory).await
    }

    /// Each round starts each server anew; those of the last round stay.
    async fn starts(&mut self, sides: &[Side], row: &'static Row) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for round in 0..self.rounds(row) {
            servers.clear();
            for side in sides {
                let server = self.start(*side).await?;
                self.measure(&server, row, round).await?;
                servers.push(server);
            }
        }
        Ok(servers)
    }

    async fn load(&mut self, servers: &[Server], rows: &[&'static Row]) -> Result<()> {
        let mut populated = false;
        for row in rows.iter().filter(|row| !matches!(row.work, Work::Start)) {
            if row.reads() && !populated {
                for server in servers {
                    eprintln!("{}: creating {} objects to read", server.side.name(), load::LISTED);
                    load::populate(&server.api).await.context("creating the objects to read")?;
                }
                populated = true;
            }
            for round in 0..self.rounds(row) {
                // Whoever goes first goes second the next time.
                let order: Vec<&Server> =
                    if round % 2 == 0 { servers.iter().collect() } else { servers.iter().rev().collect() };
                for server in order {
                    self.measure(server, row, round).await?;
                }
            }
        }
        Ok(())
    }

    async fn measure(&mut self, server: &Server, row: &'static Row, round: usize) -> Result<()> {
        let effort = if self.options.quick {
            Effort { time: Duration::from_millis(200), fewer_events: 10 }
        } else {
            Effort { time: Duration::from_secs(1), fewer_events: 1 }
        };
        let name = server.side.name();
        let measured = row.measure(server, round, effort).await;
        let measured = measured.with_context(|| format!("{} on {name}, round {}", row.name, round + 1))?;
        let first: Vec<String> =
            measured.iter().map(|(metric, value)| format!("{} {value:.2}", metric.label())).collect();
        eprintln!("{:<14} {name:<11} {}/{}  {}", row.name, round + 1, self.rounds(row), first.join("  "));
        self.report.record(row.name, server.side, measured);
        Ok(())
    }
}

async fn versions(servers: &[Server]) -> Result<BTreeMap<&'static str, String>> {
    let mut versions = BTreeMap::new();
    for server in servers {
        versions.insert(server.side.name(), server.version().await?);
        if server.side == Side::Kubernetes {
            versions.insert("etcd", server::etcd_version(server.pids[0]).context("the version of etcd")?);
        }
    }
    Ok(versions)
}

fn print_facts(machine: &Machine, versions: &BTreeMap<&'static str, String>) {
    let Machine {
        cores,
        processor,
        kernel,
        profile,
        memory_gib,
        load_before,
        filesystem,
        fsync_p50_ms,
        fsync_p99_ms,
    } = machine;
    println!(
        "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}, profile {profile}, load before {load_before}"
    );
    println!("{filesystem}, fsync p50 {fsync_p50_ms:.2} ms, p99 {fsync_p99_ms:.2} ms");
    let versions: Vec<String> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    println!("{}", versions.join(", "));
    if versions.len() < 2 {
        println!("only one server was run: there is nothing to compare with");
    }
    println!();
}
