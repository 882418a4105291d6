//! How a vNIC is joined to its network. Pure.
//!
//! A bridged vNIC is on the network's own segment, with an address of its own. A masqueraded one is on a network of its own in the pod,
//! which is the same in every pod; it is reached at the pod's address, and reaches out from there.

use api::kubevirt::{Interface, PodNetwork, Port, PortProtocol};
use ipnet::{Ipv4Net, Ipv6Net};

use super::PlanError;

/// How a vNIC is joined to its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    Bridge,
    Masquerade(Masquerade),
}

/// The network that a masqueraded vNIC is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    pub ipv4: Ipv4Net,
    pub ipv6: Ipv6Net,
    /// What is let in; nothing said: everything.
    pub ports: Vec<(PortProtocol, u16)>,
}

/// Without a binding, a vNIC is bridged.
pub(super) fn binding(
    field: &str,
    interface: &Interface,
    network: Option<(usize, &PodNetwork)>,
) -> Result<Binding, PlanError> {
    let other =
        [("passtBinding", interface.passt_binding.is_some()), ("binding", interface.binding.is_some())];
    if let Some((binding, _)) = other.into_iter().find(|(_, chosen)| *chosen) {
        return Err(PlanError::unsupported(
            format!("{field}.{binding}"),
            "a binding other than bridge and masquerade",
        ));
    }
    if interface.masquerade.is_none() {
        return Ok(Binding::Bridge);
    }
    let port = |port: &Port| (port.protocol.unwrap_or(PortProtocol::Tcp), port.port);
    let (index, network) = network.map_or((0, None), |(index, network)| (index, Some(network)));
    let place = |name: &str| format!("spec.networks[{index}].pod.{name}");
    let ipv4 = network.and_then(|network| network.vm_network_cidr.as_deref());
    let ipv6 = network.and_then(|network| network.vm_ipv6_network_cidr.as_deref());
    Ok(Binding::Masquerade(Masquerade {
        ipv4: range(
            &place("vmNetworkCIDR"),
            ipv4.unwrap_or(PodNetwork::DEFAULT_VM_NETWORK),
            |net: &Ipv4Net| net.prefix_len() <= 30,
        )?
        .trunc(),
        ipv6: range(
            &place("vmIPv6NetworkCIDR"),
            ipv6.unwrap_or(PodNetwork::DEFAULT_VM_IPV6_NETWORK),
            |net: &Ipv6Net| net.prefix_len() <= 126,
        )?
        .trunc(),
        ports: interface.ports.iter().map(port).collect(),
    }))
}

fn range<T: std::str::FromStr>(
    field: &str,
    text: &str,
    has_room: impl Fn(&T) -> bool,
) -> Result<T, PlanError> {
    let problem = || format!("{text:?} is not a network with room for a guest and its gateway");
    text.parse().ok().filter(has_room).ok_or_else(|| PlanError::field(field, problem()))
}
