//! The first processes: the keeper of a lab, the lab's init, and a node's init. Each starts what is below it, and again when it dies.
//!
//! ```text
//!  keeper ─ lab init ─┬─ control plane, one a cluster
//!                     └─ node init, one a node ─┬─ agent
//!                                               └─ the CNI plugins' DHCP daemon
//! ```
//!
//! Killing an init is a power cut of its machine; killing the keeper is one of the whole lab.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Pid, sethostname, setsid};

use crate::supervisor::{self, Service};
use crate::topology::{MANAGEMENT, Node, Topology};
use crate::{Error, Lab, fabric, machine, root};

/// Where the network namespace of the fabric is handed to nodes.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";
/// The daemon that plugins of the kind `dhcp` talk to, on nodes that have it.
const DHCP: &str = "/usr/lib/cni/dhcp";
const DHCP_SOCKET: &str = "/run/cni/dhcp.sock";

/// Keeps a lab running until told to end. Returns at once if another keeper does.
pub fn keep(directory: &Path) -> Result<(), Error> {
    let lab = Lab::at(directory)?;
    // It fails only for the leader of a group, which then has a session or a shell of its own.
    let _ = setsid();
    let Some(_lock) = lab.lock()? else { return Ok(()) };
    let topology = lab.topology()?;
    let mut listeners = Vec::new();
    for cluster in topology.clusters.iter().filter(|cluster| !cluster.joined) {
        listeners.push(loopback(&lab, &cluster.name)?);
    }
    let numbers: Vec<_> = listeners.iter().map(|listener| listener.as_raw_fd().to_string()).collect();
    let place = directory.display().to_string();
    let start = || {
        let mut arguments = vec!["lab", "internal", "init", place.as_str()];
        arguments.extend(numbers.iter().map(String::as_str));
        let inherited: Vec<_> = listeners.iter().map(TcpListener::as_fd).collect();
        let machine = machine::start(&lab.program(), &arguments, &lab.log("init"), &inherited)?;
        Ok((machine.init, machine))
    };
    let mut services = vec![Service::new("lab", start)];
    for cluster in topology.clusters.iter().filter(|cluster| cluster.joined) {
        let (lab, place) = (&lab, &place);
        services.push(Service::new(format!("gate of {}", cluster.name), move || {
            let arguments = ["lab", "internal", "gate", place.as_str(), &cluster.name];
            start_process(&lab.program(), &arguments, &lab.log("gate"), Stdio::null())
        }));
    }
    supervisor::run(services)
}

/// The socket on which a person reaches a cluster's API server. The port is kept, so that kubeconfigs stay true.
fn loopback(lab: &Lab, cluster: &str) -> Result<TcpListener, Error> {
    let path = lab.cluster(cluster).join("port");
    let before = std::fs::read_to_string(&path).ok().and_then(|port| port.trim().parse().ok());
    let bind = |port: u16| TcpListener::bind(("127.0.0.1", port));
    let listener = match before.map(bind) {
        Some(Ok(listener)) => listener,
        // Another program has the port by now.
        _ => bind(0)
            .map_err(|source| Error::Start { process: format!("the loopback port of {cluster}"), source })?,
    };
    let address = listener
        .local_addr()
        .map_err(|source| Error::Start { process: format!("the loopback port of {cluster}"), source })?;
    identity::write_private(&path, address.port().to_string().as_bytes())?;
    crate::access::write_admin(lab, cluster, address)?;
    Ok(listener)
}

/// The lab's init: builds the fabric, then keeps control planes and nodes running.
pub fn lab_init(directory: &Path, listeners: &[i32]) -> Result<(), Error> {
    machine::begin()?;
    let lab = Lab::at(directory)?;
    let topology = lab.topology()?;
    set_hostname(&lab.name)?;
    blocking(fabric::build(&topology))?;
    let own = File::open(OWN_NAMESPACE).map_err(Error::file("opening", Path::new(OWN_NAMESPACE)))?;
    let place = directory.display().to_string();
    let mut services = Vec::new();
    let mut listeners = listeners.iter();
    for cluster in &topology.clusters {
        let (lab, place) = (&lab, &place);
        let socket = if cluster.joined {
            None
        } else {
            listeners.next().copied().map(machine::inherited).transpose()?
        };
        services.push(Service::new(cluster.name.clone(), move || {
            let (process, input) = match &socket {
                None => ("relay", Stdio::null()),
                // The socket on the machine's loopback, which the control plane cannot open itself.
                Some(socket) => ("control-plane", Stdio::from(copy(socket)?)),
            };
            let arguments = ["lab", "internal", process, place.as_str(), &cluster.name];
            start_process(&lab.program(), &arguments, &lab.log(&cluster.name), input)
        }));
    }
    for (_, node) in topology.nodes() {
        let (lab, place, own) = (&lab, &place, &own);
        services.push(Service::new(node.name.clone(), move || {
            let number = own.as_raw_fd().to_string();
            let arguments = ["lab", "internal", "node-init", place.as_str(), &node.name, &number];
            let machine = machine::start(&lab.program(), &arguments, &lab.log(&node.name), &[own.as_fd()])?;
            Ok((machine.init, machine))
        }));
    }
    supervisor::run(services)
}

