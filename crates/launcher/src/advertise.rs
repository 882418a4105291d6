//! The guest's router of IPv6: found on its segment, and named to the guest alone.
//!
//! A guest takes its default router from advertisements, and knows it by its link-local address. CNI says the address of the gateway, which
//! is seldom that, and most gateways of pods advertise nothing. So the gateway is asked for on the segment, from the bridge: the router that
//! has the same Ethernet address as the gateway *is* the gateway, and its link-local address is named. The advertisement goes out of the
//! guest's tap and nowhere else: on the segment it would be believed by everyone.
//!
//! Until the router is found the guest is told what it can be told: where its address comes from, and who its neighbours are.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use net::{Discovery, Error, Handle, Heard, MacAddress, RouterAdvertisement};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};
use wire::Vnic;

use crate::network::{self, Bridge, IpVersion};

/// How long the guest believes in a router that is named no more.
const LIFETIME: u16 = 1800;
/// How often the router is named unasked: a guest that was moved here does not ask.
const INTERVAL: Duration = Duration::from_secs(30);
/// How often the router is asked for until it is found, and how soon the guest is told again if it asks again.
const PACE: Duration = Duration::from_millis(500);
/// When a router that was not found is a problem to tell people of.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than a segment has routers: who claims to be one too many is not listened to.
const CANDIDATES: usize = 16;

/// What a guest is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// The bridge, from which routers are asked for.
    pub bridge: String,
    /// The guest's end, where it is told.
    pub tap: String,
    /// Whose addresses are on the link.
    pub prefix: Option<Ipv6Net>,
    pub mtu: u32,
    pub router: Router,
}

/// Who the default router is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// There is none.
    None,
    /// The bridge.
    Bridge,
    /// The machine that has this address.
    Gateway(Ipv6Addr),
}

/// What the guest of a vNIC is to know; nothing, if it has no address of IPv6.
pub fn advertised(vnic: &Vnic, index: usize, mtu: u32, bridge: Bridge) -> Option<Advertised> {
    let given = network::served(vnic, IpVersion::V6)?;
    let IpNet::V6(own) = given.address else { return None };
    let routes: Vec<_> =
        vnic.routes.iter().filter(|route| matches!(route.destination, IpNet::V6(_))).collect();
    let default = routes.iter().find(|route| route.destination.prefix_len() == 0);
    let gateway = match default {
        Some(route) => route.gateway.or(given.gateway),
        // A network that names a gateway and no routes means the default route.
        None => given.gateway.filter(|_| routes.is_empty()),
    };
    let router = match (bridge, gateway) {
        (Bridge::Gateway, _) => Router::Bridge,
        (Bridge::Segment, Some(IpAddr::V6(gateway))) => Router::Gateway(gateway),
        (Bridge::Segment, _) => Router::None,
    };
    Some(Advertised {
        bridge: network::bridge_name(index),
        tap: network::tap_name(index),
        // Of a network of one, nobody else is on the link.
        prefix: (own.prefix_len() < 128).then(|| own.trunc()),
        mtu,
        router,
    })
}

/// Tells the guest, until it is dropped.
#[derive(Debug)]
pub struct Advertiser(JoinHandle<()>);

