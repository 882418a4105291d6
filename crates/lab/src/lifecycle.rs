//! Making a lab, and removing it.
//!
//! Making checks everything first, writes the lab's directory, then starts the keeper, which does the rest. Removing ends
//! the processes, waits until the kernel says that they are gone, and deletes what is left of them outside their namespaces:
//! cgroups and files. Both may be interrupted at any point and called again.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

use crate::topology::Topology;
use crate::{Error, Lab, access, processes};

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const END: Duration = Duration::from_secs(20);
const CGROUPS: &str = "/sys/fs/cgroup";

/// How far a lab has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Starting,
    /// The API servers that answer, of how many.
    ApiServers(usize, usize),
    /// The nodes that are ready, of how many.
    Nodes(usize, usize),
}

/// Makes the lab's directory, or finds it. A lab that is there keeps its topology. `program` is what the lab runs, and
/// `joined` the kubeconfig of the control plane that its nodes join, if that is not the lab's own.
pub fn prepare(
    lab: &Lab,
    wanted: Option<&Topology>,
    joined: Option<&Path>,
    program: &Path,
) -> Result<Topology, Error> {
    check_machine()?;
    let before = if lab.exists() { lab.topology().ok() } else { None };
    let topology = match (before, wanted) {
        (Some(before), Some(wanted)) if before != *wanted => {
            return Err(Error::Differs { name: lab.name.clone() });
        }
        (Some(before), _) => return Ok(before),
        (None, wanted) => wanted.cloned().unwrap_or_default(),
    };
    for directory in [lab.directory().to_owned(), lab.logs(), lab.images()] {
        std::fs::create_dir_all(&directory).map_err(Error::file("making", &directory))?;
    }
    let copy = lab.program();
    std::fs::copy(program, &copy).map_err(Error::file("copying the program to", &copy))?;
    access::prepare(lab, &topology, joined)?;
    // Last: it says that all the rest is there.
    lab.write_topology(&topology)?;
    Ok(topology)
}

fn check_machine() -> Result<(), Error> {
    if !Uid::effective().is_root() {
        return Err(Error::NotRoot);
    }
    let needed = [("runc", "runc"), ("nsenter", "util-linux")];
    for (program, package) in needed {
        if find_program(program).is_none() {
            return Err(Error::Missing { program, package });
        }
    }
    if !Path::new("/usr/lib/cni/bridge").exists() && !Path::new("/opt/cni/bin/bridge").exists() {
        return Err(Error::Missing {
            program: "the CNI plugin bridge",
            package: "containernetworking-plugins",
        });
    }
    Ok(())
}

pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The keeper of a lab, seen from whoever wants the lab to run.
pub struct Keeper {
    /// None: it ran before we came.
    started: Option<Child>,
}

impl Keeper {
    fn runs(&mut self, lab: &Lab) -> Result<bool, Error> {
        match &mut self.started {
            None => Ok(lab.keeper()?.is_some()),
            Some(child) => {
                let ended = child
                    .try_wait()
                    .map_err(|source| Error::Start { process: "the keeper".into(), source })?;
                Ok(ended.is_none())
            }
        }
    }
}

/// Starts the keeper. One that runs already goes on.
pub fn start(lab: &Lab) -> Result<Keeper, Error> {
    if lab.keeper()?.is_some() {
        return Ok(Keeper { started: None });
    }
    let log = lab.log("keeper");
    let output = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(Error::file("opening", &log))?;
    let failed = |source| Error::Start { process: "the keeper".into(), source };
    let started = Command::new(lab.program())
        .args(["lab", "internal", "keep"])
        .arg(lab.directory())
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output)
        .current_dir("/")
        .spawn()
        .map_err(failed)?;
    Ok(Keeper { started: Some(started) })
}

