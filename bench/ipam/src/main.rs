//! How long a pod waits for its address: the plugin's process from its start to its end, one and many at once.
//!
//! Everything is what it is in a cluster: a process for every call, TLS, an API server that answers after the disk has it.
//! Each worker is a node with a journal of its own. Beside it, where it is there, the plugin whereabouts is asked the same, of the
//! same API server. This file is the order of things.

mod place;
mod report;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use place::Place;
use report::Report;
use rows::ROWS;

/// The 99th percentile that `--check` asks for, with 50 at once.
const TARGET_MS: f64 = 100.0;
const TARGET_ROW: &str = "add 50";

/// Measure the plugin that gives addresses
///
/// The row "version" is the process alone: what it costs to start it, and nothing else. Rows "theirs" are whereabouts: fewer calls, as
/// each of its processes waits until it is elected.
#[derive(Parser)]
struct Options {
    /// Fail unless the 99th percentile with 50 at once is below 100 ms, in the median of the rounds
    #[arg(long)]
    check: bool,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One round with a tenth of the calls: to see that it works, not to learn a number
    #[arg(long)]
    quick: bool,
    /// Only this row, such as "add 50"; may be given again. What is given back must have been given before
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The API server [default: the godwit next to this program]
    #[arg(long, env = "GODWIT_BIN", value_name = "FILE")]
    godwit: Option<PathBuf>,
    /// The plugin [default: the godwit-cni next to this program]
    #[arg(long, env = "GODWIT_CNI_BIN", value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The plugin to compare with; without it, its rows are left out
    #[arg(long, env = "GODWIT_WHEREABOUTS", value_name = "FILE")]
    whereabouts: Option<PathBuf>,
    /// Where the API server keeps its data while it runs: on a disk [default: the directory of this program]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-ipam: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the target is met, or was not asked for.
fn run(options: &Options) -> Result<bool> {
    let beside = std::env::current_exe()?.parent().context("this program lies nowhere")?.to_owned();
    let program = |given: &Option<PathBuf>, name: &str| -> Result<PathBuf> {
        let path = given.clone().unwrap_or_else(|| beside.join(name));
        if !path.exists() {
            bail!("{} is not there: `make dist` builds it", path.display());
        }
        Ok(path.canonicalize()?)
    };
    let (godwit, plugin) = (program(&options.godwit, "godwit")?, program(&options.plugin, "godwit-cni")?);
    let theirs = options.whereabouts.as_deref().filter(|theirs| theirs.exists());
    if theirs.is_none() {
        eprintln!("whereabouts is not measured: it is not there; tools/setup whereabouts makes it");
    }
    let place = Place::new(options.dir.as_deref().unwrap_or(&beside), &godwit, &plugin, theirs)?;
    let mut report = Report::new(&place)?;
    let wanted = |name: &str| options.rows.is_empty() || options.rows.iter().any(|row| row == name);
    for round in 0..if options.quick { 1 } else { options.rounds } {
        for row in ROWS.iter().filter(|row| wanted(row.name) && (theirs.is_some() || !row.is_theirs())) {
            let calls = if options.quick { row.calls.div_ceil(10) } else { row.calls };
            let measured = row.measure(&place, round, calls);
            report.add(row, measured.with_context(|| format!("row {:?}", row.name))?);
        }
    }
    print!("{}", report.table());
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, json + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    if !options.check {
        return Ok(true);
    }
    let p99 = report.p99(TARGET_ROW).context("the row to check was not measured")?;
    if p99 >= TARGET_MS {
        eprintln!(
            "missed: {TARGET_ROW}: the 99th percentile is {p99:.1} ms in the median, and should be below {TARGET_MS} ms"
        );
    }
    Ok(p99 < TARGET_MS)
}
