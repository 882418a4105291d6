//! A masqueraded vNIC: a network of its own in the pod, and the rules by which the pod's address is the guest's.
//!
//! ```text
//!  node ── eth0 (the pod's address) ── rules ── vbrN (the gateway) ── tapN ── guest (the second address of its network)
//! ```
//!
//! Pure. What comes in at `eth0` for the pod's address goes to the guest, with its sender as it was: all of it, or the ports that the spec
//! names. What the guest sends out has the pod's address. What the pod sends to its own 127.0.0.1 goes to the guest as if from the
//! gateway, so that a port-forward finds it; for ::1 the kernel does not take the answers back. Nothing else is forwarded: a pod may have other vNICs, on networks of other people.
//!
//! Invariant: all rules are in one table, which replaces itself whole, and `eth0` is only ever named, never changed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::kubevirt::PortProtocol;
use api::mac::MacAddress;
use api::names::interfaces;
use ipnet::IpNet;
use wire::{Dns, NameError, Vnic, VnicAddress, VnicName};

use crate::plan::Masquerade;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The table of the rules.
const TABLE: &str = "inet godwit";

/// The Ethernet address of the gateway: the same in every pod, so that a guest that moved finds it where it was.
pub const GATEWAY_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0]);

/// Why a vNIC cannot be masqueraded in this pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MasqueradeError {
    #[error(
        "the network {range} of the guest has the pod's own address {address} in it: set {field} to a network that the cluster does not use"
    )]
    Overlap { range: IpNet, address: IpAddr, field: &'static str },
    #[error("the pod's interface {interface} has no address", interface = interfaces::POD)]
    NoAddress,
    #[error(transparent)]
    Name(#[from] NameError),
}

/// What the pod's own interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    pub addresses: Vec<IpNet>,
}

/// What the guest is given: of each IP version that the pod has, the second address of its network; the first is the gateway's.
pub fn vnic(
    name: &VnicName,
    masquerade: &Masquerade,
    pod: &PodInterface,
    dns: Dns,
) -> Result<Vnic, MasqueradeError> {
    let ranges =
        [("vmNetworkCIDR", IpNet::V4(masquerade.ipv4)), ("vmIPv6NetworkCIDR", IpNet::V6(masquerade.ipv6))];
    let mut addresses = Vec::new();
    for (field, range) in ranges {
        let mut own =
            pod.addresses.iter().map(IpNet::addr).filter(|own| own.is_ipv4() == range.addr().is_ipv4());
        if let Some(address) = own.clone().find(|own| range.contains(own)) {
            return Err(MasqueradeError::Overlap { range, address, field });
        }
        if own.next().is_some() {
            let guest = IpNet::new_assert(nth(range, 2), range.prefix_len());
            addresses.push(VnicAddress { address: guest, gateway: Some(nth(range, 1)) });
        }
    }
    if addresses.is_empty() {
        return Err(MasqueradeError::NoAddress);
    }
    Ok(Vnic {
        name: name.clone(),
        interface: interfaces::POD.parse()?,
        mac: pod.mac,
        addresses,
        routes: Vec::new(),
        dns,
        mtu: Some(pod.mtu),
    })
}

/// A network's address with this number.
fn nth(range: IpNet, number: u8) -> IpAddr {
    match range {
        IpNet::V4(range) => {
            Ipv4Addr::from_bits(range.network().to_bits().saturating_add(number.into())).into()
        }
        IpNet::V6(range) => {
            Ipv6Addr::from_bits(range.network().to_bits().saturating_add(number.into())).into()
        }
    }
}

/// The rules, as one transaction of `nft`.
pub fn rules(vnic: &Vnic, ports: &[(PortProtocol, u16)], pod: &PodInterface, bridge: &str) -> String {
    let (eth0, let_in) = (interfaces::POD, let_in(ports));
    let (mut inwards, mut local, mut outwards, mut through) = (vec![], vec![], vec![], vec![]);
    for address in &vnic.addresses {
        let guest = address.address.addr();
        let ip = if guest.is_ipv4() { "ip" } else { "ip6" };
        for own in pod.addresses.iter().map(IpNet::addr).filter(|own| own.is_ipv4() == guest.is_ipv4()) {
            let rule =
                |ports: &String| format!("iifname \"{eth0}\" {ip} daddr {own} {ports}dnat {ip} to {guest}");
            inwards.extend(let_in.iter().map(rule));
        }
        outwards.push(format!("oifname \"{eth0}\" {ip} saddr {guest} masquerade"));
        if let (true, Some(gateway)) = (guest.is_ipv4(), address.gateway) {
            let rule = |ports: &String| format!("ip daddr {LOOPBACK} {ports}dnat ip to {guest}");
            local.extend(let_in.iter().map(rule));
            outwards.push(format!("oifname \"{bridge}\" ip saddr {LOOPBACK} snat ip to {gateway}"));
        }
        through.push(format!("iifname \"{bridge}\" oifname \"{eth0}\" {ip} saddr {guest} accept"));
    }
    through.push(format!("iifname \"{eth0}\" oifname \"{bridge}\" ct status dnat accept"));
    through.push(format!("iifname \"{eth0}\" oifname \"{bridge}\" ct state established,related accept"));
    let chains = [
        ("prerouting", "type nat hook prerouting priority dstnat; policy accept;", inwards),
        ("output", "type nat hook output priority -100; policy accept;", local),
        ("postrouting", "type nat hook postrouting priority srcnat; policy accept;", outwards),
        ("forward", "type filter hook forward priority filter; policy drop;", through),
    ];
    let chains = chains.map(|(name, kind, rules)| {
        let lines = std::iter::once(kind.to_owned()).chain(rules).collect::<Vec<_>>().join("\n    ");
        format!("  chain {name} {{\n    {lines}\n  }}\n")
    });
    format!("{}table {TABLE} {{\n{}}}\n", no_rules(), chains.concat())
}

