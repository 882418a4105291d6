//! A vNIC's network as libvirt's document: a bridge in the pod, and a DHCP server that knows one guest.
//!
//! Pure. The bridge joins the guest's tap and the interface that CNI made, so the guest is on the network's own segment, with the
//! network's own gateway. Hence the rules here:
//!
//! - The bridge has an address of 169.254.0.0/16, because a DHCP server needs one, and answers ARP for none
//!   ([`crate::wiring`]): neither the gateway's address nor the guest's is ever claimed by the pod.
//! - dnsmasq serves a subnet that the bridge is not in (`shared-network`), and ignores everyone but the guest: the
//!   segment has other machines with DHCP servers of their own.
//! - It gives what the network gave, for ever: address, prefix, gateway, routes, name servers, MTU. There is nothing
//!   to renew, so a guest that moved needs no server at the place that it came from.
//! - No DNS is served (`port=0`), nothing is kept on disk (`leasefile-ro`).
//!
//! IPv6 addresses are not given to the guest yet, and the status says so. dnsmasq advertises no prefix that its interface is not in, and a
//! guest learns its router from the router's own link-local address, which only that router can use: a network with IPv6 has to
//! advertise itself.

use std::net::{IpAddr, Ipv4Addr};

use api::mac::MacAddress;
use net::IpNet;
use wire::{Vnic, VnicName};

use crate::UnwritableText;
use crate::xml::Element;

const DNSMASQ: &str = "http://libvirt.org/schemas/network/dnsmasq/1.0";

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// A name would become something else in the DHCP server's configuration.
    #[error(
        "vNIC {vnic}: {what} {text:?} is not a name of DNS: expected letters, digits, dashes, underscores and dots"
    )]
    Name { vnic: VnicName, what: &'static str, text: String },
    #[error(transparent)]
    Text(#[from] UnwritableText),
}

/// A vNIC, all that its network needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// Its place in the spec.
    pub index: usize,
    pub mac: MacAddress,
    pub hostname: &'a str,
    pub mtu: Option<u32>,
}

/// The network of a vNIC, by libvirt's name.
pub fn name(vnic: &VnicName) -> String {
    format!("vnic-{vnic}")
}

/// The bridge of a vNIC.
pub fn bridge_name(index: usize) -> String {
    format!("vbr{index}")
}

/// The guest's own end of a vNIC.
pub fn tap_name(index: usize) -> String {
    format!("tap{index}")
}

/// The document.
pub fn document(vnic: &Vnic, guest: Guest<'_>) -> Result<String, NetworkError> {
    let bridge = bridge_name(guest.index);
    let root = Element::new("network")
        .attribute("xmlns:dnsmasq", DNSMASQ)
        .child(Element::with_text("name", name(&vnic.name)))
        // Forwarding is the kernel's matter: no firewall is asked for.
        .child(Element::new("forward").attribute("mode", "open"))
        .child(
            Element::new("bridge").attribute("name", &bridge).attribute("stp", "off").attribute("delay", 0),
        )
        .children(guest.mtu.map(|mtu| Element::new("mtu").attribute("size", mtu)));
    let Some(address) = served(vnic) else { return Ok(root.document()?) };
    let mut options: Vec<String> =
        ["port=0", "no-ping", "leasefile-ro", "dhcp-authoritative", "dhcp-ignore=tag:!known"]
            .map(str::to_owned)
            .into();
    let hostname = checked(vnic, "the guest's name", guest.hostname)?;
    options.push(format!("dhcp-host={},{},{hostname},infinite", guest.mac, address.addr()));
    options.extend(addressing(vnic, &bridge, address));
    options.extend(search(vnic)?);
    let options = options.into_iter().map(|option| Element::new("dnsmasq:option").attribute("value", option));
    Ok(root
        .child(own_address(guest.index))
        .child(Element::new("dnsmasq:options").children(options))
        .document()?)
}

