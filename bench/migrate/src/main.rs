//! A real guest through the tunnel, beside QEMU's own ways, in one run: how long a move takes, what it sends, how long the guest
//! stands still.
//!
//! The guest stays at its source: after each move the target is killed and the source goes on, as after a move that failed. So every
//! move finds the same memory, and the ways are taken in turns. What a launcher does beside the tunnel is done here too: the speed of the
//! road is measured and told to QEMU, and the guest arrives paused. This file is the order of things; the other files are the things.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bench_stage::machine::{Machine, Meter, await_quiet};
use bench_stage::{Stage, relay};
use clap::Parser;
use migration::Pace;
use serde_json::{Value, json};

use qemu::{Image, Qemu};
use report::{Move, Report, Row};
use way::Way;

mod qemu;
mod report;
mod way;

/// Others may have this much of the machine when a move begins.
const FOREIGN: f64 = 0.12;
/// How long others are waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any link has: QEMU's own limit is for hosts that have other things to do.
const UNLIMITED: u64 = i64::MAX as u64;
/// How often a launcher looks how far a move is.
const LOOK: Duration = Duration::from_millis(250);

/// Move a real guest directly, with QEMU's own TLS, and through the tunnel
///
/// Prints medians with the smallest and the largest, and the ratios that are goals.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Option<relay::Internal>,
    /// How often every way is taken, idle and dirtying each
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Parallel connections; may be given again
    #[arg(long, default_values_t = [1, 4], value_name = "N")]
    connections: Vec<u8>,
    /// Memory of the guest, and how much of it is random, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    memory: u32,
    #[arg(long, default_value_t = 700, value_name = "MIB")]
    random: u32,
    /// What the busy guest dirties: MiB a second, over so many MiB
    #[arg(long, default_value_t = 140, value_name = "MIB/S")]
    dirty: u32,
    #[arg(long, default_value_t = 128, value_name = "MIB")]
    working_set: u32,
    /// How long the guest may stand still, in milliseconds
    #[arg(long, default_value_t = 300, value_name = "MS")]
    downtime: u32,
    /// Fail when a goal is missed
    #[arg(long)]
    check: bool,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    let command = options.command.take();
    bench_stage::play("bench-migrate", command, |stage| run(&options, stage))
}

fn run(options: &Options, stage: &Stage) -> Result<bool> {
    let (machine, image) = (Machine::look()?, &Image::find()?);
    image.bring(stage)?;
    way::write_certificates(stage)?;
    let tunnel = way::start_tunnel(stage)?;
    let relays: Vec<u32> = tunnel.iter().map(bench_stage::Process::pid).collect();
    let source = Qemu::start(stage, image, "source", options.memory)?;
    source.guest(&json!({ "fill": { "mib": options.random, "seed": 7 } }))?;
    let mut bench = Bench { options, stage, image, source, relays };
    let mut report = Report::new(options.downtime);
    for busy in [false, true] {
        let dirty = json!({ "mib_per_s": options.dirty, "working_set_mib": options.working_set });
        bench.source.guest(&json!({ "dirty": if busy { dirty } else { Value::Null } }))?;
        for round in 1..=options.rounds {
            for connections in &options.connections {
                for way in Way::ALL {
                    let row = Row { busy, connections: *connections, way };
                    let took = bench.measure(row).with_context(|| format!("{row}, round {round}"))?;
                    eprintln!("{row:<34} {took}");
                    report.record(row, took);
                }
            }
        }
    }
    let Machine { cores, processor, kernel, profile, load_before } = &machine;
    println!(
        "{processor}, {cores} cores, Linux {kernel}, profile {profile}, load before {load_before}; {} rounds, {} MiB of which {} random",
        options.rounds, options.memory, options.random
    );
    print!("{}", report.table());
    if let Some(file) = &options.json {
        let json = serde_json::to_string_pretty(&report.json(&machine))?;
        std::fs::write(file, json + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    let misses = if options.check { report.misses() } else { Vec::new() };
    for miss in &misses {
        eprintln!("missed: {miss}");
    }
    Ok(misses.is_empty())
}

struct Bench<'a> {
    options: &'a Options,
    stage: &'a Stage,
    image: &'a Image,
    source: Qemu<'a>,
    /// Both sides of the tunnel.
    relays: Vec<u32>,
}

impl Bench<'_> {
    /// Moves the guest once, and takes it back.
    fn measure(&mut self, row: Row) -> Result<Move> {
        let mut target = Qemu::start(self.stage, self.image, "target", self.options.memory)?;
        let [to, on] = row.way.addresses();
        for (qemu, endpoint) in [(&mut target, "server"), (&mut self.source, "client")] {
            let several = row.connections > 1;
            let capabilities = [("events", true), ("multifd", several)]
                .map(|(name, state)| json!({ "capability": name, "state": state }));
            qemu.ask("migrate-set-capabilities", &json!({ "capabilities": capabilities }))?;
            let mut parameters = row.way.secure(qemu, endpoint)?;
            parameters["multifd-channels"] = json!(row.connections.max(2));
            parameters["max-bandwidth"] = json!(UNLIMITED);
            parameters["downtime-limit"] = json!(self.options.downtime);
            parameters["avail-switchover-bandwidth"] = json!(row.way.counts_on());
            qemu.ask("migrate-set-parameters", &parameters)?;
        }
        target.ask("migrate-incoming", &json!({ "uri": on }))?;
        let mut ours = vec![self.source.pid(), target.pid()];
        ours.extend(&self.relays);
        await_quiet(FOREIGN, PATIENCE, &ours)?;

        self.source.forget_events();
        let (all, relays) = (Meter::start(&ours)?, Meter::start(&self.relays)?);
        let begun = Instant::now();
        self.source.ask("migrate", &json!({ "uri": to }))?;
        self.follow(row.way, begun)?;
        target.ask("cont", &json!({}))?;
        let resumed = target.event("the guest", |event| event["event"] == "RESUME")?;
        let total = begun.elapsed();
        let (all, relays) = (all.stop()?, relays.stop()?);
        let stopped = self.source.stopped().context("the source never stopped")?;
        let ram = self.source.ask("query-migrate", &json!({}))?["ram"].take();
        target.guest(&json!({ "check": {} })).context("the guest's memory after the move")?;
        drop(target);

        self.source.ask("cont", &json!({}))?;
        let bytes = ram["transferred"].as_f64().context("what was sent")?;
        ensure!(resumed > stopped, "the guest ran before it stopped");
        Ok(Move {
            seconds: total.as_secs_f64(),
            mebibytes: bytes / f64::from(1 << 20),
            downtime_ms: (resumed - stopped) * 1e3,
            relays: relays.ours,
            foreign: all.foreign,
        })
    }

    /// Until all of the guest has left. Ours tells QEMU on the way how fast the road is.
    fn follow(&mut self, way: Way, begun: Instant) -> Result<()> {
        let mut pace = Pace::default();
        let over = |event: &Value| event["data"]["status"] == "completed";
        while self.source.event_within("the end of the move", LOOK, over)?.is_none() {
            if way != Way::Godwit {
                continue;
            }
            let state = self.source.ask("query-migrate", &json!({}))?;
            let sent = state["ram"]["transferred"].as_u64().unwrap_or_default();
            if let Some(rate) = pace.measure(begun.elapsed(), sent) {
                let told = json!({ "avail-switchover-bandwidth": rate });
                self.source.ask("migrate-set-parameters", &told)?;
            }
        }
        Ok(())
    }
}
