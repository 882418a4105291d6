//! The machine that the numbers belong to, and what others do on it meanwhile.

use std::fs::read_to_string;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Ticks of /proc per second. It is a constant of Linux's interface to user space, whatever the kernel's own clock.
const TICKS: f64 = 100.0;

/// What it is.
#[derive(Serialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Their name.
    pub processor: String,
    /// The version of Linux.
    pub kernel: String,
    /// Of cargo, for this program.
    pub profile: String,
    /// Processes that wanted a processor in the minute before the run.
    pub load_before: String,
}

impl Machine {
    /// Looks at it.
    pub fn look() -> Result<Self> {
        let processors = read_to_string("/proc/cpuinfo")?;
        let processor = processors.lines().find_map(|line| line.strip_prefix("model name"));
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: processor.unwrap_or("unknown").trim_start_matches([' ', '\t', ':']).to_owned(),
            kernel: read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            profile: bench_figures::profile()?,
            load_before: read_to_string("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned(),
        })
    }
}

/// Processor seconds of a process so far, of all its threads, and of the children that it has waited for.
fn processor_time(pid: &str) -> Result<f64> {
    let stat = read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat")?;
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(11).take(4) {
        ticks += field.parse::<f64>()?;
    }
    Ok(ticks / TICKS)
}

/// Processor seconds of the whole machine so far that were not idle.
fn busy_time() -> Result<f64> {
    let stat = read_to_string("/proc/stat")?;
    let fields = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("/proc/stat")?;
    let ticks: Vec<f64> = fields.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let idle = ticks.get(3).unwrap_or(&0.0) + ticks.get(4).unwrap_or(&0.0);
    // The last two are in the first two already.
    Ok((ticks.iter().take(8).sum::<f64>() - idle) / TICKS)
}

/// Looks at the clocks of some processes at the beginning of something.
pub struct Meter {
    pids: Vec<String>,
    begun: Instant,
    ours: f64,
    own: f64,
    busy: f64,
}

/// What was used since.
#[derive(Clone, Copy)]
pub struct Use {
    /// Processor seconds of those processes.
    pub ours: f64,
    /// The share of the machine that went to processes that are none of ours.
    pub foreign: f64,
}

impl Meter {
    /// Begins.
    pub fn start(pids: &[u32]) -> Result<Self> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let ours = sum(&pids)?;
        Ok(Self { pids, begun: Instant::now(), ours, own: processor_time("self")?, busy: busy_time()? })
    }

    /// What was used since the beginning.
    pub fn stop(&self) -> Result<Use> {
        let cores = f64::from(u32::try_from(std::thread::available_parallelism()?.get())?);
        let ours = sum(&self.pids)? - self.ours;
        let own = processor_time("self")? - self.own;
        let foreign = (busy_time()? - self.busy - ours - own).max(0.0);
        Ok(Use { ours, foreign: foreign / (self.begun.elapsed().as_secs_f64() * cores) })
    }
}

fn sum(pids: &[String]) -> Result<f64> {
    pids.iter().map(|pid| with_children(pid)).sum()
}

/// A relay may have a process for each connection, which lives on for a while when the connection has ended.
fn with_children(pid: &str) -> Result<f64> {
    let children = read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    // One that is gone by now is in its parent's account.
    let living: f64 = children.split_whitespace().filter_map(|child| processor_time(child).ok()).sum();
    Ok(processor_time(pid)? + living)
}

/// Waits until others than these processes leave the machine alone, or for so long.
pub fn await_quiet(limit: f64, patience: Duration, ours: &[u32]) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let meter = Meter::start(ours)?;
        std::thread::sleep(Duration::from_millis(400));
        if meter.stop()?.foreign < limit {
            break;
        }
    }
    Ok(())
}
