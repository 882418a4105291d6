//! The vNICs: attached, joined to the pod's network, announced; and all of it undone.
//!
//! A vNIC is noted before the first thing of it is made, and with every thing that is made.

use std::net::IpAddr;
use std::time::Duration;

use api::mac::MacAddress;
use wire::{InterfaceStatus, Vnic};

use super::{Executor, kernel_mac, whole};
use crate::advertise::{self, Advertiser};
use crate::masquerade::{self, PodInterface};
use crate::network::{self, Bridge, Guest};
use crate::plan::{Binding, Masquerade, PlannedVnic};
use crate::rules;
use crate::supervise::Input;
use crate::wiring::{Forwarding, Wired};

/// A CNI plugin may ask a server far away for an address.
const ATTACH_DEADLINE: Duration = Duration::from_mins(2);
/// A handler that is away detaches the vNICs itself when it is back: the pod need not wait for it long.
const DETACH_DEADLINE: Duration = Duration::from_secs(15);
/// Where the pod's name servers are written.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A vNIC, as far as it was made.
#[derive(Debug)]
pub(super) struct MadeVnic {
    pub vnic: Vnic,
    index: usize,
    pub mac: MacAddress,
    pub mtu: u32,
    /// The handler attached its interface.
    attached: bool,
    /// Its network was asked for; it may be there.
    network: bool,
    join: Join,
    advertiser: Option<Advertiser>,
}

/// How the guest's bridge is joined to the pod's network, as far as it is.
#[derive(Debug)]
enum Join {
    None,
    /// It is guarded; the vNIC's interface is not in it yet.
    Guarded,
    /// The vNIC's interface is in it.
    Wired(Wired),
    /// The pod forwards, by rules.
    Forwarded(Forwarding),
}

impl Executor {
    pub(super) async fn make_vnic(
        &self,
        index: usize,
        planned: &PlannedVnic,
        hostname: &str,
    ) -> Result<InterfaceStatus, String> {
        let made = match &planned.binding {
            Binding::Bridge => self.make_bridged(index, planned, hostname).await,
            Binding::Masquerade(masquerade) => {
                self.make_masqueraded(index, planned, masquerade, hostname).await
            }
        };
        made.map_err(|cause| format!("vNIC {}: {cause}", planned.name))
    }

    async fn make_bridged(
        &self,
        index: usize,
        planned: &PlannedVnic,
        hostname: &str,
    ) -> Result<InterfaceStatus, String> {
        let vnic = self.proxy.add(&planned.name, ATTACH_DEADLINE).await.map_err(|error| whole(&error))?;
        let mtu = match vnic.mtu {
            Some(mtu) => Ok(mtu),
            None => self.wiring.mtu(vnic.interface.as_str()).await.map_err(|error| whole(&error)),
        };
        // Before anything can fail: it is attached, so it must be detached.
        let mac = self.begin(index, planned, &vnic, true).await;
        let (mac, mtu) = (mac?, mtu?);
        let guest = Guest { index, mac, hostname, mtu: Some(mtu), bridge: Bridge::Segment };
        self.make_network(&vnic, guest, mtu).await?;
        self.note(index, |made| made.join = Join::Guarded).await;
        let guard = network::guard(&vnic.interface, index);
        self.call(move |_| rules::apply(&guard)).await?;
        let plugged = self.wiring.plug(&vnic, &network::bridge_name(index), kernel_mac(mac)).await;
        let wired = plugged.map_err(|error| whole(&error))?;
        self.note(index, |made| made.join = Join::Wired(wired)).await;
        self.serve_ipv6(&vnic, guest, mtu).await?;
        let addresses = vnic.addresses.iter().map(|address| address.address.addr()).collect();
        Ok(status(&vnic, mac, mtu, addresses))
    }

    async fn make_masqueraded(
        &self,
        index: usize,
        planned: &PlannedVnic,
        masquerade: &Masquerade,
        hostname: &str,
    ) -> Result<InterfaceStatus, String> {
        let pod = self.wiring.pod_interface().await.map_err(|error| whole(&error))?;
        // A pod without name servers is one without that file.
        let dns = masquerade::dns(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default());
        let vnic = masquerade::vnic(&planned.name, masquerade, &pod, dns).map_err(|error| whole(&error))?;
        let mac = self.begin(index, planned, &vnic, false).await?;
        let guest = Guest { index, mac, hostname, mtu: Some(pod.mtu), bridge: Bridge::Gateway };
        self.make_network(&vnic, guest, pod.mtu).await?;
        self.serve_ipv6(&vnic, guest, pod.mtu).await?;
        self.forward(&vnic, masquerade, &pod, index).await?;
        Ok(status(&vnic, mac, pod.mtu, pod.addresses.iter().map(ipnet::IpNet::addr).collect()))
    }

