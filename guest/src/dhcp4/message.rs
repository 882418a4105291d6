//! DHCPv4 messages as bytes. Pure; reads whatever comes from the network and never panics.
//!
//! Invariant: a message that was written reads as itself.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

pub const CLIENT_PORT: u16 = 68;
pub const SERVER_PORT: u16 = 67;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Where the options begin: the fixed part and the cookie are before them.
const OPTIONS: usize = 240;
/// Relays and servers of old drop what is shorter.
const SMALLEST: usize = 300;
const BROADCAST: u16 = 0x8000;

mod code {
    pub const MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const MTU: u8 = 26;
    pub const REQUESTED: u8 = 50;
    pub const SECONDS: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const KIND: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const WANTED: u8 = 55;
    pub const T1: u8 = 58;
    pub const T2: u8 = 59;
    pub const ROUTES: u8 = 121;
    pub const END: u8 = 255;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Ack = 5,
    Nak = 6,
}

/// The parts of a message that a client sends or looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    pub xid: u32,
    pub mac: [u8; 6],
    /// The client's own address, once it has one.
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives.
    pub yiaddr: Ipv4Addr,
    pub requested: Option<Ipv4Addr>,
    pub server: Option<Ipv4Addr>,
    pub mask: Option<Ipv4Addr>,
    pub routers: Vec<Ipv4Addr>,
    pub dns: Vec<Ipv4Addr>,
    pub mtu: Option<u16>,
    pub seconds: Option<u32>,
    pub t1: Option<u32>,
    pub t2: Option<u32>,
    /// Classless routes (RFC 3442): destination and router, unspecified for on-link.
    pub routes: Vec<(Ipv4Net, Ipv4Addr)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DHCP message: {0}")]
pub struct Malformed(&'static str);

impl Message {
    pub fn new(kind: Kind, xid: u32, mac: [u8; 6]) -> Self {
        Self {
            kind,
            xid,
            mac,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            requested: None,
            server: None,
            mask: None,
            routers: Vec::new(),
            dns: Vec::new(),
            mtu: None,
            seconds: None,
            t1: None,
            t2: None,
            routes: Vec::new(),
        }
    }

    pub fn from_server(&self) -> bool {
        matches!(self.kind, Kind::Offer | Kind::Ack | Kind::Nak)
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_at_checked(OPTIONS).ok_or(Malformed("too short"))?;
        if fixed[OPTIONS - 4..] != COOKIE {
            return Err(Malformed("no magic cookie"));
        }
        let mut options = Options::default();
        options.read(rest);
        // The fields for names may hold more options.
        let overload = options.number(code::OVERLOAD).map_or(0, |[bits]: [u8; 1]| bits);
        if overload & 1 != 0 {
            options.read(&fixed[108..236]);
        }
        if overload & 2 != 0 {
            options.read(&fixed[44..108]);
        }
        let kind = match options.number(code::KIND) {
            Some([1]) => Kind::Discover,
            Some([2]) => Kind::Offer,
            Some([3]) => Kind::Request,
            Some([5]) => Kind::Ack,
            Some([6]) => Kind::Nak,
            _ => return Err(Malformed("of no kind that a client knows")),
        };
        let array = |at: usize| [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
        Ok(Self {
            kind,
            xid: u32::from_be_bytes(array(4)),
            mac: [fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33]],
            ciaddr: array(12).into(),
            yiaddr: array(16).into(),
            requested: options.number::<4>(code::REQUESTED).map(Ipv4Addr::from),
            server: options.number::<4>(code::SERVER).map(Ipv4Addr::from),
            mask: options.number::<4>(code::MASK).map(Ipv4Addr::from),
            routers: options.addresses(code::ROUTER),
            dns: options.addresses(code::DNS),
            mtu: options.number(code::MTU).map(u16::from_be_bytes),
            seconds: options.number(code::SECONDS).map(u32::from_be_bytes),
            t1: options.number(code::T1).map(u32::from_be_bytes),
            t2: options.number(code::T2).map(u32::from_be_bytes),
            routes: read_routes(options.bytes(code::ROUTES)),
        })
    }

    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; OPTIONS];
        bytes[0] = if self.from_server() { 2 } else { 1 };
        bytes[1] = 1; // Ethernet
        bytes[2] = 6; // bytes of its addresses
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[10..12].copy_from_slice(&BROADCAST.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.ciaddr.octets());
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes[OPTIONS - 4..].copy_from_slice(&COOKIE);
        let mut put = |code: u8, value: &[u8]| {
            // One that is longer than its length byte can say comes in parts (RFC 3396).
            for part in value.chunks(255) {
                bytes.push(code);
                bytes.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
                bytes.extend(part);
            }
        };
        put(code::KIND, &[self.kind as u8]);
        for (code, address) in
            [(code::REQUESTED, self.requested), (code::SERVER, self.server), (code::MASK, self.mask)]
        {
            if let Some(address) = address {
                put(code, &address.octets());
            }
        }
        for (code, number) in [(code::SECONDS, self.seconds), (code::T1, self.t1), (code::T2, self.t2)] {
            if let Some(number) = number {
                put(code, &number.to_be_bytes());
            }
        }
        if let Some(mtu) = self.mtu {
            put(code::MTU, &mtu.to_be_bytes());
        }
        put(code::ROUTER, &join(&self.routers));
        put(code::DNS, &join(&self.dns));
        put(code::ROUTES, &write_routes(&self.routes));
        if !self.from_server() {
            let wanted = [code::MASK, code::ROUTER, code::DNS, code::MTU, code::T1, code::T2, code::ROUTES];
            put(code::WANTED, &wanted);
        }
        bytes.push(code::END);
        bytes.resize(bytes.len().max(SMALLEST), 0);
        bytes
    }
}

