//! Numbers: what one measurement yields.

use std::time::Duration;

use bench_figures::percentile;

/// One measurement of one row on one server.
pub struct Sample {
    pub operations: usize,
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Sample {
    /// From the latency of each operation and the time that all took together.
    pub fn new(mut latencies: Vec<Duration>, elapsed: Duration) -> Self {
        latencies.sort_unstable();
        Self {
            operations: latencies.len(),
            per_second: to_f64(latencies.len()) / elapsed.as_secs_f64(),
            p50: percentile(&latencies, 50),
            p99: percentile(&latencies, 99),
        }
    }
}

pub fn to_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
