//! Every NIC up, addressed and reported, also one that is plugged in later.
//!
//! One thread watches the kernel; each NIC has a thread for DHCPv4 and, when a router asks for it, one for DHCPv6. [`Network`] holds
//! the last look at the kernel; only [`refresh`] writes it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::kernel::{self, Kernel, Link};
use crate::{Guest, dhcp4, dhcp6, lock};

/// A NIC as the kernel has it, and the name servers that DHCP told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    pub name: String,
    pub mac: String,
    pub mtu: u32,
    pub up: bool,
    pub addresses: Vec<String>,
    pub routes: Vec<Route>,
    pub dns: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    pub to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
}

#[derive(Debug, Default)]
pub struct Network(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    nics: Vec<Nic>,
    /// By link index; IPv4 and IPv6.
    dns: BTreeMap<u32, [Vec<IpAddr>; 2]>,
}

impl Network {
    pub fn nics(&self) -> Vec<Nic> {
        lock(&self.0).nics.clone()
    }

    fn set_dns(&self, link: u32, version: usize, servers: Vec<IpAddr>) {
        lock(&self.0).dns.entry(link).or_default()[version] = servers;
    }

    pub fn set_dns4(&self, link: u32, servers: impl IntoIterator<Item = std::net::Ipv4Addr>) {
        self.set_dns(link, 0, servers.into_iter().map(IpAddr::from).collect());
    }

    pub fn set_dns6(&self, link: u32, servers: impl IntoIterator<Item = std::net::Ipv6Addr>) {
        self.set_dns(link, 1, servers.into_iter().map(IpAddr::from).collect());
    }
}

/// What a thread that serves one NIC has.
#[derive(Debug, Clone)]
pub struct Card {
    pub guest: Arc<Guest>,
    pub link: Link,
    there: Arc<AtomicBool>,
}

impl Card {
    /// False once the NIC was unplugged: its threads end then.
    pub fn is_there(&self) -> bool {
        self.there.load(Ordering::Relaxed)
    }

    pub fn complain(&self, cause: &dyn std::fmt::Display) {
        self.guest.serial.complain(&format!("{} ({}): {cause}", self.link.name, mac_text(self.link.mac)));
    }
}

/// Starts looking after the network, for good.
pub fn start(guest: &Arc<Guest>) {
    let guest = Arc::clone(guest);
    std::thread::spawn(move || {
        if let Err(cause) = watch(&guest) {
            guest.serial.complain(&format!("the network is no longer watched: {}", chain(&cause)));
        }
    });
}

fn watch(guest: &Arc<Guest>) -> Result<(), kernel::Error> {
    let changes = kernel::changes()?;
    let mut kernel = Kernel::open()?;
    // Loopback is always the first link.
    kernel.set_up(1)?;
    let mut cards: BTreeMap<u32, (Card, bool)> = BTreeMap::new();
    loop {
        let links = kernel.links()?;
        cards.retain(|index, (card, _)| {
            let there = links.iter().any(|link| link.index == *index);
            card.there.store(there, Ordering::Relaxed);
            there
        });
        for link in &links {
            let (card, managed) = cards.entry(link.index).or_insert_with(|| {
                let card = Card {
                    guest: Arc::clone(guest),
                    link: link.clone(),
                    there: Arc::new(AtomicBool::new(true)),
                };
                if let Err(cause) = kernel.set_up(link.index) {
                    card.complain(&chain(&cause));
                }
                let served = card.clone();
                std::thread::spawn(move || dhcp4::run(&served));
                (card, false)
            });
            if link.managed && !*managed {
                *managed = true;
                let served = card.clone();
                std::thread::spawn(move || dhcp6::run(&served));
            }
        }
        refresh(guest, &mut kernel)?;
        wait(&changes).map_err(|cause| kernel::Error { operation: "wait for changes".to_owned(), cause })?;
    }
}

/// Looks at the kernel, and says so on the serial line if anything is different.
pub fn refresh(guest: &Guest, kernel: &mut Kernel) -> Result<(), kernel::Error> {
    let (links, addresses, routes) = (kernel.links()?, kernel.addresses()?, kernel.routes()?);
    let mut state = lock(&guest.network.0);
    state.dns.retain(|index, _| links.iter().any(|link| link.index == *index));
    let nics = links.into_iter().map(|link| {
        let of_link = |index: &u32| *index == link.index;
        let mut routes: Vec<_> =
            routes.iter().filter(|(index, _)| of_link(index)).map(|(_, route)| route).collect();
        routes.sort();
        routes.dedup();
        let mut addresses: Vec<_> =
            addresses.iter().filter(|(index, _)| of_link(index)).map(|(_, address)| address).collect();
        addresses.sort();
        Nic {
            mac: mac_text(link.mac),
            mtu: link.mtu,
            up: link.up,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            routes: routes.iter().map(|route| Route { to: route.to.to_string(), via: route.via }).collect(),
            dns: state.dns.get(&link.index).into_iter().flatten().flatten().copied().collect(),
            name: link.name,
        }
    });
    let nics: Vec<Nic> = nics.collect();
    if nics != state.nics {
        state.nics = nics;
        drop(state);
        guest.serial.say("report", &guest.report());
    }
    Ok(())
}

/// Waits for a change, then for the end of the flurry that it is part of.
fn wait(changes: &netlink_sys::Socket) -> io::Result<()> {
    let mut timeout = PollTimeout::NONE;
    loop {
        match poll(&mut [PollFd::new(changes.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(cause) => return Err(cause.into()),
        }
        match changes.recv_from_full() {
            Ok(_) => {}
            // More came than the socket holds: that something changed is all we want to know.
            Err(cause) if cause.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
            Err(cause) => return Err(cause),
        }
        timeout = PollTimeout::from(20_u8);
    }
}

pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