#[derive(Debug, Default)]
struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    /// Takes options up to the end mark, or to the first that is cut off.
    fn read(&mut self, mut bytes: &[u8]) {
        while let [code, rest @ ..] = bytes {
            match (code, rest) {
                (0, rest) => bytes = rest,
                (code, [length, rest @ ..]) if *code != code::END && rest.len() >= usize::from(*length) => {
                    let (value, rest) = rest.split_at(usize::from(*length));
                    self.0.entry(*code).or_default().extend(value);
                    bytes = rest;
                }
                _ => return,
            }
        }
    }

    fn bytes(&self, code: u8) -> &[u8] {
        self.0.get(&code).map_or(&[], Vec::as_slice)
    }

    fn number<const N: usize>(&self, code: u8) -> Option<[u8; N]> {
        self.bytes(code).try_into().ok()
    }

    fn addresses(&self, code: u8) -> Vec<Ipv4Addr> {
        self.bytes(code).as_chunks::<4>().0.iter().map(|octets| Ipv4Addr::from(*octets)).collect()
    }
}

fn join(addresses: &[Ipv4Addr]) -> Vec<u8> {
    addresses.iter().flat_map(Ipv4Addr::octets).collect()
}

/// Prefix length, as many bytes of the destination as it needs, router; and again.
fn read_routes(mut bytes: &[u8]) -> Vec<(Ipv4Net, Ipv4Addr)> {
    let mut routes = Vec::new();
    while let [length, rest @ ..] = bytes {
        let significant = usize::from(length.div_ceil(8));
        let (Some(destination), Some(router)) =
            (rest.get(..significant), rest.get(significant..significant + 4))
        else {
            break;
        };
        let mut octets = [0; 4];
        let Some(target) = octets.get_mut(..significant) else { break };
        target.copy_from_slice(destination);
        let Ok(network) = Ipv4Net::new(octets.into(), *length) else { break };
        routes.push((network.trunc(), Ipv4Addr::new(router[0], router[1], router[2], router[3])));
        bytes = &rest[significant + 4..];
    }
    routes
}

fn write_routes(routes: &[(Ipv4Net, Ipv4Addr)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (to, router) in routes {
        let significant = usize::from(to.prefix_len().div_ceil(8));
        bytes.push(to.prefix_len());
        bytes.extend(&to.network().octets()[..significant]);
        bytes.extend(router.octets());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Ipv4Addr> {
        any::<[u8; 4]>().prop_map(Ipv4Addr::from)
    }

    prop_compose! {
        fn route()(address in address(), length in 0_u8..=32, router in address()) -> (Ipv4Net, Ipv4Addr) {
            (Ipv4Net::new(address, length).unwrap().trunc(), router)
        }
    }

    prop_compose! {
        fn message()(
            kind in prop::sample::select(vec![Kind::Discover, Kind::Offer, Kind::Request, Kind::Ack, Kind::Nak]),
            (xid, mac) in any::<(u32, [u8; 6])>(), ciaddr in address(), yiaddr in address(),
            requested in prop::option::of(address()), server in prop::option::of(address()), mask in prop::option::of(address()),
            routers in prop::collection::vec(address(), 0..4), dns in prop::collection::vec(address(), 0..4),
            (mtu, seconds, t1, t2) in any::<(Option<u16>, Option<u32>, Option<u32>, Option<u32>)>(),
            routes in prop::collection::vec(route(), 0..60),
        ) -> Message {
            Message { kind, xid, mac, ciaddr, yiaddr, requested, server, mask, routers, dns, mtu, seconds, t1, t2, routes }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_reads_as_itself(message in message()) {
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Message::parse(&bytes);
        }

        /// Bytes that are a message almost everywhere get further into the reader.
        #[test]
        fn a_damaged_message_is_read_or_refused(
            message in message(), cut in 0_usize..600, at in 0_usize..600, value: u8,
        ) {
            let mut bytes = message.emit();
            bytes.truncate(cut);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = Message::parse(&bytes);
        }
    }

    #[test]
    fn options_may_stand_in_the_fields_for_names() {
        let mut bytes = Message::new(Kind::Offer, 1, [2; 6]).emit();
        let end = bytes.iter().rposition(|byte| *byte == code::END).unwrap();
        bytes[end..end + 4].copy_from_slice(&[code::OVERLOAD, 1, 3, code::END]);
        bytes[108..113].copy_from_slice(&[code::MTU, 2, 5, 120, code::END]);
        bytes[44..51].copy_from_slice(&[code::SERVER, 4, 10, 0, 0, 1, code::END]);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!((message.mtu, message.server), (Some(1400), Some(Ipv4Addr::new(10, 0, 0, 1))));
    }

    #[test]
    fn a_refusal_says_why() {
        assert_eq!(Message::parse(&[]).unwrap_err().to_string(), "not a DHCP message: too short");
        assert_eq!(Message::parse(&[0; 300]), Err(Malformed("no magic cookie")));
    }
}
