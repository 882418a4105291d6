//! A vNIC's network as libvirt's document: a bridge in the pod, and a DHCP server that knows one guest.
//!
//! Pure. A bridged vNIC's bridge joins the guest's tap and the interface that CNI made, so the guest is on the network's own segment,
//! with the network's own gateway. Hence the rules here:
//!
//! - The bridge has an address of 169.254.0.0/16, because a DHCP server needs one, and answers ARP for none
//!   ([`crate::wiring`]): neither the gateway's address nor the guest's is ever claimed by the pod. For IPv6 it has an address
//!   that no other bridge has ([`own_ipv6`]), for the same reason.
//! - dnsmasq serves a subnet that the bridge is not in (`shared-network`), and ignores everyone but the guest: the
//!   segment has other machines with DHCP servers of their own. Of IPv6 it answers some questions of strangers all the same, so a
//!   rule keeps them from it ([`guard`]).
//! - It gives what the network gave, for ever: address, prefix, gateway, routes, name servers, MTU. There is nothing
//!   to renew, so a guest that moved needs no server at the place that it came from.
//! - No DNS is served (`port=0`), nothing is kept on disk (`leasefile-ro`).
//! - No router is advertised: dnsmasq would name itself, and to the whole segment. [`crate::advertise`] does it.
//!
//! A masqueraded vNIC's bridge is the gateway itself ([`crate::masquerade`]), and nothing but the tap is in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::mac::MacAddress;
use net::IpNet;
use wire::{InterfaceName, Vnic, VnicAddress, VnicName};

use crate::UnwritableText;
use crate::masquerade::GATEWAY_MAC;
use crate::xml::Element;

/// dnsmasq leases no address of a network with a shorter prefix. The client does not see it.
const SHORTEST_IPV6_PREFIX: u8 = 64;
/// The network that bridges on a segment have their own address of: nobody's.
const NOWHERE: u128 = 0xfd67_6f64_7769_7400;
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
    pub bridge: Bridge,
}

/// What the bridge is to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bridge {
    /// A part of the segment, of no matter to the guest.
    Segment,
    /// The guest's gateway.
    Gateway,
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
    let mac = (guest.bridge == Bridge::Gateway).then_some(GATEWAY_MAC);
    let root = Element::new("network")
        .attribute("xmlns:dnsmasq", DNSMASQ)
        .child(Element::with_text("name", name(&vnic.name)))
        // Forwarding is the kernel's matter: no firewall is asked for.
        .child(Element::new("forward").attribute("mode", "open"))
        .child(
            Element::new("bridge").attribute("name", &bridge).attribute("stp", "off").attribute("delay", 0),
        )
        .children(guest.mtu.map(|mtu| Element::new("mtu").attribute("size", mtu)))
        .children(mac.map(|mac| Element::new("mac").attribute("address", mac)));
    let addresses: Vec<IpNet> = [served(vnic, IpVersion::V4), served(vnic, IpVersion::V6)]
        .into_iter()
        .flatten()
        .map(|given| given.address)
        .collect();
    if addresses.is_empty() {
        return Ok(root.document()?);
    }
    let mut options: Vec<String> =
        ["port=0", "no-ping", "leasefile-ro", "dhcp-authoritative", "dhcp-ignore=tag:!known"]
            .map(str::to_owned)
            .into();
    let hostname = checked(vnic, "the guest's name", guest.hostname)?;
    let own: Vec<String> = addresses.iter().map(|address| bracketed(address.addr())).collect();
    options.push(format!("dhcp-host={},{},{hostname},infinite", guest.mac, own.join(",")));
    for address in addresses {
        // Where the bridge is of no network that the guest is in, the server has to be told that both are on one segment.
        if guest.bridge == Bridge::Segment {
            options.push(format!("shared-network={bridge},{}", address.addr()));
        }
        options.extend(match address {
            IpNet::V4(_) => addressing(vnic, address),
            IpNet::V6(_) => addressing_ipv6(vnic, address),
        });
        options.extend(search(vnic, address.addr())?);
    }
    let options = options.into_iter().map(|option| Element::new("dnsmasq:option").attribute("value", option));
    Ok(root
        .child(own_address(vnic, guest))
        .child(Element::new("dnsmasq:options").children(options))
        .document()?)
}

/// The rule, as a transaction of `nft`, by which the DHCP server hears nobody who comes in by this interface. What goes on to the guest
/// is not touched: it may be a server itself.
pub fn guard(interface: &InterfaceName, index: usize) -> String {
    let rule = format!("iifname \"{interface}\" udp dport {{ 67, 547 }} drop");
    let chain = format!(
        "chain input {{\n    type filter hook input priority filter; policy accept;\n    {rule}\n  }}"
    );
    format!("{}table {} {{\n  {chain}\n}}\n", no_guard(index), guard_table(index))
}

