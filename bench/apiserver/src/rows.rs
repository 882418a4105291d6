//! The rows of the benchmark: what is done, how often, and what is recorded of it.

use std::time::Duration;

use anyhow::Result;

use crate::load::{self, Request};
use crate::process;
use crate::report::Metric;
use crate::sample::to_f64;
use crate::server::Server;
use crate::watch;

pub struct Row {
    pub name: &'static str,
    /// Takes long, so it is repeated less.
    pub heavy: bool,
    pub work: Work,
}

#[derive(Clone, Copy)]
pub enum Work {
    /// A start on an empty disk, and the memory when it has come to rest.
    Start,
    Load {
        request: Request,
        clients: usize,
    },
    Watch {
        watchers: usize,
        events: usize,
    },
}

/// How much is done in one measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    pub time: Duration,
    /// Divides the events of the watch rows.
    pub fewer_events: usize,
}

pub const ROWS: [Row; 15] = [
    Row { name: "start", heavy: true, work: Work::Start },
    load("create 1", Request::Create, 1),
    load("create 16", Request::Create, 16),
    load("create 64", Request::Create, 64),
    load("update 1", Request::Replace, 1),
    load("update 16", Request::Replace, 16),
    load("patch 1", Request::MergePatch, 1),
    load("patch 16", Request::MergePatch, 16),
    load("get 1", Request::Get, 1),
    load("get 16", Request::Get, 16),
    load("list", Request::List, 1),
    load("list in pages", Request::ListInPages, 1),
    watch("watch 1", 1, 2000),
    watch("watch 100", 100, 2000),
    Row { name: "watch 1000", heavy: true, work: Work::Watch { watchers: 1000, events: 300 } },
];

const fn load(name: &'static str, request: Request, clients: usize) -> Row {
    Row { name, heavy: false, work: Work::Load { request, clients } }
}

const fn watch(name: &'static str, watchers: usize, events: usize) -> Row {
    Row { name, heavy: false, work: Work::Watch { watchers, events } }
}

impl Row {
    pub fn reads(&self) -> bool {
        matches!(self.work, Work::Load { request, .. } if request.reads())
    }

    /// One measurement on a running server.
    pub async fn measure(&self, server: &Server, round: usize, effort: Effort) -> Result<Vec<(Metric, f64)>> {
        let namespace = format!("{}-{round}", self.name.replace(' ', "-"));
        let before = process::processor_time(&server.pids)?;
        let sample = match self.work {
            Work::Start => return rest(server).await,
            Work::Load { request, clients } => {
                load::run(&server.api, request, clients, &namespace, effort.time).await?
            }
            Work::Watch { watchers, events } => {
                watch::run(&server.api, watchers, events / effort.fewer_events, &namespace).await?
            }
        };
        let used = process::processor_time(&server.pids)?.saturating_sub(before);
        Ok(vec![
            (Metric::Rate, sample.per_second),
            (Metric::P50, sample.p50.as_secs_f64() * 1e3),
            (Metric::P99, sample.p99.as_secs_f64() * 1e3),
            (Metric::Processor, used.as_secs_f64() * 1e6 / to_f64(sample.operations)),
        ])
    }
}

/// What a server that was just started has cost until it came to rest.
async fn rest(server: &Server) -> Result<Vec<(Metric, f64)>> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let memory = process::memory(&server.pids)?;
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(vec![
        (Metric::Start, server.ready_after.as_secs_f64() * 1e3),
        (Metric::Resident, mib(memory.resident)),
        (Metric::Proportional, mib(memory.proportional)),
    ])
}
