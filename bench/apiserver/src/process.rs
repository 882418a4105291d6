//! The kernel's view of a process: its memory, its processor time, its age.

use std::fs::read_to_string;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Ticks of /proc per second. It is a constant of Linux's interface to user space, whatever the kernel's own clock.
const TICKS: f64 = 100.0;

/// Bytes in memory, counted whole (resident) and with shared pages divided among their users (proportional).
#[derive(Clone, Copy, Default)]
pub struct Memory {
    pub resident: u64,
    pub proportional: u64,
}

pub fn memory(pids: &[u32]) -> Result<Memory> {
    let mut sum = Memory::default();
    for pid in pids {
        let rollup = read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let kib = |key: &str| -> Result<u64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key)).context("smaps_rollup")?;
            Ok(line.split_whitespace().next().context("smaps_rollup")?.parse::<u64>()? * 1024)
        };
        sum.resident += kib("Rss:")?;
        sum.proportional += kib("Pss:")?;
    }
    Ok(sum)
}

/// Processor time used so far, of all threads, in user space and in the kernel.
pub fn processor_time(pids: &[u32]) -> Result<Duration> {
    let mut ticks = 0.0;
    for pid in pids {
        ticks += stat(*pid, 11)? + stat(*pid, 12)?;
    }
    Ok(Duration::from_secs_f64(ticks / TICKS))
}

pub fn age(pid: u32) -> Result<Duration> {
    let uptime = read_to_string("/proc/uptime")?;
    let now: f64 = uptime.split_whitespace().next().context("uptime")?.parse()?;
    Ok(Duration::from_secs_f64((now - stat(pid, 19)? / TICKS).max(0.0)))
}

/// A field of /proc/PID/stat, counted from the state, which follows the name.
fn stat(pid: u32, field: usize) -> Result<f64> {
    let stat = read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat")?;
    Ok(fields.split_whitespace().nth(field).context("stat")?.parse()?)
}
