//! A guest's bridge and the pod: the interface that CNI made goes into it and back; or the pod forwards between it and its own.
//!
//! In the network namespace of this process, which is the pod's. It touches the interface that it is given and that bridge, never
//! the pod's own, which it only looks at.
//!
//! On the way back the interface gets its addresses again: plugins look at them when they detach it, to find the rules that they made
//! for them.

use api::names::interfaces;
use net::{
    Address, Announcement, DuplicateDetection, Error, Handle, IpNet, MacAddress, Namespace, Sysctl, Teardown,
};
use wire::Vnic;

use crate::masquerade::PodInterface;

/// The pod's network, as the launcher changes it.
#[derive(Clone, Debug)]
pub struct Wiring {
    handle: Handle,
}

/// An interface in a bridge, and what it was before.
#[derive(Clone, Debug)]
pub struct Wired {
    interface: String,
    mac: Option<MacAddress>,
    addresses: Vec<IpNet>,
    disable_ipv6: String,
}

/// Whether the pod forwarded packets before libvirt made it do so.
#[derive(Clone, Debug)]
pub struct Forwarding(Vec<(Sysctl, String)>);

impl Wiring {
    /// Must be called within a tokio runtime.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { handle: Handle::open(&Namespace::current()?)? })
    }

    /// The kernel, as we reach it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What the pod's own interface has.
    pub async fn pod_interface(&self) -> Result<PodInterface, Error> {
        let link = self.handle.link(interfaces::POD).await?;
        let addresses = self.handle.addresses(interfaces::POD).await?;
        Ok(PodInterface {
            mac: link.mac.map(|mac| api::mac::MacAddress(mac.0)),
            mtu: link.mtu,
            addresses: addresses
                .into_iter()
                .filter(|address| !address.link_local)
                .map(|address| address.network)
                .collect(),
        })
    }

    /// The MTU of an interface.
    pub async fn mtu(&self, interface: &str) -> Result<u32, Error> {
        self.handle.link(interface).await.map(|link| link.mtu)
    }

    /// What to put back after a network was made: libvirt makes a router of the pod with every network, and a guest's
    /// bridge must not lead to the pod's own network.
    pub fn forwarding(&self) -> Result<Forwarding, Error> {
        let read = |sysctl: Sysctl| self.handle.namespace().sysctl(&sysctl).map(|value| (sysctl, value));
        Ok(Forwarding(vec![read(Sysctl::ip_forward())?, read(Sysctl::ipv6_forwarding())?]))
    }

    /// Puts it back.
    pub fn restore(&self, forwarding: &Forwarding) -> Result<(), Error> {
        forwarding.0.iter().try_for_each(|(sysctl, value)| self.handle.namespace().set_sysctl(sysctl, value))
    }

    /// Makes the pod the guest's router: between this bridge and the pod's own network, and also for what the pod sends to its own
    /// loopback address, if rules say that it is for the guest. Rules say what is let through.
    pub fn forward(&self, bridge: &str, ipv6: bool) -> Result<(), Error> {
        let namespace = self.handle.namespace();
        namespace.set_sysctl(&Sysctl::at(&format!("ipv4/conf/{bridge}/route_localnet"))?, "1")?;
        namespace.set_sysctl(&Sysctl::ip_forward(), "1")?;
        if ipv6 { namespace.set_sysctl(&Sysctl::ipv6_forwarding(), "1") } else { Ok(()) }
    }

    /// Gives the bridge IPv6, which libvirt takes from it: an address of its own, and a link-local one. It believes no router, and
    /// both addresses can be used at once, because nobody else has them.
    pub async fn enable_ipv6(&self, bridge: &str, own: IpNet) -> Result<(), Error> {
        let namespace = self.handle.namespace();
        for (setting, value) in
            [("accept_ra", "0"), ("autoconf", "0"), ("accept_dad", "0"), ("disable_ipv6", "0")]
        {
            namespace.set_sysctl(&Sysctl::at(&format!("ipv6/conf/{bridge}/{setting}"))?, value)?;
        }
        let address = Address::new(own).detection(DuplicateDetection::Skip);
        self.handle.ensure_address(bridge, address).await.map(drop)
    }

    /// Moves the interface of a vNIC into the bridge. If it cannot be done, the interface is as it was.
    pub async fn plug(&self, vnic: &Vnic, bridge: &str, guest: MacAddress) -> Result<Wired, Error> {
        let interface = vnic.interface.as_str();
        let namespace = self.handle.namespace();
        let link = self.handle.link(interface).await?;
        let addresses = self.handle.addresses(interface).await?;
        let disable_ipv6 = Sysctl::disable_ipv6(interface)?;
        let wired = Wired {
            interface: interface.to_owned(),
            mac: link.mac,
            addresses: addresses
                .into_iter()
                .filter(|address| !address.link_local)
                .map(|address| address.network)
                .collect(),
            disable_ipv6: namespace.sysctl(&disable_ipv6)?,
        };
        let plugged = self.plug_in(&wired, bridge, guest).await;
        if let Err(cause) = plugged {
            // The first error is the one to report.
            let _ = self.unplug(&wired).await;
            return Err(cause);
        }
        Ok(wired)
    }

    async fn plug_in(&self, wired: &Wired, bridge: &str, guest: MacAddress) -> Result<(), Error> {
        let (namespace, interface) = (self.handle.namespace(), wired.interface.as_str());
        // The pod answers no question about addresses on the guest's segment: not for its own, which may be of the same
        // network, and not for the bridge's, which every other pod has too.
        namespace.set_sysctl(&Sysctl::at(&format!("ipv4/conf/{bridge}/arp_ignore"))?, "8")?;
        // Without IPv6 it gets no link-local address back when it comes up.
        namespace.set_sysctl(&Sysctl::disable_ipv6(interface)?, "1")?;
        self.handle.flush_addresses(interface).await?;
        // A bridge keeps to itself what is sent to the address of one of its ports.
        if wired.mac == Some(guest) {
            self.handle.set_mac(interface, stand_in(guest)).await?;
        }
        self.handle.set_master(interface, bridge).await?;
        // A node's bridge may send what comes from the pod back to it (hairpin mode): the guest's own broadcasts must not make it
        // seem to be out there.
        self.handle.set_learning(interface, false).await?;
        self.handle.set_up(interface).await?;
        // From here on nothing says the guest's addresses but the guest.
        self.handle.unmute(interface).await.map(drop)
    }

    /// Takes the interface out of its bridge and makes it what it was. Goes on past errors and reports them all.
    pub async fn unplug(&self, wired: &Wired) -> Result<(), Error> {
        let (namespace, interface) = (self.handle.namespace(), wired.interface.as_str());
        let mut teardown = Teardown::new("giving back an interface");
        // The guest may be elsewhere by now: nobody must hear its addresses from here.
        teardown.step(self.handle.mute(interface).await);
        teardown.step(self.handle.set_no_master(interface).await);
        if let Some(mac) = wired.mac {
            teardown.step(self.handle.set_mac(interface, mac).await);
        }
        let disable = Sysctl::disable_ipv6(interface)?;
        teardown.step(namespace.set_sysctl(&disable, &wired.disable_ipv6));
        for network in &wired.addresses {
            let address = Address::new(*network).detection(DuplicateDetection::Skip);
            teardown.step(self.handle.ensure_address(interface, address).await);
        }
        teardown.finish()
    }

    /// Says on the vNIC's segment where the guest's addresses are: until now they were at the interface itself.
    pub async fn announce(&self, vnic: &Vnic, guest: MacAddress) -> Result<(), Error> {
        let mut teardown = Teardown::new("announcing a guest");
        for address in &vnic.addresses {
            let announcement = Announcement { address: address.address.addr(), mac: guest };
            teardown.step(self.handle.announce(vnic.interface.as_str(), announcement).await);
        }
        teardown.finish()
    }
}

/// Another address for the interface of a guest with this one: local, a station's, and never the same.
fn stand_in(guest: MacAddress) -> MacAddress {
    let mut octets = guest.0;
    octets[0] = (octets[0] | 0x02) ^ 0x10;
    MacAddress(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_never_has_the_guests_address() {
        for first in 0..=u8::MAX {
            let guest = MacAddress([first & 0xfe, 0, 0, 0, 0, 1]);
            let other = stand_in(guest);
            assert_ne!(other, guest);
            assert!(other.is_station() && other.0[0] & 0x02 != 0, "{other}");
        }
    }
}