/// The transaction after which there are no rules; whether there were any does not matter.
pub fn no_rules() -> String {
    format!("table {TABLE}\ndelete table {TABLE}\n")
}

/// What is let in, as the middle of a rule.
fn let_in(ports: &[(PortProtocol, u16)]) -> Vec<String> {
    if ports.is_empty() {
        return vec![String::new()];
    }
    let of = |protocol: PortProtocol| {
        let mut ports: Vec<u16> =
            ports.iter().filter(|(of, _)| *of == protocol).map(|(_, port)| *port).collect();
        ports.sort_unstable();
        ports.dedup();
        let list: Vec<String> = ports.iter().map(u16::to_string).collect();
        let name = protocol.as_str().to_ascii_lowercase();
        (!list.is_empty()).then(|| format!("{name} dport {{ {} }} ", list.join(", ")))
    };
    [PortProtocol::Tcp, PortProtocol::Udp].into_iter().filter_map(of).collect()
}

/// The name servers of a `resolv.conf`, as far as a guest can use them: one at a loopback address is the pod's alone.
pub fn dns(resolv_conf: &str) -> Dns {
    let mut dns = Dns::default();
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => {
                let server = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                dns.servers.extend(server.filter(|server| !server.is_loopback() && !server.is_unspecified()));
            }
            Some("search") => {
                dns.search = words.map(|word| word.trim_end_matches('.').to_owned()).collect();
                dns.search.retain(|domain| !domain.is_empty());
            }
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use super::*;

    fn pod(addresses: &[&str]) -> PodInterface {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        PodInterface { mac: None, mtu: 1450, addresses }
    }

    fn masquerade(ipv4: &str) -> Masquerade {
        Masquerade { ipv4: ipv4.parse().unwrap(), ipv6: "fd10:0:2::/120".parse().unwrap(), ports: Vec::new() }
    }

    #[test]
    fn the_guest_has_what_the_pod_has() {
        let given = |addresses: &[&str]| {
            let vnic = vnic(
                &"default".parse().unwrap(),
                &masquerade("10.0.2.0/24"),
                &pod(addresses),
                Dns::default(),
            )?;
            let text = |address: &VnicAddress| format!("{} {}", address.address, address.gateway.unwrap());
            Ok::<_, MasqueradeError>(vnic.addresses.iter().map(text).collect::<Vec<_>>().join(", "))
        };
        assert_eq!(given(&["10.244.1.5/24"]).unwrap(), "10.0.2.2/24 10.0.2.1");
        assert_eq!(given(&["fd00::5/64"]).unwrap(), "fd10:0:2::2/120 fd10:0:2::1");
        assert_eq!(
            given(&["10.244.1.5/24", "fd00::5/64"]).unwrap(),
            "10.0.2.2/24 10.0.2.1, fd10:0:2::2/120 fd10:0:2::1"
        );
        assert_eq!(given(&[]).unwrap_err(), MasqueradeError::NoAddress);
        let overlap = given(&["10.0.2.9/24"]).unwrap_err().to_string();
        assert!(overlap.contains("10.0.2.9") && overlap.contains("set vmNetworkCIDR"), "{overlap}");
    }

    #[test]
    fn name_servers_that_a_guest_can_use() {
        let text = "# a\nsearch default.svc.cluster.local. svc.cluster.local\nnameserver 127.0.0.53\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\nnameserver nonsense\n";
        let dns = dns(text);
        assert_eq!(dns.servers, ["10.96.0.10".parse::<IpAddr>().unwrap(), "fd00::a".parse().unwrap()]);
        assert_eq!(dns.search, ["default.svc.cluster.local", "svc.cluster.local"]);
    }
}
