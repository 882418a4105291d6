//! Looking at a lab: its state, its logs, and into its nodes and pods.

use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::lab::{Lab, View};
use anyhow::Context as _;

use crate::table::Table;

/// How often a followed log is looked at.
const FOLLOW: Duration = Duration::from_millis(200);

pub fn status(lab: &Lab, json: bool) -> anyhow::Result<()> {
    let view = super::runtime()?.block_on(::lab::look(lab))?;
    if json {
        println!("{}", serde_json::to_string_pretty(&view)?);
        return Ok(());
    }
    print_view(&view);
    Ok(())
}

fn print_view(view: &View) {
    println!(
        "lab {} ({}), in {}",
        view.name,
        if view.running { "running" } else { "stopped" },
        view.directory
    );
    for cluster in &view.clusters {
        println!("\ncluster {}: export KUBECONFIG={}", cluster.name, cluster.kubeconfig);
        if let Some(why) = &cluster.unreachable {
            println!("  its API server does not answer: {why}");
        }
        let mut nodes = Table::new(["NODE", "READY", "ADDRESS", "PODS", "OTHER NICS"]);
        for node in &cluster.nodes {
            let ready = if node.ready { "yes" } else { "no" };
            let address = node.address.clone().unwrap_or_default();
            let pods = node.pod_network.clone().unwrap_or_default();
            nodes.row([node.name.clone(), ready.into(), address, pods, node.nics.join(", ")]);
        }
        print!("\n{nodes}");
        if !cluster.pods.is_empty() {
            let mut pods = Table::new(["NAMESPACE", "POD", "PHASE", "NODE", "ADDRESS"]);
            for pod in &cluster.pods {
                let node = pod.node.clone().unwrap_or_default();
                let address = pod.address.clone().unwrap_or_default();
                pods.row([pod.namespace.clone(), pod.name.clone(), pod.phase.clone(), node, address]);
            }
            print!("\n{pods}");
        }
    }
    let mut processes = Table::new(["PID", "PROCESS", "NODE"]);
    for process in &view.processes {
        let node = process.node.clone().unwrap_or_default();
        processes.row([process.pid.to_string(), process.role.clone(), node]);
    }
    print!("\n{processes}");
}

pub fn kubeconfig(lab: &Lab, cluster: Option<&str>) -> anyhow::Result<()> {
    let topology = lab.topology()?;
    let cluster = match cluster {
        None => topology.clusters.first(),
        Some(name) => topology.cluster(name),
    };
    let known: Vec<_> = topology.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let cluster = cluster.with_context(|| format!("no such cluster; there are: {}", known.join(", ")))?;
    println!("{}", lab.kubeconfig(&cluster.name).display());
    Ok(())
}

pub fn images(lab: &Lab) -> anyhow::Result<()> {
    let mut table = Table::new(["IMAGE", "ROOT FILE SYSTEM"]);
    for (name, root) in ::lab::images(lab)? {
        table.row([name, root]);
    }
    print!("{table}");
    Ok(())
}

pub fn shell(lab: &Lab, place: &str, container: Option<&str>, command: &[String]) -> anyhow::Result<()> {
    let target = super::runtime()?.block_on(::lab::find_place(lab, place, container))?;
    let interactive = command.is_empty() && std::io::stdin().is_terminal();
    let never = ::lab::enter(&target, command, interactive)?;
    match never {}
}

pub fn logs(lab: &Lab, process: Option<&str>, follow: bool) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(lab.logs()).context("listing the logs")? {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if process.is_none_or(|wanted| wanted == name) {
            files.push(Followed { name, path, offset: 0 });
        }
    }
    anyhow::ensure!(
        !files.is_empty(),
        "there is no log of {:?}: try `godwit lab logs`",
        process.unwrap_or("the lab")
    );
    files.sort_by(|one, other| one.name.cmp(&other.name));
    let named = files.len() > 1;
    loop {
        for file in &mut files {
            file.print(named)?;
        }
        if !follow {
            return Ok(());
        }
        std::thread::sleep(FOLLOW);
    }
}

struct Followed {
    name: String,
    path: PathBuf,
    offset: u64,
}

impl Followed {
    /// Prints the whole lines that are new.
    fn print(&mut self, named: bool) -> anyhow::Result<()> {
        let text =
            read_from(&self.path, self.offset).with_context(|| format!("reading {}", self.path.display()))?;
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        self.offset += end as u64 + 1;
        let mut out = std::io::stdout().lock();
        for line in text[..=end].split_inclusive(|byte| *byte == b'\n') {
            if named {
                write!(out, "{:12} ", self.name)?;
            }
            out.write_all(line)?;
        }
        Ok(())
    }
}

fn read_from(path: &Path, offset: u64) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}
