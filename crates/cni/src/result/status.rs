//! An [`Attachment`] as entries of the annotation `k8s.v1.cni.cncf.io/network-status`.
//!
//! The rules are those of Multus: one entry for each interface in the container, the first of them is the pod network if the
//! network is; an address that names no interface belongs to the first.

use api::multus::NetworkStatus;

use super::{Attachment, Interface};

impl Attachment {
    /// The entries of this attachment to `network`, as `interface`.
    pub fn network_status(&self, network: &str, interface: &str, default: bool) -> Vec<NetworkStatus> {
        let inside = |(n, interface): (usize, &Interface)| interface.sandbox.is_some().then_some(n);
        let inside: Vec<usize> = self.interfaces.iter().enumerate().filter_map(inside).collect();
        let gateway = self.default_gateways();
        let base = NetworkStatus {
            name: network.to_owned(),
            dns: self.dns.clone(),
            gateway,
            ..NetworkStatus::default()
        };
        if inside.is_empty() {
            let ips = self.ips.iter().map(|ip| ip.address.address.to_string()).collect();
            return vec![NetworkStatus { interface: Some(interface.to_owned()), ips, default, ..base }];
        }
        let entry = |(position, index): (usize, usize)| {
            let here = self.interfaces.get(index)?;
            let its = self.ips.iter().filter(|ip| ip.interface.map_or(position == 0, |of| of == index));
            Some(NetworkStatus {
                interface: Some(here.name.clone()),
                ips: its.map(|ip| ip.address.address.to_string()).collect(),
                mac: here.mac.clone(),
                mtu: here.mtu,
                default: default && position == 0,
                ..base.clone()
            })
        };
        inside.into_iter().enumerate().filter_map(entry).collect()
    }

    /// Next hops of the default routes; a route that names none goes by the gateway of an address of its family.
    fn default_gateways(&self) -> Vec<String> {
        let hop = |route: &super::Route| {
            let family = route.destination.address.is_ipv4();
            let of_address =
                || self.ips.iter().filter_map(|ip| ip.gateway).find(|hop| hop.is_ipv4() == family);
            route.gateway.or_else(of_address)
        };
        let defaults = self.routes.iter().filter(|route| route.destination.is_default());
        defaults.filter_map(hop).map(|hop| hop.to_string()).collect()
    }
}
