//! From what a plugin said of an attachment to what a launcher is told of its vNIC. Pure.

use std::net::IpAddr;

use api::multus::NetworkDns;
use cni::{Attachment, Prefix};
use ipnet::IpNet;
use wire::{Dns, NameError, Vnic, VnicAddress, VnicName, VnicRoute};

/// The vNIC with this interface.
pub fn vnic(name: &VnicName, interface: &str, attachment: &Attachment) -> Result<Vnic, NameError> {
    let position =
        attachment.interfaces.iter().position(|made| made.sandbox.is_some() && made.name == interface);
    let made = attachment.container_interface(interface);
    // An address that says of no interface where it is can only be on this one.
    let ours = attachment.ips.iter().filter(|ip| ip.interface.is_none() || ip.interface == position);
    let addresses =
        ours.filter_map(|ip| Some(VnicAddress { address: network(ip.address)?, gateway: ip.gateway }));
    let routes = attachment.routes.iter();
    let routes = routes.filter_map(|route| {
        Some(VnicRoute { destination: network(route.destination)?, gateway: route.gateway })
    });
    Ok(Vnic {
        name: name.clone(),
        interface: interface.parse()?,
        mac: made.and_then(|made| made.mac.as_ref()?.parse().ok()),
        addresses: addresses.collect(),
        routes: routes.collect(),
        dns: dns(&attachment.dns),
        mtu: made.and_then(|made| made.mtu),
    })
}

/// A name server that is not an address cannot be given to a guest.
pub fn dns(given: &NetworkDns) -> Dns {
    let servers: Vec<IpAddr> = given.nameservers.iter().filter_map(|server| server.parse().ok()).collect();
    let domains = given.search.iter().chain(&given.domain);
    let mut search: Vec<String> = Vec::new();
    for domain in domains.filter(|domain| !domain.is_empty()) {
        if !search.contains(domain) {
            search.push(domain.clone());
        }
    }
    Dns { servers, search }
}

fn network(prefix: Prefix) -> Option<IpNet> {
    IpNet::new(prefix.address, prefix.length).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_interface_in_the_pod_counts_and_the_rest_is_the_nodes() {
        let result = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                { "name": "cni0", "mac": "02:00:00:00:00:01" },
                { "name": "veth1", "mac": "02:00:00:00:00:02" },
                { "name": "vnic0", "mac": "02:00:00:00:00:03", "sandbox": "/run/netns/a", "mtu": 9000 },
            ],
            "ips": [
                { "address": "10.0.0.7/24", "gateway": "10.0.0.1", "interface": 2 },
                { "address": "192.0.2.1/24", "interface": 0 },
                { "address": "2001:db8::7/64" },
            ],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "10.9.0.0/16", "gw": "10.0.0.9" }],
            "dns": { "nameservers": ["10.0.0.53", "nonsense"], "search": ["a.test", "b.test"], "domain": "a.test" },
        });
        let attachment = Attachment::parse(result.to_string().as_bytes()).unwrap();
        let told = vnic(&"default".parse().unwrap(), "vnic0", &attachment).unwrap();
        let expected = json!({
            "name": "default", "interface": "vnic0", "mac": "02:00:00:00:00:03", "mtu": 9000,
            "addresses": [{ "address": "10.0.0.7/24", "gateway": "10.0.0.1" }, { "address": "2001:db8::7/64" }],
            "routes": [{ "destination": "0.0.0.0/0" }, { "destination": "10.9.0.0/16", "gateway": "10.0.0.9" }],
            "dns": { "servers": ["10.0.0.53"], "search": ["a.test", "b.test"] },
        });
        assert_eq!(serde_json::to_value(told).unwrap(), expected);
    }

    #[test]
    fn a_network_of_layer_two_gives_no_addresses() {
        let told = vnic(&"blue".parse().unwrap(), "vnic1", &Attachment::default()).unwrap();
        assert!(told.addresses.is_empty() && told.mac.is_none() && told.dns.is_empty());
    }
}
