//! `lab up` and `lab down`, with what a person sees meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use ::lab::{Lab, Progress, Topology};
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

pub fn run(lab: &Lab, wanted: Option<&Topology>, timeout: u64) -> anyhow::Result<()> {
    let begin = Instant::now();
    let program = std::env::current_exe().context("finding this program")?;
    let topology = ::lab::prepare(lab, wanted, None, &program)?;
    let keeper = ::lab::start(lab)?;
    let shown = display();
    let waiting = ::lab::ready(lab, &topology, keeper, |progress| tell(&shown, progress));
    let limit = Duration::from_secs(timeout);
    let outcome = super::runtime()?.block_on(async { tokio::time::timeout(limit, waiting).await });
    shown.finish_and_clear();
    match outcome {
        Ok(ready) => ready?,
        Err(_) => anyhow::bail!(
            "the lab {:?} is not ready after {timeout} s. It goes on starting: `godwit lab status` shows how far it is, \
             `godwit lab logs` why, `godwit lab down` removes it",
            lab.name
        ),
    }
    summary(lab, &topology, begin.elapsed());
    Ok(())
}

/// A node that joins a control plane elsewhere, for as long as this process runs.
pub fn join(lab: &Lab, kubeconfig: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let topology = Topology::joining(&lab.name);
    ::lab::prepare(lab, Some(&topology), Some(kubeconfig), &program)?;
    println!("Node {0:?} joins; Ctrl-C ends and removes it, as does `godwit lab down --name {0}`.", lab.name);
    let outcome = ::lab::keep(lab.directory());
    ::lab::down(lab)?;
    Ok(outcome?)
}

/// Nothing is drawn where nobody looks.
fn display() -> ProgressBar {
    let bar = ProgressBar::new(1);
    let style = ProgressStyle::with_template("{spinner} {msg:32} [{bar:24}] {pos}/{len}  {elapsed}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn tell(bar: &ProgressBar, progress: Progress) {
    let (message, done, all) = match progress {
        Progress::Starting => ("starting", 0, 1),
        Progress::ApiServers(done, all) => ("API servers that answer", done, all),
        Progress::Nodes(done, all) => ("nodes that are ready", done, all),
    };
    bar.set_message(message);
    bar.set_length(all as u64);
    bar.set_position(done as u64);
}

fn summary(lab: &Lab, topology: &Topology, took: Duration) {
    let name = if lab.name == "lab" { String::new() } else { format!(" --name {}", lab.name) };
    println!(
        "The lab {:?} is ready: {} nodes in {:.1} s.\n",
        lab.name,
        topology.nodes().count(),
        took.as_secs_f32()
    );
    for cluster in &topology.clusters {
        if topology.clusters.len() > 1 {
            println!("  # cluster {}", cluster.name);
        }
        println!("  export KUBECONFIG={}", lab.kubeconfig(&cluster.name).display());
    }
    println!("  kubectl get nodes -o wide");
    println!("  godwit lab shell{name} {}", topology.nodes().next().map_or("NODE", |(_, node)| &node.name));
    println!("  godwit lab down{name}");
}

pub fn down(lab: &Lab) -> anyhow::Result<()> {
    if !lab.exists() {
        println!("There is no lab {:?}.", lab.name);
        return Ok(());
    }
    let bar = ProgressBar::new_spinner().with_message(format!("removing the lab {:?}", lab.name));
    bar.enable_steady_tick(Duration::from_millis(120));
    let outcome = ::lab::down(lab);
    bar.finish_and_clear();
    outcome?;
    println!("The lab {:?} is gone.", lab.name);
    Ok(())
}
