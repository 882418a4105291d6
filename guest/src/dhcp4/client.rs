//! What a DHCPv4 client does next. Pure: time and messages in, steps out.
//!
//! ```text
//!             offer              ack                T1              T2             end, or nak
//!  selecting ──────► requesting ─────► bound ─────────► renewing ─────► rebinding ──────────► selecting
//!      ▲                 │ nak, or silence  ▲              │ ack           │ ack
//!      └─────────────────┘                  └──────────────┴───────────────┘
//! ```
//! Renewing and rebinding are the bound state at a later time: the address is in use throughout, and is given up only at the end of
//! its lease or when the server says no.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};

use super::message::{Kind, Message};
use crate::kernel::Route;

/// A lease that does not end.
const FOREVER: u32 = u32::MAX;
/// Requests for one offer before it is given up.
const REQUESTS: u32 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv4Net,
    pub server: Ipv4Addr,
    pub seconds: u32,
    pub routes: Vec<Route>,
    pub dns: Vec<Ipv4Addr>,
    pub mtu: Option<u16>,
    t1: Duration,
    t2: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Send { message: Message, to: Ipv4Addr },
    Install { lease: Lease, renewed: bool },
    Remove(Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Selecting,
    Requesting { address: Ipv4Addr, server: Ipv4Addr },
    Bound { lease: Lease, since: Duration },
}

#[derive(Debug)]
pub struct Client {
    mac: [u8; 6],
    xid: u32,
    state: State,
    attempt: u32,
    deadline: Duration,
}

impl Client {
    pub fn new(mac: [u8; 6], xid: u32) -> Self {
        Self { mac, xid, state: State::Selecting, attempt: 0, deadline: Duration::ZERO }
    }

    /// When [`Client::poll`] has something to do next.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// What is due at `now`.
    pub fn poll(&mut self, now: Duration) -> Vec<Step> {
        if now < self.deadline {
            return Vec::new();
        }
        match self.state.clone() {
            State::Selecting => {
                if self.attempt == 0 {
                    self.xid = self.xid.wrapping_add(1);
                }
                self.retry(now);
                vec![broadcast(Message::new(Kind::Discover, self.xid, self.mac))]
            }
            State::Requesting { .. } if self.attempt >= REQUESTS => {
                self.enter(State::Selecting, now);
                self.poll(now)
            }
            State::Requesting { address, server } => vec![self.request(now, address, server)],
            State::Bound { lease, since } => self.keep(now, lease, since),
        }
    }

    /// What follows from a message.
    pub fn receive(&mut self, now: Duration, message: &Message) -> Vec<Step> {
        if message.xid != self.xid || message.mac != self.mac {
            return Vec::new();
        }
        match (message.kind, self.state.clone()) {
            (Kind::Offer, State::Selecting) => match (usable(message.yiaddr), message.server) {
                (Some(address), Some(server)) => {
                    self.enter(State::Requesting { address, server }, now);
                    vec![self.request(now, address, server)]
                }
                _ => Vec::new(),
            },
            (Kind::Ack, State::Requesting { .. }) => self.bind(now, message, None),
            (Kind::Ack, State::Bound { lease, since }) if now >= since + lease.t1 => {
                self.bind(now, message, Some(lease))
            }
            (Kind::Nak, State::Requesting { .. }) => {
                self.enter(State::Selecting, now + Duration::from_secs(1));
                Vec::new()
            }
            (Kind::Nak, State::Bound { lease, since }) if now >= since + lease.t1 => {
                self.enter(State::Selecting, now);
                vec![Step::Remove(lease)]
            }
            _ => Vec::new(),
        }
    }

    fn enter(&mut self, state: State, deadline: Duration) {
        (self.state, self.attempt, self.deadline) = (state, 0, deadline);
    }

    /// 1, 2, 4, then every 8 seconds.
    fn retry(&mut self, now: Duration) {
        self.deadline = now + Duration::from_secs(1 << self.attempt.min(3));
        self.attempt += 1;
    }

    fn request(&mut self, now: Duration, address: Ipv4Addr, server: Ipv4Addr) -> Step {
        self.retry(now);
        let mut message = Message::new(Kind::Request, self.xid, self.mac);
        (message.requested, message.server) = (Some(address), Some(server));
        broadcast(message)
    }