/// Waits until every API server answers and every node is ready.
pub async fn ready(
    lab: &Lab,
    topology: &Topology,
    mut keeper: Keeper,
    mut tell: impl FnMut(Progress),
) -> Result<(), Error> {
    let (clusters, nodes) = (topology.clusters.len(), topology.nodes().count());
    tell(Progress::Starting);
    loop {
        if !keeper.runs(lab)? {
            if keeper.started.is_some() {
                return Err(Error::KeeperEnded { log: tail(&lab.log("keeper")) });
            }
            // It was there when we came, and was killed: also just before, as a process keeps its lock until it is gone.
            keeper = start(lab)?;
        }
        let (mut answering, mut ready) = (0, 0);
        for cluster in &topology.clusters {
            if let Some(found) = ready_nodes(lab, &cluster.name).await {
                answering += 1;
                ready += found.min(cluster.nodes.len());
            }
        }
        if answering == clusters && ready == nodes {
            tell(Progress::Nodes(ready, nodes));
            return Ok(());
        }
        tell(if answering < clusters {
            Progress::ApiServers(answering, clusters)
        } else {
            Progress::Nodes(ready, nodes)
        });
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How many nodes are ready; none: the API server does not answer yet.
async fn ready_nodes(lab: &Lab, cluster: &str) -> Option<usize> {
    let client = client(lab, cluster).await.ok()?;
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await.ok()?;
    Some(nodes.items.iter().filter(|node| is_ready(node)).count())
}

pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A client with the administrator's rights.
pub async fn client(lab: &Lab, cluster: &str) -> Result<Client, Error> {
    let path = lab.kubeconfig(cluster);
    let failed = |source| Error::Kubeconfig { path: path.clone(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(&path).map_err(failed)?;
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    Client::try_from(config).map_err(Error::api("using the administrator's kubeconfig"))
}

/// The end of a log, for a person who must know why.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// Removes a lab and everything of it. A lab that is not there is no error.
pub fn down(lab: &Lab) -> Result<(), Error> {
    if !lab.exists() {
        return Ok(());
    }
    if !Uid::effective().is_root() {
        return Err(Error::NotRoot);
    }
    end_processes(lab)?;
    remove_cgroups(lab)?;
    match std::fs::remove_dir_all(lab.directory()) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("removing", lab.directory())(cause))
        }
        _ => Ok(()),
    }
}

fn end_processes(lab: &Lab) -> Result<(), Error> {
    let deadline = Instant::now() + END;
    // Known before the end, because then nothing names them any more.
    let all: Vec<_> = processes::list(lab)?
        .into_iter()
        .filter_map(|process| Some((process.pid, start_time(process.pid)?)))
        .collect();
    if let Some(keeper) = lab.keeper()? {
        signal(keeper, Signal::SIGTERM)?;
        let grace = Instant::now() + END / 2;
        while lab.keeper()? == Some(keeper) && Instant::now() < grace {
            std::thread::sleep(LOOK_AGAIN);
        }
        if lab.keeper()? == Some(keeper) {
            signal(keeper, Signal::SIGKILL)?;
        }
    }
    loop {
        let left = processes::list(lab)?;
        // Whoever still runs the lab's program has lost its keeper.
        for process in left.iter().filter(|process| process.node.is_none()) {
            signal(Pid::from_raw(process.pid), Signal::SIGKILL)?;
        }
        let known = all.iter().filter(|(pid, since)| start_time(*pid) == Some(*since)).count();
        if left.is_empty() && known == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let what = format!("{} processes of the lab", left.len().max(known));
            return Err(Error::StillThere { what, seconds: END.as_secs() });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn signal(process: Pid, signal: Signal) -> Result<(), Error> {
    match kill(process, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::kernel(format!("sending {signal} to process {process}"))(errno)),
    }
}

/// When a process began, which with its number tells it from all others; none: it has ended, also if nobody took note yet.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    // A zombie whose threads are gone holds nothing any more.
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Containers' cgroups are in hierarchies that no namespace of ours holds.
fn remove_cgroups(lab: &Lab) -> Result<(), Error> {
    let name = lab.cgroup();
    let name = name.trim_start_matches('/');
    let mut tops = vec![Path::new(CGROUPS).join(name)];
    let hierarchies = std::fs::read_dir(CGROUPS).map_err(Error::file("listing", CGROUPS.as_ref()))?;
    tops.extend(hierarchies.flatten().map(|hierarchy| hierarchy.path().join(name)));
    for top in tops.iter().filter(|top| top.is_dir()) {
        let deadline = Instant::now() + END;
        // Processes that have just been killed may still be leaving.
        while let Err(cause) = remove_cgroup(top) {
            if Instant::now() >= deadline {
                return Err(Error::file("removing the cgroup", top)(cause));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
    Ok(())
}

fn remove_cgroup(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_cgroup(&entry.path())?;
        }
    }
    match std::fs::remove_dir(directory) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}