/// A node's init: makes its root and its NICs, then keeps its agent running.
pub fn node_init(directory: &Path, name: &str, fabric: i32) -> Result<(), Error> {
    machine::begin()?;
    let lab = Lab::at(directory)?;
    let topology = lab.topology()?;
    let Some((_, node)) = topology.node(name) else {
        return Err(Error::NoSuchPlace {
            object: name.to_owned(),
            known: "lab.json has no such node".into(),
        });
    };
    let log = lab.log(name);
    let output = File::options().append(true).open(&log).map_err(Error::file("opening", &log))?;
    let inherited = machine::inherited(fabric)?;
    let fabric = net::Namespace::open(Path::new(&format!("/proc/self/fd/{fabric}")))?;
    drop(inherited);
    set_hostname(name)?;
    root::enter(&root::Sources { node: &lab.node(name), images: &lab.images() })?;
    blocking(plug_in(&topology, node, &fabric))?;
    drop(fabric);
    let again = || output.try_clone().map(Stdio::from);
    let start = |process: &str, command: &mut Command| {
        let failed = |source| Error::Start { process: process.to_owned(), source };
        command.stdin(Stdio::null()).stdout(again().map_err(failed)?).stderr(again().map_err(failed)?);
        let child = command.spawn().map_err(failed)?;
        Ok((pid(&child), ()))
    };
    let mut services = vec![Service::new("agent", || {
        start("the agent", Command::new("/proc/self/exe").args(["lab", "internal", "agent"]))
    })];
    if Path::new(DHCP).exists() {
        services.push(Service::new("dhcp", || {
            let directory = Path::new("/run/cni");
            std::fs::create_dir_all(directory).map_err(Error::file("making", directory))?;
            // What a killed one left would stop the next.
            match std::fs::remove_file(DHCP_SOCKET) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::file("removing", Path::new(DHCP_SOCKET))(cause));
                }
                _ => {}
            }
            start("the DHCP daemon", Command::new(DHCP).args(["daemon", "-socketpath", DHCP_SOCKET]))
        }));
    }
    supervisor::run(services)
}

async fn plug_in(topology: &Topology, node: &Node, fabric: &net::Namespace) -> Result<(), Error> {
    let own = net::Namespace::current()?;
    let handle = net::Handle::open(&own)?;
    handle.set_up("lo").await?;
    fabric::forward(&own, node.nics.iter().flat_map(crate::topology::Nic::addresses))?;
    for nic in &node.nics {
        let Some(network) = topology.network(&nic.network) else { continue };
        fabric::plug(fabric, &own, nic, network).await?;
        for gateway in network.addresses().filter(|_| nic.name == MANAGEMENT) {
            handle.ensure_route(&net::Route::default_by(gateway.addr())).await?;
        }
    }
    Ok(())
}

/// Runs something async to its end, on a runtime that is gone afterwards: an init has one thread.
fn blocking<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Start { process: "the runtime".into(), source })?;
    runtime.block_on(work)
}

fn copy(socket: &OwnedFd) -> Result<OwnedFd, Error> {
    socket.try_clone().map_err(|source| Error::Start { process: "the control plane".into(), source })
}

fn start_process(program: &Path, arguments: &[&str], log: &Path, input: Stdio) -> Result<(Pid, ()), Error> {
    let failed = |source| Error::Start { process: arguments.join(" "), source };
    let output = File::options().create(true).append(true).open(log).map_err(Error::file("opening", log))?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(input)
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output)
        .spawn()
        .map_err(failed)?;
    Ok((pid(&child), ()))
}

/// The supervisor waits for it, so the handle is of no use.
fn pid(child: &std::process::Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn set_hostname(name: &str) -> Result<(), Error> {
    sethostname(name).map_err(Error::kernel("setting the host name"))
}
