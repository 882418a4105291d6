//! What a DHCPv6 client does next. Pure: time and messages in, steps out.
//!
//! ```text
//!             advertise            reply               T1              T2              end, or no binding
//!  soliciting ─────────► requesting ─────► bound ─────────► renewing ─────► rebinding ──────────────────► soliciting
//! ```
//! As with DHCPv4, renewing and rebinding are the bound state at a later time.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::message::{Address, Association, Kind, Message};

const FOREVER: u32 = u32::MAX;
const REQUESTS: u32 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub address: Ipv6Addr,
    pub preferred: u32,
    pub valid: u32,
    pub dns: Vec<Ipv6Addr>,
    server: Vec<u8>,
    t1: Duration,
    t2: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To all servers; the one that is meant is named in it.
    Send(Message),
    Install {
        lease: Lease,
        renewed: bool,
    },
    Remove(Lease),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Soliciting,
    Requesting { server: Vec<u8>, address: Address },
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
        Self { mac, xid, state: State::Soliciting, attempt: 0, deadline: Duration::ZERO }
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
            State::Soliciting => {
                self.retry(now);
                vec![self.send(Kind::Solicit, None, None)]
            }
            State::Requesting { .. } if self.attempt >= REQUESTS => {
                self.enter(State::Soliciting, now);
                self.poll(now)
            }
            State::Requesting { server, address } => {
                self.retry(now);
                vec![self.send(Kind::Request, Some(server), Some(address))]
            }
            State::Bound { lease, since } => self.keep(now, lease, since),
        }
    }

    /// What follows from a message.
    pub fn receive(&mut self, now: Duration, message: &Message) -> Vec<Step> {
        let ours = message.xid == self.xid && message.client == duid(self.mac);
        let (true, Some(server)) = (ours, &message.server) else { return Vec::new() };
        let given = given(message);
        match (message.kind, self.state.clone(), given) {
            (Kind::Advertise, State::Soliciting, Some((_, address))) => {
                self.enter(State::Requesting { server: server.clone(), address }, now);
                self.poll(now)
            }
            (Kind::Reply, State::Requesting { .. }, Some((association, address))) => {
                self.bind(now, message, association, address, None)
            }
            (Kind::Reply, State::Requesting { .. }, None) => {
                self.enter(State::Soliciting, now + Duration::from_secs(1));
                Vec::new()
            }
            (Kind::Reply, State::Bound { lease, since }, given) if now >= since + lease.t1 => {
                if let Some((association, address)) = given {
                    return self.bind(now, message, association, address, Some(lease));
                }
                self.enter(State::Soliciting, now);
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

    fn send(&mut self, kind: Kind, server: Option<Vec<u8>>, address: Option<Address>) -> Step {
        self.xid = self.xid.wrapping_add(1) & 0x00ff_ffff;
        let association = Association { id: association_id(self.mac), t1: 0, t2: 0, address, status: 0 };
        Step::Send(Message {
            kind,
            xid: self.xid,
            client: duid(self.mac),
            server,
            association: Some(association),
            dns: Vec::new(),
            status: 0,
        })
    }

    fn bind(
        &mut self,
        now: Duration,
        message: &Message,
        association: &Association,
        address: Address,
        before: Option<Lease>,
    ) -> Vec<Step> {
        let (t1, t2) = times(association, address);
        let lease = Lease {
            address: address.address,
            preferred: address.preferred,
            valid: address.valid,
            dns: message.dns.clone(),
            server: message.server.clone().unwrap_or_default(),
            t1,
            t2,
        };
        self.enter(State::Bound { lease: lease.clone(), since: now }, now + t1);
        let renewed = before.as_ref().is_some_and(|before| before.address == lease.address);
        let gone = before.filter(|before| before.address != lease.address).map(Step::Remove);
        gone.into_iter().chain([Step::Install { lease, renewed }]).collect()
    }

    fn keep(&mut self, now: Duration, lease: Lease, since: Duration) -> Vec<Step> {
        if lease.valid == FOREVER {
            self.deadline = Duration::MAX;
            return Vec::new();
        }
        let end = since + Duration::from_secs(u64::from(lease.valid));
        if now >= end {
            self.enter(State::Soliciting, now);
            return [Step::Remove(lease)].into_iter().chain(self.poll(now)).collect();
        }
        let rebinding = now >= since + lease.t2;
        let until = if rebinding { end } else { since + lease.t2 };
        // Half of what is left, but not in haste.
        self.deadline = until.min(now + (until.saturating_sub(now) / 2).max(Duration::from_secs(10)));
        let address = Address { address: lease.address, preferred: lease.preferred, valid: lease.valid };
        let (kind, server) = if rebinding { (Kind::Rebind, None) } else { (Kind::Renew, Some(lease.server)) };
        vec![self.send(kind, server, Some(address))]
    }
}

/// Link-layer address, Ethernet: 00:03:00:01 and the MAC, so that a host entry can be written beforehand.
pub fn duid(mac: [u8; 6]) -> Vec<u8> {
    [&[0, 3, 0, 1], mac.as_slice()].concat()
}

fn association_id(mac: [u8; 6]) -> u32 {
    u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])
}

/// The address that a message gives, if it gives one for any time.
fn given(message: &Message) -> Option<(&Association, Address)> {
    let association = message.association.as_ref()?;
    let address = association.address?;
    let good = message.status == 0 && association.status == 0 && address.valid > 0;
    let usable = !address.address.is_unspecified() && !address.address.is_multicast();
    (good && usable && address.preferred <= address.valid).then_some((association, address))
}

/// When to renew and rebind; 0 leaves it to the client.
fn times(association: &Association, address: Address) -> (Duration, Duration) {
    let (t1, t2) = (association.t1, association.t2);
    if t1 > 0 && t1 <= t2 && t2 <= address.valid {
        return (Duration::from_secs(u64::from(t1)), Duration::from_secs(u64::from(t2)));
    }
    let base = Duration::from_secs(u64::from(address.preferred.max(2)));
    (base / 2, base * 4 / 5)
}

#[cfg(test)]
mod tests;
