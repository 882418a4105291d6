//! Who may talk to a cluster of the lab, and how: its authority, the administrator's kubeconfig, the nodes' identities.
//!
//! All of it is made before anything starts, so that nothing has to wait for a key.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use identity::{Authority, Subject};
use ipnet::Ipv4Net;
use kube::config::Kubeconfig;
use serde::{Deserialize, Serialize};

use crate::topology::{Cluster, NODE_PREFIX, Node, Topology};
use crate::{Error, Lab, join};

const YEAR: Duration = Duration::from_hours(8760);

/// Files of a node's configuration.
pub(crate) const KUBECONFIG: &str = "kubeconfig";
pub(crate) const SERVING_CERTIFICATE: &str = "kubelet.crt";
pub(crate) const SERVING_KEY: &str = "kubelet.key";
pub(crate) const AUTHORITY: &str = "ca.crt";
pub(crate) const DESCRIPTION: &str = "node.json";

/// What a node is told of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    pub node: Node,
    pub api_server: SocketAddr,
    pub cgroup: String,
    /// The node's share of pods' addresses, if nobody else hands them out.
    pub pods: Option<Ipv4Net>,
}

/// Where a cluster's API server keeps its objects and keys.
pub(crate) fn data(lab: &Lab, cluster: &str) -> std::path::PathBuf {
    lab.cluster(cluster).join("data")
}

fn authority(lab: &Lab, cluster: &str) -> Result<Authority, Error> {
    let directory = data(lab, cluster);
    std::fs::create_dir_all(&directory).map_err(Error::file("making", &directory))?;
    Ok(Authority::load_or_generate(&directory, "ca", 10 * YEAR)?)
}

/// Gives every node its identity and its description. `joined` is the way into a control plane elsewhere.
pub(crate) fn prepare(lab: &Lab, topology: &Topology, joined: Option<&Path>) -> Result<(), Error> {
    for cluster in &topology.clusters {
        let authority = authority(lab, &cluster.name)?;
        let outside = joined.filter(|_| cluster.joined).map(join::read).transpose()?;
        let inside = outside.as_ref().map(|outside| join::from_inside(outside, cluster));
        if let (Some(outside), Some(inside)) = (&outside, &inside) {
            write_kubeconfig(&join::kept(lab, &cluster.name), outside)?;
            write_kubeconfig(&inside_kubeconfig(lab, &cluster.name), inside)?;
        }
        for node in &cluster.nodes {
            prepare_node(lab, cluster, node, &authority, inside.as_ref())?;
        }
    }
    Ok(())
}

/// A joined cluster's kubeconfig as the lab's own processes use it.
pub(crate) fn inside_kubeconfig(lab: &Lab, cluster: &str) -> std::path::PathBuf {
    lab.cluster(cluster).join("kubeconfig.inside")
}

fn write_kubeconfig(path: &Path, kubeconfig: &Kubeconfig) -> Result<(), Error> {
    let text =
        serde_json::to_vec(kubeconfig).map_err(|source| Error::State { path: path.to_owned(), source })?;
    Ok(identity::write_private(path, &text)?)
}

fn prepare_node(
    lab: &Lab,
    cluster: &Cluster,
    node: &Node,
    authority: &Authority,
    inside: Option<&Kubeconfig>,
) -> Result<(), Error> {
    let directory = lab.node(&node.name).join("etc");
    std::fs::create_dir_all(&directory).map_err(Error::file("making", &directory))?;
    let user = format!("system:node:{}", node.name);
    let subject = Subject {
        common_name: user.clone(),
        organisation: Some("system:nodes".into()),
        dns_names: vec![node.name.clone()],
        addresses: node.address().into_iter().collect(),
        ..Subject::default()
    };
    let identity = authority.issue(&subject, YEAR)?;
    let api_server = SocketAddr::new(cluster.api_address, cluster.api_port);
    let server = format!("https://{api_server}");
    let kubeconfig = identity::kubeconfig(&cluster.name, &server, authority.certificate(), &user, &identity);
    // The API server that calls the node for logs has a certificate of its own cluster's authority.
    let callers = inside.and_then(authority_of).unwrap_or_else(|| authority.certificate().to_owned());
    let number = cluster.nodes.iter().position(|other| other.name == node.name).unwrap_or_default();
    let share = || cluster.pod_cidr.subnets(NODE_PREFIX).ok()?.nth(number);
    let description = Description {
        node: node.clone(),
        api_server,
        cgroup: format!("{}/{}", lab.cgroup(), node.name),
        pods: inside.and_then(|_| share()),
    };
    let path = directory.join(DESCRIPTION);
    let description = serde_json::to_vec_pretty(&description)
        .map_err(|source| Error::State { path: path.clone(), source })?;
    let write = |name: &str, content: &[u8]| identity::write_private(&directory.join(name), content);
    match inside {
        None => write(KUBECONFIG, kubeconfig.as_bytes())?,
        Some(inside) => write_kubeconfig(&directory.join(KUBECONFIG), inside)?,
    }
    write(SERVING_CERTIFICATE, identity.certificate.as_bytes())?;
    write(SERVING_KEY, identity.key.as_bytes())?;
    write(AUTHORITY, callers.as_bytes())?;
    write(DESCRIPTION, &description)?;
    Ok(())
}

fn authority_of(kubeconfig: &Kubeconfig) -> Option<String> {
    let data = kubeconfig.clusters.first()?.cluster.as_ref()?.certificate_authority_data.as_ref()?;
    String::from_utf8(STANDARD.decode(data).ok()?).ok()
}

/// Writes the administrator's kubeconfig, once it is known where the API server is reached from the machine.
pub(crate) fn write_admin(lab: &Lab, cluster: &str, address: SocketAddr) -> Result<(), Error> {
    let authority = authority(lab, cluster)?;
    let subject = Subject {
        common_name: "admin".into(),
        organisation: Some("system:masters".into()),
        ..Subject::default()
    };
    let admin = authority.issue(&subject, YEAR)?;
    let context = format!("{}-{cluster}", lab.name);
    let server = format!("https://{address}");
    let kubeconfig = identity::kubeconfig(&context, &server, authority.certificate(), "admin", &admin);
    Ok(identity::write_private(&lab.kubeconfig(cluster), kubeconfig.as_bytes())?)
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(Error::file("reading", path))
}
