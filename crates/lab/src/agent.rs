//! The agent of a lab node: the kubelet, and the routes to other nodes' pods. It runs inside its node.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Taint;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::access::{
    AUTHORITY, DESCRIPTION, Description, KUBECONFIG, SERVING_CERTIFICATE, SERVING_KEY, read,
};
use crate::lifecycle::find_program;
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
    let name = description.node.name.clone();
    let options = options(&description, client.clone(), file)?;
    let network = async {
        if let Some(pods) = description.pods {
            pod_network::claim(&client, &name, pods).await?;
        }
        pod_network::run(client.clone(), Some(&name), MTU).await
    };
    tokio::select! {
        outcome = kubelet::run(options, stop) => Ok(outcome?),
        outcome = network => outcome,
    }
}

fn options(
    description: &Description,
    client: Client,
    file: impl Fn(&str) -> PathBuf,
) -> Result<kubelet::Options, Error> {
    let node = &description.node;
    let address = node.address().unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let taint = |taint: &crate::topology::Taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
        ..Taint::default()
    };
    let state = Path::new(KUBELET);
    let run = Path::new("/run/kubelet");
    Ok(kubelet::Options {
        name: node.name.clone(),
        client,
        addresses: node.addresses(),
        labels: node.labels.clone(),
        taints: node.taints.iter().map(taint).collect(),
        capacity: capacity()?,
        runtime: kubelet::runtime::Options {
            state: state.join("containers"),
            run: RUN.into(),
            images: IMAGES.into(),
            runtime: find_program(OCI_RUNTIME)
                .ok_or(Error::Missing { program: OCI_RUNTIME, package: OCI_RUNTIME })?,
            shim: ["/proc/self/exe", "lab", "internal", "shim"].map(str::to_owned).to_vec(),
            cgroup_parent: description.cgroup.clone(),
        },
        state: state.to_owned(),
        run: run.to_owned(),
        cni: kubelet::CniOptions {
            conf_dir: "/etc/cni/net.d".into(),
            plugin_dirs: vec!["/opt/cni/bin".into(), "/usr/lib/cni".into()],
            journal: state.join("networks"),
            netns_dir: "/run/netns".into(),
        },
        serving: kubelet::Serving {
            address: SocketAddr::new(address, PORT),
            certificate: read(&file(SERVING_CERTIFICATE))?,
            key: read(&file(SERVING_KEY))?,
            client_ca: read(&file(AUTHORITY))?,
        },
        api_server: (description.api_server.ip().to_string(), description.api_server.port()),
        cluster_dns: None,
        heartbeat: kubelet::Options::HEARTBEAT,
    })
}

/// Nodes share the machine: each says that it has all of it, and the scheduler's sums are per node.
fn capacity() -> Result<kubelet::Capacity, Error> {
    let text = read(Path::new("/proc/meminfo"))?;
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let memory: u64 = kibibytes.unwrap_or(1 << 20);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let disk =
        nix::sys::statvfs::statvfs(KUBELET).map_err(Error::kernel("asking for the size of the disk"))?;
    Ok(kubelet::Capacity {
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory: memory * 1024,
        pods: 110,
        ephemeral_storage: disk.blocks() * disk.fragment_size(),
    })
}

pub(crate) async fn client(path: &Path) -> Result<Client, Error> {
    let failed = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    Client::try_from(config).map_err(Error::api("using the node's kubeconfig"))
}
