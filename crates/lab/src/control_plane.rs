//! A cluster's control plane: the API server and the controllers, as one process on the fabric.
//!
//! It answers on two sockets: one on the machine's loopback, for a person, which the keeper opened and which arrives as
//! standard input; and one on the management network, for nodes and pods.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use apiserver::{ApiServer, Options};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};

use workloads::PodNetwork;

use crate::services::Services;
use crate::topology::{NODE_PREFIX, NODE_PREFIX_IPV6};
use crate::{Error, Lab, access, cluster_networks, pod_network};

pub(crate) const MANAGER: &str = "godwit-lab";
/// What routes on the fabric have: no pod is on it, so the size of its packets does not matter.
const NO_MTU: u32 = 0;

pub async fn run(directory: &Path, name: &str, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let lab = Lab::at(directory)?;
    let topology = lab.topology()?;
    let Some(cluster) = topology.cluster(name) else {
        return Err(Error::NoSuchPlace {
            object: name.to_owned(),
            known: "lab.json has no such cluster".into(),
        });
    };
    let services = Services::default();
    let resolver = services.clone();
    let options = Options {
        data: Some(access::data(&lab, name)),
        resolver: Some(Arc::new(move |service| resolver.resolve(service))),
        service_accounts: true,
        ..Options::default()
    };
    let server = ApiServer::start(options).await?;
    let own = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| Error::Start { process: "the loopback socket".into(), source })?;
    let for_a_person = server.adopt(TcpListener::from(own))?;
    let for_nodes = server.listen(SocketAddr::new(cluster.api_address, cluster.api_port)).await?;
    let client = server.client("default");
    define(&client).await?;
    tracing::info!(cluster = name, address = %for_a_person.address, "the API server is ready");
    let (end, ended) = tokio::sync::watch::channel(());
    let wait = || {
        let mut ended = ended.clone();
        // An error means that the sender is gone, which is the end too.
        async move { drop(ended.changed().await) }
    };
    let ipv4 = PodNetwork { range: cluster.pod_cidr.into(), node_prefix: NODE_PREFIX };
    let ipv6 =
        cluster.pod_cidr_ipv6.map(|range| PodNetwork { range: range.into(), node_prefix: NODE_PREFIX_IPV6 });
    let pod_networks = std::iter::once(ipv4).chain(ipv6).collect();
    let controllers = workloads::Options { pod_networks, ..workloads::Options::default() };
    let controllers = workloads::run(client.clone(), controllers, wait());
    let serve = async { tokio::join!(for_a_person.run(wait()), for_nodes.run(wait())) };
    let work = async {
        // Whatever ends before it is told to is an error, after which all is started again.
        let outcome = tokio::select! {
            outcome = controllers => outcome.map_err(Error::from),
            outcome = pod_network::run(client.clone(), None, NO_MTU) => outcome,
            () = services.follow(client.clone()) => Ok(()),
            outcome = cluster_networks::publish(client.clone(), &topology, cluster) => outcome,
            () = stop => Ok(()),
        };
        drop(end);
        outcome
    };
    tokio::join!(serve, work).1
}

/// The kinds that Godwit's users bring.
async fn define(client: &Client) -> Result<(), Error> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in api::crds() {
        let name = definition.name_any();
        definitions
            .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&definition))
            .await
            .map_err(Error::api(format!("defining {name}")))?;
    }
    Ok(())
}