impl Drop for Advertiser {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Advertiser {
    /// `complain` is told, once, of a router that cannot be found, or why nothing can be said at all.
    pub fn start(
        handle: Handle,
        what: Advertised,
        complain: impl Fn(String) + Send + Sync + 'static,
    ) -> Self {
        Self(tokio::spawn(async move {
            if let Err(cause) = advertise(&handle, &what, &complain).await {
                complain(format!("the guest is not told its router of IPv6: {cause}"));
            }
        }))
    }
}

async fn advertise(handle: &Handle, what: &Advertised, complain: &impl Fn(String)) -> Result<(), Error> {
    let discovery = listen(handle, &what.bridge).await?;
    let mut search = Search::of(what.router, discovery.address());
    let (mut ask, mut tell, mut told) = (Instant::now(), Instant::now(), Instant::now());
    let mut patience = Some(Instant::now() + PATIENCE);
    loop {
        let found = search.found;
        tokio::select! {
            heard = discovery.heard() => match heard {
                Ok(Heard::RouterSolicitation) => tell = tell.min(Instant::now().max(told + PACE)),
                Ok(heard) => search.hear(heard),
                // The link is gone, or the kernel is short of memory: it is not for the guest to suffer from.
                Err(cause) => {
                    debug!(%cause, bridge = what.bridge, "nothing is heard");
                    sleep(PACE).await;
                }
            },
            () = sleep_until(ask), if search.goes_on() => {
                search.ask(&discovery).await;
                ask = Instant::now() + PACE;
                if patience.take_if(|patience| *patience < Instant::now()).is_some() {
                    complain(search.complaint());
                }
            }
            () = sleep_until(tell) => {
                let advertisement = search.advertisement(what, &discovery);
                // There is no tap before there is a guest.
                if let Err(cause) = handle.advertise_router(what.tap.as_str(), &advertisement).await {
                    debug!(%cause, "the guest is not told its router");
                }
                (told, tell) = (Instant::now(), Instant::now() + INTERVAL);
            }
        }
        if search.found != found {
            info!(bridge = what.bridge, router = ?search.found, "the router of IPv6 is found");
            tell = Instant::now();
        }
    }
}

/// The bridge has its address as soon as something is plugged in.
async fn listen(handle: &Handle, bridge: &str) -> Result<Discovery, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match handle.discovery(bridge).await {
            Err(cause) if cause.is_not_found() && Instant::now() < deadline => {
                sleep(Duration::from_millis(100)).await;
            }
            other => return other,
        }
    }
}

/// The search for the link-local address of a gateway. Pure, but for the asking.
#[derive(Debug, Default, PartialEq, Eq)]
struct Search {
    gateway: Option<Ipv6Addr>,
    /// Where addresses are.
    places: BTreeMap<Ipv6Addr, MacAddress>,
    /// Link-local addresses that may be the gateway's.
    candidates: BTreeSet<Ipv6Addr>,
    found: Option<Ipv6Addr>,
}

impl Search {
    fn of(router: Router, bridge: Ipv6Addr) -> Self {
        match router {
            Router::None => Self::default(),
            Router::Bridge => Self { found: Some(bridge), ..Self::default() },
            Router::Gateway(gateway) => Self {
                gateway: Some(gateway),
                found: gateway.is_unicast_link_local().then_some(gateway),
                ..Self::default()
            },
        }
    }

    fn complaint(&self) -> String {
        let gateway = self.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
        let heard = self.candidates.len();
        format!(
            "the guest has no default route of IPv6: the gateway {gateway} does not say by which link-local address it is reached ({heard} routers were heard); it is still asked"
        )
    }

    fn goes_on(&self) -> bool {
        self.gateway.is_some() && self.found.is_none()
    }

    fn hear(&mut self, heard: Heard) {
        if !self.goes_on() {
            return;
        }
        match heard {
            Heard::RouterSolicitation => {}
            Heard::Router { address } => self.consider(address),
            Heard::Neighbour { address, mac } => {
                let asked_for = Some(address) == self.gateway || self.candidates.contains(&address);
                if asked_for {
                    self.places.insert(address, mac);
                }
                if Some(address) == self.gateway {
                    // What a machine calls itself unless told otherwise. It may not answer to a call for routers.
                    self.consider(link_local(mac));
                }
            }
        }
        let place = self.gateway.and_then(|gateway| self.places.get(&gateway));
        self.found = self
            .candidates
            .iter()
            .find(|candidate| place.is_some() && self.places.get(*candidate) == place)
            .copied();
    }

    fn consider(&mut self, address: Ipv6Addr) {
        if self.candidates.len() < CANDIDATES {
            self.candidates.insert(address);
        }
    }

    /// What cannot be sent now is sent the next time.
    async fn ask(&self, discovery: &Discovery) {
        let mut sent = discovery.call_routers().await;
        for address in self.gateway.iter().chain(&self.candidates) {
            sent = sent.and(discovery.ask(*address).await);
        }
        if let Err(cause) = sent {
            debug!(%cause, "a question for the router was not sent");
        }
    }

    fn advertisement(&self, what: &Advertised, discovery: &Discovery) -> RouterAdvertisement {
        RouterAdvertisement {
            router: self.found.unwrap_or_else(|| discovery.address()),
            lifetime: if self.found.is_some() { LIFETIME } else { 0 },
            prefix: what.prefix,
            mtu: Some(what.mtu),
            sender: discovery.mac(),
        }
    }
}

/// The link-local address that follows from an Ethernet address.
fn link_local(mac: MacAddress) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(mac.interface_id()))
}

#[cfg(test)]
mod tests;