    fn bind(&mut self, now: Duration, message: &Message, before: Option<Lease>) -> Vec<Step> {
        // A server need not repeat itself when it renews; then the one that gave the lease is meant.
        let server = message.server.or(before.as_ref().map(|lease| lease.server));
        let Some(lease) = server.and_then(|server| read_lease(message, server)) else { return Vec::new() };
        self.enter(State::Bound { lease: lease.clone(), since: now }, now + lease.t1);
        let renewed = before.as_ref().is_some_and(|before| before.address == lease.address);
        let gone = before.filter(|before| before.address != lease.address).map(Step::Remove);
        gone.into_iter().chain([Step::Install { lease, renewed }]).collect()
    }

    /// Past T1 the server that gave the lease is asked, past T2 anyone, at the end the address goes.
    fn keep(&mut self, now: Duration, lease: Lease, since: Duration) -> Vec<Step> {
        let end = since + Duration::from_secs(u64::from(lease.seconds));
        if lease.seconds == FOREVER {
            self.deadline = Duration::MAX;
            return Vec::new();
        }
        if now >= end {
            self.enter(State::Selecting, now);
            return [Step::Remove(lease)].into_iter().chain(self.poll(now)).collect();
        }
        let rebinding = now >= since + lease.t2;
        let until = if rebinding { end } else { since + lease.t2 };
        // Half of what is left, but not in haste.
        let wait = (until.saturating_sub(now) / 2).max(Duration::from_secs(10));
        self.deadline = until.min(now + wait);
        self.xid = self.xid.wrapping_add(1);
        let mut message = Message::new(Kind::Request, self.xid, self.mac);
        message.ciaddr = lease.address.addr();
        vec![if rebinding { broadcast(message) } else { Step::Send { message, to: lease.server } }]
    }
}

fn broadcast(message: Message) -> Step {
    Step::Send { message, to: Ipv4Addr::BROADCAST }
}

fn usable(address: Ipv4Addr) -> Option<Ipv4Addr> {
    let bad =
        address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback();
    (!bad).then_some(address)
}

/// `None` if the message gives no address that can be used, or none for any time.
fn read_lease(message: &Message, server: Ipv4Addr) -> Option<Lease> {
    let address = usable(message.yiaddr)?;
    let address = match message.mask {
        Some(mask) => Ipv4Net::with_netmask(address, mask).ok()?,
        None => Ipv4Net::new(address, 32).ok()?,
    };
    let seconds = message.seconds.filter(|seconds| *seconds > 0)?;
    let total = Duration::from_secs(u64::from(seconds));
    let told = |seconds: Option<u32>| seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    let (t1, t2) = match (told(message.t1), told(message.t2)) {
        (Some(t1), Some(t2)) if !t1.is_zero() && t1 <= t2 && t2 <= total => (t1, t2),
        _ => (total / 2, total * 7 / 8),
    };
    let mtu = message.mtu.filter(|mtu| *mtu >= 68);
    let routes = routes(address, &message.routes, &message.routers);
    Some(Lease { address, server, seconds, routes, dns: message.dns.clone(), mtu, t1, t2 })
}

/// Classless routes count alone (RFC 3442); without them the first router is the default. A router outside the address's network is
/// made reachable first.
fn routes(address: Ipv4Net, classless: &[(Ipv4Net, Ipv4Addr)], routers: &[Ipv4Addr]) -> Vec<Route> {
    let default = || routers.first().map(|router| (Ipv4Net::default(), *router));
    let wanted: Vec<_> =
        if classless.is_empty() { default().into_iter().collect() } else { classless.to_vec() };
    let mut routes: Vec<Route> = Vec::new();
    for (to, router) in wanted {
        if router.is_unspecified() {
            routes.push(Route { to: IpNet::V4(to), via: None });
            continue;
        }
        let reachable = address.contains(&router)
            || routes.iter().any(|route| route.via.is_none() && route.to.contains(&IpAddr::V4(router)));
        if !reachable {
            routes.push(Route { to: IpNet::from(IpAddr::V4(router)), via: None });
        }
        routes.push(Route { to: IpNet::V4(to), via: Some(router.into()) });
    }
    routes
}

#[cfg(test)]
mod tests;