/// The transaction after which there is no such rule; whether there was does not matter.
pub fn no_guard(index: usize) -> String {
    let table = guard_table(index);
    format!("table {table}\ndelete table {table}\n")
}

fn guard_table(index: usize) -> String {
    format!("bridge godwit_{}", bridge_name(index))
}

/// The two kinds of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

/// The address of a kind that the guest is given: the first.
pub fn served(vnic: &Vnic, version: IpVersion) -> Option<&VnicAddress> {
    let wanted = |given: &&VnicAddress| given.address.addr().is_ipv4() == (version == IpVersion::V4);
    vnic.addresses.iter().find(wanted)
}

/// The bridge's own address of IPv6, if the guest has one: libvirt is not told of it, because it would have dnsmasq advertise it.
///
/// On a segment it is of a network that nobody routes to, and as unique as the guest's Ethernet address; its prefix is as long as the
/// shortest that dnsmasq leases from, or it would not take the one for a neighbour of the other.
pub fn own_ipv6(vnic: &Vnic, mac: MacAddress, bridge: Bridge) -> Option<IpNet> {
    let given = served(vnic, IpVersion::V6)?;
    match bridge {
        Bridge::Gateway => IpNet::new(given.gateway?, given.address.prefix_len()).ok(),
        Bridge::Segment => {
            let own = Ipv6Addr::from_bits(NOWHERE << 64 | u128::from(net::MacAddress(mac.0).interface_id()));
            IpNet::new(own.into(), SHORTEST_IPV6_PREFIX).ok()
        }
    }
}

/// The bridge's own as libvirt makes it: on a segment, of no network that anyone routes to.
fn own_address(vnic: &Vnic, guest: Guest<'_>) -> Element {
    let gateway = served(vnic, IpVersion::V4)
        .filter(|_| guest.bridge == Bridge::Gateway)
        .and_then(|given| Some((given.gateway?, given.address.netmask())));
    let (address, netmask) = gateway.unwrap_or_else(|| {
        let number = u8::try_from(guest.index).unwrap_or(u8::MAX);
        let apart = Ipv4Addr::new(169, 254, 75, 10_u8.saturating_add(number));
        (apart.into(), Ipv4Addr::BROADCAST.into())
    });
    Element::new("ip").attribute("address", address).attribute("netmask", netmask)
}

fn addressing(vnic: &Vnic, address: IpNet) -> Vec<String> {
    let own = address.addr();
    let routes = routes(vnic, address);
    let router =
        routes.iter().find(|(destination, _)| destination.prefix_len() == 0).map(|(_, gateway)| *gateway);
    let mut options = vec![
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

fn search(vnic: &Vnic, address: IpAddr) -> Result<Option<String>, NetworkError> {
    let domains: Result<Vec<&str>, NetworkError> =
        vnic.dns.search.iter().map(|domain| checked(vnic, "the search domain", domain)).collect();
    let (domains, option) = (domains?, if address.is_ipv4() { "option" } else { "option6" });
    Ok((!domains.is_empty()).then(|| format!("dhcp-option={option}:domain-search,{}", domains.join(","))))
}

/// Which addresses are on the link, and by which router others are reached, a router says; this gives the address, and name servers.
fn addressing_ipv6(vnic: &Vnic, address: IpNet) -> Vec<String> {
    let length = address.prefix_len().max(SHORTEST_IPV6_PREFIX);
    let servers: Vec<String> =
        vnic.dns.servers.iter().filter(|server| server.is_ipv6()).map(|server| bracketed(*server)).collect();
    let range = format!("dhcp-range={},static,{length},infinite", address.addr());
    let servers =
        (!servers.is_empty()).then(|| format!("dhcp-option=option6:dns-server,{}", servers.join(",")));
    std::iter::once(range).chain(servers).collect()
}

/// As dnsmasq wants addresses in lists.
fn bracketed(address: IpAddr) -> String {
    if address.is_ipv4() { address.to_string() } else { format!("[{address}]") }
}

/// The options are lines of a file: a name must not hold more than a name.
fn checked<'a>(vnic: &Vnic, what: &'static str, text: &'a str) -> Result<&'a str, NetworkError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || text.len() > 253 || text.starts_with('-') || !text.bytes().all(allowed) {
        return Err(NetworkError::Name { vnic: vnic.name.clone(), what, text: text.to_owned() });
    }
    Ok(text)
}
