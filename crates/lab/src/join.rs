//! Nodes that join a control plane elsewhere.
//!
//! The API server may be anywhere that this machine reaches, also on its loopback, and nodes have no road out of the lab.
//! Two relays make one: on the fabric, at the address where a control plane of the lab would be, connections are taken and
//! handed through a socket in the lab's directory to the machine's side, which calls the API server.
//!
//! ```text
//!  agent, pods ── TLS, end to end ──► fabric relay ── unix socket ──► gate ──► API server
//! ```

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::config::{Kubeconfig, NamedCluster};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::supervisor::Chain;
use crate::topology::Cluster;
use crate::{Error, Lab, access, agent, pod_network};

const NO_MTU: u32 = 0;

/// The kubeconfig that the person gave, kept with the lab.
pub(crate) fn kept(lab: &Lab, cluster: &str) -> PathBuf {
    lab.cluster(cluster).join("kubeconfig")
}

fn socket(lab: &Lab, cluster: &str) -> PathBuf {
    lab.cluster(cluster).join("gate.sock")
}

/// Reads the kubeconfig to join with, with every file that it names put into it.
pub(crate) fn read(path: &Path) -> Result<Kubeconfig, Error> {
    // Reading puts the paths right; the rest is checked when a client is made of it.
    Kubeconfig::read_from(path)
        .map_err(|source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) })
}

/// The same access from inside the lab: another address, the same name in the server's certificate.
pub(crate) fn from_inside(outside: &Kubeconfig, cluster: &Cluster) -> Kubeconfig {
    let mut inside = outside.clone();
    for NamedCluster { cluster: entry, .. } in &mut inside.clusters {
        let Some(entry) = entry else { continue };
        let name = entry.server.as_deref().and_then(host);
        entry.tls_server_name = entry.tls_server_name.take().or(name);
        entry.server = Some(format!("https://{}", SocketAddr::new(cluster.api_address, cluster.api_port)));
    }
    inside
}

fn host(server: &str) -> Option<String> {
    let uri: http::Uri = server.parse().ok()?;
    Some(uri.host()?.trim_matches(['[', ']']).to_owned())
}

/// Where the API server is, as host and port.
fn authority(kubeconfig: &Kubeconfig) -> Option<String> {
    let server = kubeconfig.clusters.first()?.cluster.as_ref()?.server.as_ref()?;
    let uri: http::Uri = server.parse().ok()?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    Some(format!("{}:{port}", uri.host()?))
}

/// The gate: in the machine's own network namespace, from the socket to the API server.
pub async fn gate(directory: &Path, cluster: &str, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let lab = Lab::at(directory)?;
    let kubeconfig = read(&kept(&lab, cluster))?;
    let Some(server) = authority(&kubeconfig) else {
        let known = "its kubeconfig names no server".to_owned();
        return Err(Error::NoSuchPlace { object: cluster.to_owned(), known });
    };
    let path = socket(&lab, cluster);
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            return Err(Error::file("removing", &path)(cause));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(Error::file("listening on", &path))?;
    let accept = async {
        loop {
            let (mut near, _) = listener.accept().await.map_err(Error::file("listening on", &path))?;
            let server = server.clone();
            tokio::spawn(async move {
                match TcpStream::connect(&server).await {
                    Ok(mut far) => ended(copy_bidirectional(&mut near, &mut far).await),
                    Err(cause) => tracing::warn!(server, %cause, "the API server cannot be reached"),
                }
            });
        }
    };
    tokio::select! { outcome = accept => outcome, () = stop => Ok(()) }
}

/// The fabric's side: from where nodes look for the API server to the gate. It also keeps the fabric's routes to pods.
pub async fn relay(directory: &Path, name: &str, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let lab = Lab::at(directory)?;
    let topology = lab.topology()?;
    let Some(cluster) = topology.cluster(name) else {
        return Err(Error::NoSuchPlace {
            object: name.to_owned(),
            known: "lab.json has no such cluster".into(),
        });
    };
    let address = SocketAddr::new(cluster.api_address, cluster.api_port);
    let failed = |source| Error::Start { process: format!("the relay on {address}"), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let gate = socket(&lab, name);
    let accept = async {
        loop {
            let (mut near, _) = listener.accept().await.map_err(failed)?;
            let gate = gate.clone();
            tokio::spawn(async move {
                match UnixStream::connect(&gate).await {
                    Ok(mut far) => ended(copy_bidirectional(&mut near, &mut far).await),
                    Err(cause) => tracing::warn!(%cause, "the gate cannot be reached"),
                }
            });
        }
    };
    let inside = access::inside_kubeconfig(&lab, name);
    let routes = async { pod_network::run(agent::client(&inside).await?, None, NO_MTU).await };
    tokio::select! {
        outcome = accept => outcome,
        outcome = routes => outcome,
        () = stop => Ok(()),
    }
}

/// Connections end in many ways, none of which is ours to mend.
fn ended(outcome: io::Result<(u64, u64)>) {
    if let Err(cause) = outcome {
        tracing::debug!(error = %Chain(&cause), "a connection to the API server ended early");
    }
}