    /// Notes a vNIC of which nothing is made yet, and decides on its Ethernet address.
    async fn begin(
        &self,
        index: usize,
        planned: &PlannedVnic,
        vnic: &Vnic,
        attached: bool,
    ) -> Result<MacAddress, String> {
        let mac = planned.mac.or(vnic.mac);
        let made = MadeVnic {
            mac: mac.unwrap_or(MacAddress([0; 6])),
            vnic: vnic.clone(),
            index,
            mtu: 0,
            attached,
            network: false,
            join: Join::None,
            advertiser: None,
        };
        self.made.lock().await.vnics.push(made);
        mac.ok_or_else(|| "neither the VM nor its network says which MAC address it has".to_owned())
    }

    async fn make_network(&self, vnic: &Vnic, guest: Guest<'_>, mtu: u32) -> Result<(), String> {
        let document = network::document(vnic, guest).map_err(|error| whole(&error))?;
        self.note(guest.index, |made| (made.mtu, made.network) = (mtu, true)).await;
        let forwarding = self.wiring.forwarding().map_err(|error| whole(&error))?;
        self.call(move |hypervisor| hypervisor.create_network(&document)).await?;
        self.wiring.restore(&forwarding).map_err(|error| whole(&error))
    }

    async fn serve_ipv6(&self, vnic: &Vnic, guest: Guest<'_>, mtu: u32) -> Result<(), String> {
        let Some(own) = network::own_ipv6(vnic, guest.mac, guest.bridge) else { return Ok(()) };
        let enabled = self.wiring.enable_ipv6(&network::bridge_name(guest.index), own).await;
        enabled.map_err(|error| whole(&error))?;
        let Some(advertised) = advertise::advertised(vnic, guest.index, mtu, guest.bridge) else {
            return Ok(());
        };
        let (inputs, name) = (self.inputs.clone(), vnic.name.clone());
        let complain = move |cause: String| {
            // Nobody listens once the launcher ends.
            let _ = inputs.send(Input::Problem { cause: format!("vNIC {name}: {cause}") });
        };
        let advertiser = Advertiser::start(self.wiring.handle().clone(), advertised, complain);
        self.note(guest.index, |made| made.advertiser = Some(advertiser)).await;
        Ok(())
    }

    /// Rules first: what is not to be let through never is.
    async fn forward(
        &self,
        vnic: &Vnic,
        masquerade: &Masquerade,
        pod: &PodInterface,
        index: usize,
    ) -> Result<(), String> {
        let bridge = network::bridge_name(index);
        let forwarding = self.wiring.forwarding().map_err(|error| whole(&error))?;
        self.note(index, |made| made.join = Join::Forwarded(forwarding)).await;
        let rules = masquerade::rules(vnic, &masquerade.ports, pod, &bridge);
        self.call(move |_| rules::apply(&rules)).await?;
        let ipv6 = vnic.addresses.iter().any(|address| address.address.addr().is_ipv6());
        self.wiring.forward(&bridge, ipv6).map_err(|error| whole(&error))
    }

    async fn note(&self, index: usize, change: impl FnOnce(&mut MadeVnic)) {
        if let Some(made) = self.made.lock().await.vnics.get_mut(index) {
            change(made);
        }
    }

    /// Until now the addresses were at the pod's interfaces, and neighbours may remember it.
    pub(super) async fn announce(&self) {
        let made = self.made.lock().await;
        for made in made.vnics.iter().filter(|made| matches!(made.join, Join::Wired(_))) {
            if let Err(error) = self.wiring.announce(&made.vnic, kernel_mac(made.mac)).await {
                self.say(Input::Problem { cause: whole(&error) });
            }
        }
    }

    /// Undoes what was made, in the opposite order, past every error.
    pub(super) async fn remove_vnic(&self, made: MadeVnic, problems: &mut Vec<String>) {
        let name = &made.vnic.name;
        let mut note = |undone: Result<(), String>| {
            problems.extend(undone.err().map(|cause| format!("vNIC {name}: {cause}")));
        };
        drop(made.advertiser);
        if let Join::Wired(wired) = &made.join {
            note(self.wiring.unplug(wired).await.map_err(|error| whole(&error)));
        }
        if let Join::Forwarded(forwarding) = &made.join {
            note(self.wiring.restore(forwarding).map_err(|error| whole(&error)));
        }
        let rules = match made.join {
            Join::None => None,
            Join::Guarded | Join::Wired(_) => Some(network::no_guard(made.index)),
            Join::Forwarded(_) => Some(masquerade::no_rules()),
        };
        if let Some(rules) = rules {
            note(self.call(move |_| rules::apply(&rules)).await);
        }
        if made.network {
            let network = network::name(name);
            note(self.call(move |hypervisor| hypervisor.destroy_network(&network)).await);
        }
        if made.attached {
            note(self.proxy.del(name, DETACH_DEADLINE).await.map_err(|error| whole(&error)));
        }
    }
}

fn status(vnic: &Vnic, mac: MacAddress, mtu: u32, addresses: Vec<IpAddr>) -> InterfaceStatus {
    InterfaceStatus {
        name: vnic.name.clone(),
        mac,
        pod_interface: vnic.interface.clone(),
        addresses,
        mtu: Some(mtu),
    }
}
