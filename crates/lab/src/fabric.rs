//! The fabric: one bridge for each network, in the lab's own network namespace, and the cables to the nodes.
//!
//! The fabric is also the machine that control planes run on: it has an address on every management network.

use net::{Address, DuplicateDetection, Handle, IpNet, Namespace, NewLink, Peer, RateLimit, Sysctl};

use crate::Error;
use crate::topology::{Network, Nic, Topology};

/// Builds the bridges, in the namespace that we are in.
pub(crate) async fn build(topology: &Topology) -> Result<(), Error> {
    let namespace = Namespace::current()?;
    let handle = Handle::open(&namespace)?;
    handle.set_up("lo").await?;
    forward(&namespace, topology.networks.iter().flat_map(Network::addresses))?;
    for network in &topology.networks {
        handle.ensure_link(&NewLink::bridge(&network.name).mtu(network.mtu).up()).await?;
        for address in network.addresses() {
            handle.ensure_address(network.name.as_str(), unique(address)).await?;
        }
    }
    Ok(())
}

/// Makes a router of a machine with these addresses.
pub(crate) fn forward(
    namespace: &Namespace,
    mut addresses: impl Iterator<Item = IpNet>,
) -> Result<(), Error> {
    namespace.set_sysctl(&Sysctl::ip_forward(), "1")?;
    if addresses.any(|address| matches!(address, IpNet::V6(_))) {
        namespace.set_sysctl(&Sysctl::ipv6_forwarding(), "1")?;
    }
    Ok(())
}

/// The topology keeps addresses apart, so nobody has to be asked.
fn unique(address: IpNet) -> Address {
    Address::new(address).detection(DuplicateDetection::Skip)
}

/// Plugs one NIC of a node in: called inside the node, with the fabric's namespace in hand.
pub(crate) async fn plug(
    fabric: &Namespace,
    node: &Namespace,
    nic: &Nic,
    network: &Network,
) -> Result<(), Error> {
    let (at_fabric, at_node) = (Handle::open(fabric)?, Handle::open(node)?);
    // A node that was just killed may not be gone from the fabric yet.
    at_fabric.delete_link_if_exists(nic.port.as_str()).await?;
    let mac = nic.mac.parse().map_err(|_| net::Error::Invalid {
        object: format!("the MAC address {:?} of {}", nic.mac, nic.name),
        rule: "it must be six pairs of hexadecimal digits",
    })?;
    let end = Peer::new(&nic.name).namespace(node).mac(mac).mtu(network.mtu).up();
    let cable = NewLink::veth(&nic.port, end).mtu(network.mtu).master(network.name.as_str()).up();
    at_fabric.create_link(&cable).await?;
    if let Some(rate) = network.rate {
        let limit = RateLimit::new(rate.bits_per_second);
        let limit = if rate.htb { limit.htb() } else { limit };
        at_fabric.set_rate_limit(nic.port.as_str(), limit).await?;
        at_node.set_rate_limit(nic.name.as_str(), limit).await?;
    }
    for address in nic.addresses() {
        at_node.ensure_address(nic.name.as_str(), unique(address)).await?;
    }
    if let Some(bridge) = &nic.bridge {
        at_node.ensure_link(&NewLink::bridge(bridge).mtu(network.mtu).up()).await?;
        at_node.set_master(nic.name.as_str(), bridge.as_str()).await?;
    }
    Ok(())
}
