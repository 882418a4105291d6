//! The agent of a lab node: the kubelet, and the routes to other nodes' pods. It runs inside its node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::access::{AUTHORITY, DESCRIPTION, Description, KUBECONFIG, SERVING_CERTIFICATE, SERVING_KEY, read};
use crate::root::{CONFIGURATION, IMAGES, KUBELET};
use crate::{Error, pod_network};

/// The OCI runtime, and where it keeps what ends with the node.
pub(crate) const OCI_RUNTIME: &str = "runc";
pub(crate) const RUN: &str = "/run/runc";
/// Where a node's kubelet answers.
const PORT: u16 = 10250;
/// Pods' packets must fit the management network, which has at least this.
const MTU: u32 = 1500;

pub async fn run(stop: impl Future<Output = ()>) -> Result<(), Error> {
    let file = |name: &str| Path::new(CONFIGURATION).join(name);
    let path = file(DESCRIPTION);
    let description: Description =
        serde_json::from_str(&read(&path)?).map_err(|source| Error::State { path, source })?;
    let client = client(&file(KUBECONFIG)).await?;
    let node = &description.node;
    tokio::select! {
        () = stop => Ok(()),
        outcome = pod_network::run(client, Some(&node.name), MTU) => outcome,
    }
}

pub(crate) async fn client(path: &Path) -> Result<Client, Error> {
    let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    Client::try_from(config).map_err(Error::api("using the node's kubeconfig"))
}
