//! Engines: what makes the clusters of the tests, runs commands in them, and injects faults.
//!
//! The lab is the first engine; an engine with real nodes can follow. A fact that holds for one
//! engine only, such as a path on a node, belongs in that engine's file.
//!
//! Invariant: when an engine is dropped, its cluster and everything in it are gone.

pub mod lab;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use self::lab::Lab;

/// The variable that names the engine.
const VARIABLE: &str = "GODWIT_E2E";

/// Makes a cluster of a specification.
type Make = fn(&str) -> Arc<dyn Engine>;

/// Every engine, by name. The first one is the default.
const ENGINES: [(&str, Make); 1] = [("lab", |spec| Arc::new(Lab::up(spec)))];

/// A cluster, and the means to act on it from outside of Kubernetes.
///
/// Every node is a set of namespaces of this machine, with a root file system of its own. `kubectl`
/// and Godwit's own programs need only the kubeconfig, and do not go through the engine. A method
/// that cannot do what it is asked to do panics, so that the test fails there.
pub trait Engine: Send + Sync {
    /// The administrator's kubeconfig.
    fn kubeconfig(&self) -> PathBuf;

    /// A directory that is removed with the cluster. [`Place::Outside`] has it at the same path.
    fn directory(&self) -> PathBuf;

    /// Provides the images of this build on every node, applies Godwit's manifests, and waits until
    /// all of it works. `programs` is the directory with the programs of this build.
    fn install(&self, programs: &Path) -> Output;

    /// A shell command at a place, not yet started. Its standard input is empty unless the caller
    /// changes that.
    fn command(&self, place: Place<'_>, script: &str) -> Command;

    /// An image with a shell, coreutils, iproute2 and socat, for pods of tests.
    fn tools_image(&self) -> &str;

    /// The name of the pod network's CNI configuration. Its addresses are given by `host-local`,
    /// which files them under this name.
    fn pod_network(&self) -> &str;

    /// The processes of a pod's containers; none when the pod has ended.
    fn processes(&self, pod: &Pod) -> Vec<Process>;

    /// Sends a signal to processes in pods of one node, to all of them at once and in this order.
    /// Returns the number of processes that it was sent to.
    fn signal(&self, node: &str, targets: &[(&Pod, Processes<'_>)], signal: Signal) -> usize;

    /// Sends a signal to the kubelet of a node.
    fn signal_kubelet(&self, node: &str, signal: Signal);

    /// The processes of the whole cluster whose command begins so, as this machine numbers them.
    /// Tests call it several times a second.
    fn machine_processes(&self, command: &str) -> Vec<u32>;

    /// Files in the root file systems of a pod's containers that match a shell pattern, such as
    /// `run/*.pid`. Containers that have ended count as well.
    fn files(&self, pod: &Pod, pattern: &str) -> Vec<String>;

    /// The directory on the pod's node that holds an `emptyDir` volume of a pod.
    fn volume(&self, pod: &Pod, volume: &str) -> String;

    /// Everything on a node that belongs to pods, one line each. The first word is the kind: `file`,
    /// `entry` (in a file), `netns`, `mount`, `link` or `process`. Every line contains the pod's
    /// UID, except those of processes, which have a number and a command, and of links.
    fn traces(&self, node: &str) -> Vec<String>;

    /// Disconnects a node from a network of the specification, or connects it again.
    fn set_connected(&self, node: &str, network: &str, connected: bool);

    /// Has every later call of a CNI plugin on a node add a line to a file on that node: command,
    /// container ID, interface and network namespace.
    fn record_plugin_calls(&self, node: &str, plugin: &str, file: &str);

    /// State of the cluster that Kubernetes does not show, for the message of a test that fails.
    fn describe(&self) -> String;
}

/// Where a command runs. Nodes and the host outside have coreutils, iproute2, curl and socat; the
/// host outside also has dnsmasq.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// On a node, as root.
    Node(&'a str),
    /// In the first container of a pod.
    Pod(&'a Pod),
    /// In the network namespace of a pod, with the programs and files of the pod's node.
    PodNetwork(&'a Pod),
    /// On a host that is not a node. It has an interface on every network of the specification, with
    /// the network's name.
    Outside,
}

/// A pod that has a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: String,
}

/// A process of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number on the node.
    pub number: u32,
    /// Its `comm`: the name of the program, at most 15 bytes of it.
    pub command: String,
}

/// Which processes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes<'a> {
    All,
    /// Process 1 of a container.
    First,
    /// Those whose command begins so.
    Named(&'a str),
    /// Those whose command begins so, but for process 1 of a container.
    NamedButFirst(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
    Stop,
    Continue,
}

impl Signal {
    /// The name that `kill` knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// Makes a cluster on the engine that the environment names. The specification is a `lab.yaml`,
/// which describes nodes and networks; an empty one means three nodes with a second network besides
/// the management network.
pub(crate) fn start(spec: &str) -> Arc<dyn Engine> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    named(&wanted).unwrap_or_else(|error| panic!("{error}"))(spec)
}

fn named(wanted: &str) -> Result<Make, String> {
    if wanted.is_empty() {
        return Ok(ENGINES[0].1);
    }
    let known = ENGINES.map(|(name, _)| name).join(", ");
    let engine = ENGINES.into_iter().find(|(name, _)| *name == wanted);
    engine.map(|(_, make)| make).ok_or_else(|| format!("{VARIABLE}={wanted}: known engines are: {known}"))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn the_default_engine_is_the_lab() {
        assert!(named("").is_ok() && named("lab").is_ok());
    }

    #[test]
    fn an_unknown_engine_is_an_error_that_names_the_known_ones() {
        assert_eq!(named("moon").err().unwrap(), "GODWIT_E2E=moon: known engines are: lab");
    }
}
