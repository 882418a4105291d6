//! `make test` and `make test-all`: builds everything once, runs the parts several at a time, and prints one table.
//!
//! First the preparation: one build of all programs and tests, the set-up for virtual machines, and the checks that need
//! neither. Then every test program and script, the longest first. A part is one process with a log of its own in
//! `target/test-logs`; the log is shown when the part fails.
//!
//! What cannot run on this machine is counted as not run and named at the end, with its reason.
//! `GODWIT_REQUIRE_ALL=1` makes it a failure.

mod output;
mod parts;
mod process;
mod programs;
mod record;
mod schedule;
mod show;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::record::{Done, Record};
use crate::schedule::run_all;
use crate::show::Progress;

#[derive(Parser)]
#[command(
    about = "Run the project's tests and print one table",
    after_help = "Without options: `make test`."
)]
struct Arguments {
    /// Also run what takes long: every fault and every death, and the search of the fuzzer
    #[arg(long)]
    all: bool,
    /// Record finished parts in FILE; parts that it says have passed are not run again, and its seed is used
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Run only the parts whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// How many parts run at a time [default: twice the number of processors]
    #[arg(long, value_name = "N")]
    at_once: Option<NonZeroUsize>,
    /// Name the parts that would run, and run none
    #[arg(long)]
    list: bool,
    /// How many seconds went by before this program ran
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide = true)]
    spent: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("test-runner: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything passed.
fn run(arguments: &Arguments) -> Result<bool> {
    let started = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the project's directory")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let processors = std::thread::available_parallelism()?.get();
    let at_once = arguments.at_once.map_or(processors * 2, NonZeroUsize::get);
    let mut record = Record::open(arguments.resume.as_deref())?;
    let logs = target.join("test-logs");
    if logs.exists() {
        std::fs::remove_dir_all(&logs).context("removing the logs of the run before")?;
    }
    std::fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;

    let mut progress = Progress::new(&logs);
    let prepared = run_all(parts::preparation(root), at_once, &mut record, &mut progress)?;
    if let Some(failed) = prepared.iter().find(|done| !done.succeeded) {
        println!("{} failed: no test was run", failed.part);
        println!("0 passed, 1 failed");
        return Ok(false);
    }
    let found = programs::read(&process::log(&logs, parts::BUILD))?;
    let mut tests = parts::tests(root, &found, arguments.all, record.seed())?;
    if !arguments.only.is_empty() {
        tests.retain(|part| arguments.only.iter().any(|text| part.name.contains(text)));
    }
    if arguments.list {
        tests.iter().map(|part| &part.name).for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let tested = run_all(tests, at_once, &mut record, &mut progress)?;
    let done: Vec<Done> = prepared.into_iter().chain(tested).collect();
    let spent = Duration::from_secs(arguments.spent);
    Ok(show::table(&done, spent, spent + started.elapsed()))
}
