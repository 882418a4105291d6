//! What a person sees of a lab: its clusters, nodes, pods, and processes.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use crate::lifecycle::{client, is_ready};
use crate::processes::{self, Process};
use crate::{Error, Lab};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub name: String,
    pub running: bool,
    pub directory: String,
    pub clusters: Vec<ClusterView>,
    pub processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub name: String,
    pub kubeconfig: String,
    /// Why nodes and pods are not shown, if the API server does not answer.
    pub unreachable: Option<String>,
    pub nodes: Vec<NodeView>,
    pub pods: Vec<PodView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    pub name: String,
    pub ready: bool,
    pub address: Option<String>,
    pub pod_network: Option<String>,
    /// Its other NICs, as `eth1 on secondary`.
    pub nics: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    pub namespace: String,
    pub name: String,
    pub phase: String,
    pub node: Option<String>,
    pub address: Option<String>,
}

/// Looks at a lab. One that is half made or stopped is shown as far as it goes.
pub async fn look(lab: &Lab) -> Result<View, Error> {
    if !lab.exists() {
        return Err(Error::NoLab { name: lab.name.clone() });
    }
    let running = lab.keeper()?.is_some();
    let mut clusters = Vec::new();
    if let Ok(topology) = lab.topology() {
        for cluster in &topology.clusters {
            let nodes = cluster.nodes.iter().map(|node| NodeView {
                name: node.name.clone(),
                ready: false,
                address: node.address().map(|address| address.to_string()),
                pod_network: None,
                nics: node
                    .nics
                    .iter()
                    .skip(1)
                    .map(|nic| format!("{} on {}", nic.name, nic.network))
                    .collect(),
            });
            let mut view = ClusterView {
                name: cluster.name.clone(),
                kubeconfig: lab.kubeconfig(&cluster.name).display().to_string(),
                unreachable: None,
                nodes: nodes.collect(),
                pods: Vec::new(),
            };
            let filled = match client(lab, &cluster.name).await {
                Ok(client) if running => fill(&mut view, client).await,
                Ok(_) => Err(Error::NotRunning { name: lab.name.clone() }),
                Err(error) => Err(error),
            };
            view.unreachable = filled.err().map(|error| crate::supervisor::Chain(&error).to_string());
            clusters.push(view);
        }
    }
    Ok(View {
        name: lab.name.clone(),
        running,
        directory: lab.directory().display().to_string(),
        clusters,
        processes: processes::list(lab)?,
    })
}

async fn fill(view: &mut ClusterView, client: Client) -> Result<(), Error> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.map_err(Error::api("listing nodes"))?;
    for node in &mut view.nodes {
        if let Some(found) = nodes.items.iter().find(|found| found.name_any() == node.name) {
            node.ready = is_ready(found);
            node.pod_network =
                found.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).map(|ranges| ranges.join(","));
        }
    }
    let pods = Api::<Pod>::all(client).list(&all).await.map_err(Error::api("listing pods"))?;
    view.pods = pods
        .items
        .iter()
        .map(|pod| {
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".into());
            PodView {
                namespace: pod.namespace().unwrap_or_default(),
                name: pod.name_any(),
                phase: if pod.metadata.deletion_timestamp.is_some() { "Terminating".into() } else { phase },
                node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
                address: status.and_then(|status| status.pod_ip.clone()),
            }
        })
        .collect();
    Ok(())
}
