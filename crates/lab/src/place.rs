//! Places of a lab that a person can go to: nodes, pods, the fabric. And the images that pods are made of.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use kubelet::images::Images;

use crate::lifecycle::{client, find_program};
use crate::{Error, Lab, agent, processes, root};

/// What the machine of the control planes is called.
const FABRIC: &str = "fabric";
const SHELL: &str = "/bin/sh";

/// Somewhere inside a lab.
#[derive(Debug)]
pub struct Place {
    /// The init of the machine, as the machine below sees it.
    machine: i32,
    /// The container, if it is one.
    container: Option<String>,
}

/// Finds a node, a pod (`NAMESPACE/POD` or `POD`), or the fabric.
pub async fn find(lab: &Lab, name: &str, container: Option<&str>) -> Result<Place, Error> {
    let machines: Vec<_> = processes::list(lab)?;
    let init = |node: &str| {
        let found = machines
            .iter()
            .find(|process| process.role == "node init" && process.node.as_deref() == Some(node));
        found.map(|process| process.pid)
    };
    if machines.is_empty() {
        return Err(Error::NotRunning { name: lab.name.clone() });
    }
    if name == FABRIC
        && let Some(process) = machines.iter().find(|process| process.role == "lab init")
    {
        return Ok(Place { machine: process.pid, container: None });
    }
    if let Some(machine) = init(name) {
        return Ok(Place { machine, container: None });
    }
    let topology = lab.topology()?;
    let (namespace, pod) = name.split_once('/').unwrap_or(("default", name));
    for cluster in &topology.clusters {
        let pods = Api::<Pod>::namespaced(client(lab, &cluster.name).await?, namespace);
        let found =
            pods.get_opt(pod).await.map_err(Error::api(format!("looking for pod {namespace}/{pod}")))?;
        let Some(found) = found else { continue };
        let node = found.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        if let (Some(machine), Some(id)) = (init(&node), container_id(&found, container)) {
            return Ok(Place { machine, container: Some(id) });
        }
        let known =
            format!("pod {namespace}/{} runs no such container on a node of this lab", found.name_any());
        return Err(Error::NoSuchPlace { object: name.to_owned(), known });
    }
    let nodes: Vec<_> = topology.nodes().map(|(_, node)| node.name.as_str()).collect();
    let known = format!("there are {FABRIC}, {}, and pods as NAMESPACE/POD", nodes.join(", "));
    Err(Error::NoSuchPlace { object: name.to_owned(), known })
}

/// The container runtime's name of a running container.
fn container_id(pod: &Pod, container: Option<&str>) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| container.is_none_or(|wanted| wanted == status.name))?;
    let (_, id) = status.container_id.as_ref()?.split_once("://")?;
    Some(id.to_owned())
}

/// Replaces this process by a command there; without one, by a shell.
pub fn enter(place: &Place, command: &[String], terminal: bool) -> Result<Infallible, Error> {
    let nsenter =
        find_program("nsenter").ok_or(Error::Missing { program: "nsenter", package: "util-linux" })?;
    let at_terminal = terminal && place.container.is_none();
    let shell = if at_terminal { own_terminal()? } else { vec![SHELL.to_owned()] };
    let command = if command.is_empty() { &shell } else { command };
    let mut enter = Command::new(nsenter);
    enter.arg(format!("--target={}", place.machine));
    enter.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--"]);
    if let Some(container) = &place.container {
        enter.args([agent::OCI_RUNTIME, "--root", agent::RUN, "exec"]);
        if terminal {
            enter.arg("--tty");
        }
        enter.arg(container);
    }
    if at_terminal {
        // `script` starts what this names.
        enter.env("SHELL", SHELL);
    }
    let source = enter.args(command).exec();
    Err(Error::Start { process: command.join(" "), source })
}

/// A shell of a machine on a terminal of its own. The caller's terminal belongs to a process group
/// outside of the machine's PID namespace: a shell there cannot give the terminal back when it exits,
/// and fails with "Cannot set tty process group". A container's runtime allocates a terminal itself.
fn own_terminal() -> Result<Vec<String>, Error> {
    find_program("script").ok_or(Error::Missing { program: "script", package: "bsdutils" })?;
    Ok(["script", "--quiet", "--return", "--command", SHELL, "/dev/null"].map(str::to_owned).to_vec())
}

/// The image that pods know by `name`: a root file system, wherever on the machine it lies.
pub fn register_image(lab: &Lab, name: &str, directory: &Path) -> Result<(), Error> {
    let directory = directory.canonicalize().map_err(Error::file("finding", directory))?;
    let inside = Path::new(root::HOST).join(directory.strip_prefix("/").unwrap_or(&directory));
    Ok(Images::at(lab.images()).link(name, &inside)?)
}

/// Every image: its name, and where its root file system is.
pub fn images(lab: &Lab) -> Result<Vec<(String, String)>, Error> {
    let images = Images::at(lab.images());
    let place = |name: &str| match images.target(name) {
        Some(inside) => {
            Path::new("/").join(inside.strip_prefix(root::HOST).unwrap_or(&inside)).display().to_string()
        }
        None => "the machine's own".to_owned(),
    };
    Ok(images.list()?.into_iter().map(|name| (name.clone(), place(&name))).collect())
}