/// The address that the guest is given: the first of IPv4.
pub fn served(vnic: &Vnic) -> Option<IpNet> {
    vnic.addresses.iter().map(|address| address.address).find(|address| address.addr().is_ipv4())
}

/// The bridge's own: of no network that anyone routes to.
fn own_address(index: usize) -> Element {
    let number = u8::try_from(index).unwrap_or(u8::MAX);
    Element::new("ip")
        .attribute("address", Ipv4Addr::new(169, 254, 75, 10_u8.saturating_add(number)))
        .attribute("netmask", Ipv4Addr::BROADCAST)
}

fn addressing(vnic: &Vnic, bridge: &str, address: IpNet) -> Vec<String> {
    let own = address.addr();
    let routes = routes(vnic, address);
    let router =
        routes.iter().find(|(destination, _)| destination.prefix_len() == 0).map(|(_, gateway)| *gateway);
    let mut options = vec![
        format!("shared-network={bridge},{own}"),
        format!("dhcp-range={own},static,{},infinite", address.netmask()),
        // With nothing after it, nothing is said: else the server would name itself.
        list("router", router),
        list("dns-server", vnic.dns.servers.iter().copied().filter(IpAddr::is_ipv4)),
    ];
    // Who understands this option ignores the one above, so the default route is in both.
    if routes.iter().any(|(destination, gateway)| destination.prefix_len() > 0 || !address.contains(gateway))
    {
        let routes: Vec<String> =
            routes.iter().map(|(destination, gateway)| format!("{destination},{gateway}")).collect();
        options.push(format!("dhcp-option=option:classless-static-route,{}", routes.join(",")));
    }
    options
}

/// Destinations and gateways. A gateway outside the prefix gets a route of its own, straight on the link.
fn routes(vnic: &Vnic, address: IpNet) -> Vec<(IpNet, IpAddr)> {
    let gateway =
        vnic.addresses.iter().find(|known| known.address == address).and_then(|known| known.gateway);
    let given = vnic.routes.iter().filter(|route| route.destination.addr().is_ipv4());
    let mut routes: Vec<(IpNet, IpAddr)> =
        given.filter_map(|route| Some((route.destination.trunc(), route.gateway.or(gateway)?))).collect();
    // A network that names a gateway and no routes means the default route.
    if routes.is_empty()
        && let Some(gateway) = gateway
    {
        let anywhere = IpNet::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        routes.extend(anywhere.ok().map(|anywhere| (anywhere, gateway)));
    }
    let mut outside: Vec<IpAddr> =
        routes.iter().map(|(_, gateway)| *gateway).filter(|gateway| !address.contains(gateway)).collect();
    outside.sort_unstable();
    outside.dedup();
    let on_link =
        outside.into_iter().map(|gateway| (IpNet::from(gateway), IpAddr::from(Ipv4Addr::UNSPECIFIED)));
    on_link.collect::<Vec<_>>().into_iter().chain(routes).collect()
}

fn list(option: &str, values: impl IntoIterator<Item = IpAddr>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| format!(",{value}")).collect();
    format!("dhcp-option=option:{option}{}", values.concat())
}

fn search(vnic: &Vnic) -> Result<Option<String>, NetworkError> {
    let domains: Result<Vec<&str>, NetworkError> =
        vnic.dns.search.iter().map(|domain| checked(vnic, "the search domain", domain)).collect();
    let domains = domains?;
    Ok((!domains.is_empty()).then(|| format!("dhcp-option=option:domain-search,{}", domains.join(","))))
}

/// The options are lines of a file: a name must not hold more than a name.
fn checked<'a>(vnic: &Vnic, what: &'static str, text: &'a str) -> Result<&'a str, NetworkError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || text.len() > 253 || text.starts_with('-') || !text.bytes().all(allowed) {
        return Err(NetworkError::Name { vnic: vnic.name.clone(), what, text: text.to_owned() });
    }
    Ok(text)
}
