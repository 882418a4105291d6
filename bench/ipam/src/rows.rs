//! What is measured: so many calls, so many at a time, each a process of its own.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::place::Place;

pub struct Row {
    pub name: &'static str,
    work: Work,
    pub at_once: usize,
    pub calls: usize,
}

#[derive(Clone, Copy)]
enum Work {
    /// The process alone.
    Version,
    /// An address of a large pool.
    Add,
    /// What the row before was given, back.
    Del,
    /// An address of a pool that is full at the end: its addresses are the number of calls.
    Fill,
    /// An address from whereabouts.
    Theirs,
}

const fn row(name: &'static str, work: Work, at_once: usize, calls: usize) -> Row {
    Row { name, work, at_once, calls }
}

pub const ROWS: [Row; 11] = [
    row("version", Work::Version, 1, 300),
    row("add 1", Work::Add, 1, 300),
    row("del 1", Work::Del, 1, 300),
    row("add 10", Work::Add, 10, 1000),
    row("del 10", Work::Del, 10, 1000),
    row("add 50", Work::Add, 50, 1000),
    row("del 50", Work::Del, 50, 1000),
    row("fill 10", Work::Fill, 10, 1022),
    row("fill 50", Work::Fill, 50, 1022),
    row("theirs 1", Work::Theirs, 1, 20),
    row("theirs 50", Work::Theirs, 50, 100),
];

/// How long each call took that was given an answer, and all together.
pub struct Measured {
    pub latencies: Vec<Duration>,
    /// Calls that failed: none of ours may.
    pub failed: usize,
    pub elapsed: Duration,
}

impl Row {
    pub fn is_theirs(&self) -> bool {
        matches!(self.work, Work::Theirs)
    }

    pub fn measure(&self, place: &Place, round: u32, calls: usize) -> Result<Measured> {
        let begin = Instant::now();
        let workers: Vec<Result<Vec<(Duration, Value)>>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.at_once)
                .map(|node| scope.spawn(move || self.work(place, round, node, calls)))
                .collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker broke")))
            };
            handles.into_iter().map(join).collect()
        });
        let elapsed = begin.elapsed();
        let answers: Vec<(Duration, Value)> = workers.into_iter().collect::<Result<Vec<_>>>()?.concat();
        if matches!(self.work, Work::Add | Work::Fill | Work::Theirs) {
            let addresses: BTreeSet<&str> =
                answers.iter().filter_map(|(_, answer)| answer["ips"][0]["address"].as_str()).collect();
            ensure!(
                addresses.len() == answers.len(),
                "{} answers have {} different addresses",
                answers.len(),
                addresses.len()
            );
        }
        let failed = calls - answers.len();
        Ok(Measured { latencies: answers.into_iter().map(|(latency, _)| latency).collect(), failed, elapsed })
    }

    /// One node: its share of the calls, one after the other.
    fn work(&self, place: &Place, round: u32, node: usize, calls: usize) -> Result<Vec<(Duration, Value)>> {
        let config = self.config(place, round, node).to_string();
        let mut answers = Vec::new();
        for own in 0.. {
            // Known beforehand, so that a node frees what it was given.
            let number = own * self.at_once + node;
            if number >= calls {
                break;
            }
            let begin = Instant::now();
            match self.call(place, &format!("{round}-{number}"), &config) {
                Ok(answer) => answers.push((begin.elapsed(), answer)),
                Err(error) if self.is_theirs() => eprintln!("{error:#}"),
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    fn config(&self, place: &Place, round: u32, node: usize) -> Value {
        let (range, network) = match self.work {
            // 1,022 addresses, as many as the calls.
            Work::Fill => ("10.0.0.0/22", format!("fill-{}-{round}", self.at_once)),
            Work::Theirs => return theirs(place),
            // Of a round's own: in one that earlier rounds have taken from, more are outrun.
            _ => ("10.0.0.0/16", format!("bench-{}-{round}", self.at_once)),
        };
        json!({
            "cniVersion": "1.1.0", "name": "bench", "type": "macvlan",
            "ipam": {
                "type": "godwit-ipam", "range": range, "network_name": network, "node_name": format!("node-{node}"),
                "data_dir": place.journal(&network, node),
                "kubernetes": { "kubeconfig": place.node_kubeconfig(node) },
            },
        })
    }

    fn call(&self, place: &Place, number: &str, config: &str) -> Result<Value> {
        let command = match self.work {
            Work::Version => "VERSION",
            Work::Add | Work::Fill | Work::Theirs => "ADD",
            Work::Del => "DEL",
        };
        let plugin = place.theirs.as_ref().filter(|_| self.is_theirs()).unwrap_or(&place.plugin);
        let mut child = Command::new(plugin)
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", format!("container-{number}"))
            .env("CNI_IFNAME", "net1")
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_PATH", "/opt/cni/bin")
            .env(
                "CNI_ARGS",
                format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=pod-{number};K8S_POD_UID=uid-{number}"),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting the plugin")?;
        child.stdin.take().context("its input")?.write_all(config.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let told = String::from_utf8_lossy(&output.stderr);
        let quiet = told.is_empty() || self.is_theirs();
        ensure!(output.status.success() && quiet, "{command} of call {number}: {text} {told}");
        if text.trim().is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

/// What whereabouts is told: nothing that it does not need.
fn theirs(place: &Place) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "bench", "type": "macvlan",
        "ipam": { "type": "whereabouts", "range": "10.0.0.0/16", "configuration_path": place.their_configuration() },
    })
}
