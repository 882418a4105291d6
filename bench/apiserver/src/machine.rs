//! The machine that the numbers belong to.

use std::fs::{File, read_to_string};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::sample::Sample;

#[derive(Serialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
    /// Of cargo, for this program; the server is built with its own.
    pub profile: String,
    pub memory_gib: u64,
    /// Processes that wanted a processor in the minute before the run: others' work distorts the numbers.
    pub load_before: String,
    pub filesystem: String,
    /// An append of 4 KiB that waits for the disk: no server that keeps its promise can write faster, one at a time.
    pub fsync_p50_ms: f64,
    pub fsync_p99_ms: f64,
}

impl Machine {
    /// `directory` is where the servers keep their data.
    pub fn look(directory: &Path) -> Result<Self> {
        let first = |path: &str, key: &str| -> Option<String> {
            let text = read_to_string(path).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        let memory = first("/proc/meminfo", "MemTotal").context("MemTotal")?;
        let kib: u64 = memory.split(' ').next().context("MemTotal")?.parse()?;
        let fsync = fsync(directory).context("measuring fsync")?;
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: first("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            kernel: read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory_gib: (kib + (1 << 19)) >> 20,
            profile: bench_figures::profile()?,
            load_before: read_to_string("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned(),
            filesystem: filesystem(directory)?,
            fsync_p50_ms: fsync.p50.as_secs_f64() * 1e3,
            fsync_p99_ms: fsync.p99.as_secs_f64() * 1e3,
        })
    }
}

/// The type of the file system: that of the longest mount point that leads to the directory.
fn filesystem(directory: &Path) -> Result<String> {
    let directory = directory.canonicalize()?;
    let mounts = read_to_string("/proc/self/mounts")?;
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| directory.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    Ok(mount.context("no mount point")?.1.to_owned())
}

fn fsync(directory: &Path) -> Result<Sample> {
    let mut file = File::create(directory.join("fsync"))?;
    let start = Instant::now();
    let mut latencies = Vec::new();
    while start.elapsed() < Duration::from_millis(500) {
        let begun = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        latencies.push(begun.elapsed());
    }
    Ok(Sample::new(latencies, start.elapsed()))
}
