//! Pods reach pods of other nodes: a route to every other node's pods, by that node's address. Nodes also get the CNI
//! configuration of their own pods here, once their share of the cluster's addresses is known.
//!
//! It follows the `Node` objects, so it works with whoever hands out the shares.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use net::{Handle, Namespace, Route};
use serde_json::json;

use crate::Error;
use crate::supervisor::Chain;

/// The first configuration in the directory is the one of pods' `eth0`; ours leaves room before and after it.
const CONFIGURATION: &str = "/etc/cni/net.d/10-pods.conflist";
const BRIDGE: &str = "cni0";

/// What a node contributes: of each version of IP, where its pods are, and by which address they are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Share(Vec<(IpNet, IpAddr)>);

/// Keeps the routes of this network namespace right, and the CNI configuration of the node `own`, if this is a node.
pub(crate) async fn run(client: Client, own: Option<&str>, mtu: u32) -> Result<(), Error> {
    use futures::StreamExt as _;
    let handle = Handle::open(&Namespace::current()?)?;
    let nodes = watcher(Api::<Node>::all(client), watcher::Config::default()).default_backoff();
    futures::pin_mut!(nodes);
    let (mut shares, mut listed) = (BTreeMap::new(), BTreeMap::new());
    while let Some(event) = nodes.next().await {
        match event {
            Ok(Event::Init) => listed = BTreeMap::new(),
            Ok(Event::InitApply(node)) => {
                listed.extend(share(&node).map(|share| (node.name_any(), share)));
            }
            Ok(Event::InitDone) => update(&handle, own, mtu, &mut shares, std::mem::take(&mut listed)).await,
            Ok(Event::Apply(node)) => {
                let mut next = shares.clone();
                match share(&node) {
                    Some(share) => next.insert(node.name_any(), share),
                    None => next.remove(&node.name_any()),
                };
                update(&handle, own, mtu, &mut shares, next).await;
            }
            Ok(Event::Delete(node)) => {
                let mut next = shares.clone();
                next.remove(&node.name_any());
                update(&handle, own, mtu, &mut shares, next).await;
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "the nodes cannot be watched; trying again"),
        }
    }
    Ok(())
}

/// Gives the node `name` its share, where no controller of its cluster does.
pub(crate) async fn claim(client: &Client, name: &str, pods: Ipv4Net) -> Result<(), Error> {
    let nodes = Api::<Node>::all(client.clone());
    let failed = || Error::api(format!("giving node {name} its share of pods' addresses"));
    let is_there = await_condition(nodes.clone(), name, |node: Option<&Node>| node.is_some());
    let node = is_there.await.map_err(|source| Error::Wait { what: format!("node {name}"), source })?;
    if node.and_then(|node| node.spec?.pod_cidr).is_some() {
        return Ok(());
    }
    let spec = json!({ "spec": { "podCIDR": pods, "podCIDRs": [pods] } });
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(spec)).await.map_err(failed())?;
    Ok(())
}

fn share(node: &Node) -> Option<Share> {
    let spec = node.spec.as_ref()?;
    let pods = spec.pod_cidrs.as_deref().filter(|list| !list.is_empty()).unwrap_or(spec.pod_cidr.as_slice());
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
    let internal: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
    let reached = pods.iter().filter_map(|range| {
        let range: IpNet = range.parse().ok()?;
        let by = internal.iter().find(|by| by.is_ipv4() == range.addr().is_ipv4())?;
        Some((range, *by))
    });
    let reached: Vec<_> = reached.collect();
    (!reached.is_empty()).then_some(Share(reached))
}

/// What cannot be done now is tried again with the next change of any node: heartbeats see to it that there is one.
async fn update(
    handle: &Handle,
    own: Option<&str>,
    mtu: u32,
    shares: &mut BTreeMap<String, Share>,
    wanted: BTreeMap<String, Share>,
) {
    for (node, share) in shares.clone() {
        if wanted.get(&node) == Some(&share) {
            continue;
        }
        if own != Some(node.as_str())
            && let Err(error) = forget(handle, &share).await
        {
            tracing::warn!(node, error = %Chain(&error), "the route to the node's pods cannot be removed");
            continue;
        }
        shares.remove(&node);
    }
    for (node, share) in wanted {
        if shares.get(&node) == Some(&share) {
            continue;
        }
        let done =
            if own == Some(node.as_str()) { configure(&share, mtu) } else { reach(handle, &share).await };
        match done {
            Ok(()) => {
                tracing::info!(node, share = ?share.0, "pods are reached");
                shares.insert(node, share);
            }
            Err(error) => {
                tracing::warn!(node, error = %Chain(&error), "the node's pods cannot be reached yet");
            }
        }
    }
}

async fn reach(handle: &Handle, share: &Share) -> Result<(), Error> {
    for (pods, by) in &share.0 {
        handle.replace_route(&Route::to(*pods).gateway(*by)).await?;
    }
    Ok(())
}

async fn forget(handle: &Handle, share: &Share) -> Result<(), Error> {
    for (pods, by) in &share.0 {
        handle.delete_route_if_exists(&Route::to(*pods).gateway(*by)).await?;
    }
    Ok(())
}

/// The default network of this node's pods, by the plugins that are everywhere.
fn configure(share: &Share, mtu: u32) -> Result<(), Error> {
    let ranges: Vec<_> = share.0.iter().map(|(pods, _)| json!([{ "subnet": pods }])).collect();
    let configuration = json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": BRIDGE,
            "isDefaultGateway": true,
            "hairpinMode": true,
            "mtu": mtu,
            "ipam": { "type": "host-local", "ranges": ranges },
        }],
    });
    let path = Path::new(CONFIGURATION);
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(Error::file("making", directory))?;
    }
    Ok(identity::write_private(path, format!("{configuration:#}\n").as_bytes())?)
}
