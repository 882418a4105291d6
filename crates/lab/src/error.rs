//! What can go wrong in a lab, told to the person who runs it.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a lab cannot be called {name:?}: use up to 20 lower-case letters, digits and dashes")]
    Name { name: String },
    #[error("there is no lab {name:?}: `godwit lab up --name {name}` makes it")]
    NoLab { name: String },
    #[error("the lab {name:?} is not running: `godwit lab up --name {name}` starts it again")]
    NotRunning { name: String },
    #[error(
        "the lab {name:?} is there already, with another configuration: `godwit lab down --name {name}` removes it"
    )]
    Differs { name: String },
    #[error("a lab needs root: it makes network namespaces and mounts")]
    NotRoot,
    #[error("{program} is not installed: run tools/setup, or install {package}")]
    Missing { program: &'static str, package: &'static str },
    #[error("{object:?} is neither a node nor a pod of the lab: {known}")]
    NoSuchPlace { object: String, known: String },
    #[error("{operation} {path}")]
    File {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not what a lab writes; remove the lab with `godwit lab down`")]
    State {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{operation} failed")]
    Kernel {
        operation: String,
        #[source]
        source: Errno,
    },
    #[error("starting {process} failed")]
    Start {
        process: String,
        #[source]
        source: io::Error,
    },
    #[error("{what} did not end within {seconds} s after it was killed")]
    StillThere { what: String, seconds: u64 },
    #[error("the lab's keeper ended; its log says:\n{log}")]
    KeeperEnded { log: String },
    #[error(transparent)]
    Network(#[from] net::Error),
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Image(#[from] kubelet::images::Error),
    #[error("the API server did not start")]
    ApiServer(#[from] apiserver::StartError),
    #[error("{operation} failed")]
    Api {
        operation: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("waiting for {what} failed")]
    Wait {
        what: String,
        #[source]
        source: kube::runtime::wait::Error,
    },
    #[error("the agent ended")]
    Agent(#[from] kubelet::Error),
    #[error("the controllers of the cluster ended")]
    Controllers(#[from] workloads::Error),
    #[error("the kubeconfig {path} cannot be used")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
}

impl Error {
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }

    pub(crate) fn kernel(operation: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let operation = operation.into();
        move |source| Self::Kernel { operation, source }
    }

    pub(crate) fn api(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Api { operation, source: Box::new(source) }
    }
}
