//! DHCPv6 messages as bytes. Pure; reads whatever comes from the network and never panics.
//!
//! Invariant: a message that was written reads as itself.

use std::net::Ipv6Addr;

pub const CLIENT_PORT: u16 = 546;
pub const SERVER_PORT: u16 = 547;

mod code {
    pub const CLIENT: u16 = 1;
    pub const SERVER: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const ADDRESS: u16 = 5;
    pub const WANTED: u16 = 6;
    pub const ELAPSED: u16 = 8;
    pub const STATUS: u16 = 13;
    pub const DNS: u16 = 23;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Solicit = 1,
    Advertise = 2,
    Request = 3,
    Renew = 5,
    Rebind = 6,
    Reply = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub address: Ipv6Addr,
    pub preferred: u32,
    pub valid: u32,
}

/// An identity association for addresses, of which this client wants one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    pub id: u32,
    pub t1: u32,
    pub t2: u32,
    pub address: Option<Address>,
    /// 0 is success.
    pub status: u16,
}

/// The parts of a message that a client sends or looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// 24 bits.
    pub xid: u32,
    pub client: Vec<u8>,
    pub server: Option<Vec<u8>>,
    pub association: Option<Association>,
    pub dns: Vec<Ipv6Addr>,
    pub status: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a DHCPv6 message: {0}")]
pub struct Malformed(&'static str);

impl Message {
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let [kind, high, middle, low, options @ ..] = bytes else { return Err(Malformed("too short")) };
        let kind = match kind {
            1 => Kind::Solicit,
            2 => Kind::Advertise,
            3 => Kind::Request,
            5 => Kind::Renew,
            6 => Kind::Rebind,
            7 => Kind::Reply,
            _ => return Err(Malformed("of no kind that a client knows")),
        };
        let xid = u32::from_be_bytes([0, *high, *middle, *low]);
        let mut message = Self {
            kind,
            xid,
            client: Vec::new(),
            server: None,
            association: None,
            dns: Vec::new(),
            status: 0,
        };
        for (code, value) in Options(options) {
            match code {
                code::CLIENT => message.client = value.to_vec(),
                code::SERVER => message.server = Some(value.to_vec()),
                code::IA_NA => message.association = read_association(value).or(message.association),
                code::STATUS => message.status = read_status(value),
                code::DNS => {
                    message.dns = value.as_chunks::<16>().0.iter().map(|octets| (*octets).into()).collect();
                }
                _ => {}
            }
        }
        Ok(message)
    }

    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.xid.to_be_bytes().to_vec();
        bytes[0] = self.kind as u8;
        put(&mut bytes, code::CLIENT, &self.client);
        if let Some(server) = &self.server {
            put(&mut bytes, code::SERVER, server);
        }
        if let Some(association) = &self.association {
            put(&mut bytes, code::IA_NA, &write_association(association));
        }
        if !self.dns.is_empty() {
            let dns: Vec<u8> = self.dns.iter().flat_map(Ipv6Addr::octets).collect();
            put(&mut bytes, code::DNS, &dns);
        }
        if self.status != 0 {
            put(&mut bytes, code::STATUS, &self.status.to_be_bytes());
        }
        if !matches!(self.kind, Kind::Advertise | Kind::Reply) {
            put(&mut bytes, code::WANTED, &code::DNS.to_be_bytes());
            // Only relays with several servers look at how long a client has waited.
            put(&mut bytes, code::ELAPSED, &[0, 0]);
        }
        bytes
    }
}

/// Options one after another, up to the first that is cut off.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [a, b, c, d, rest @ ..] = self.0 else { return None };
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))?;
        self.0 = rest;
        Some((u16::from_be_bytes([*a, *b]), value))
    }
}

fn put(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    bytes.extend(code.to_be_bytes());
    bytes.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend(value);
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_status(value: &[u8]) -> u16 {
    value.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

fn read_association(value: &[u8]) -> Option<Association> {
    let (id, t1, t2) = (word(value, 0)?, word(value, 4)?, word(value, 8)?);
    let mut association = Association { id, t1, t2, address: None, status: 0 };
    for (code, value) in Options(&value[12..]) {
        match code {
            code::ADDRESS => association.address = association.address.or_else(|| read_address(value)),
            code::STATUS => association.status = read_status(value),
            _ => {}
        }
    }
    Some(association)
}

fn read_address(value: &[u8]) -> Option<Address> {
    let address: [u8; 16] = *value.first_chunk()?;
    Some(Address { address: address.into(), preferred: word(value, 16)?, valid: word(value, 20)? })
}

fn write_association(association: &Association) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [association.id, association.t1, association.t2] {
        bytes.extend(word.to_be_bytes());
    }
    if let Some(address) = association.address {
        let mut value = address.address.octets().to_vec();
        value.extend(address.preferred.to_be_bytes());
        value.extend(address.valid.to_be_bytes());
        put(&mut bytes, code::ADDRESS, &value);
    }
    if association.status != 0 {
        put(&mut bytes, code::STATUS, &association.status.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Ipv6Addr> {
        any::<[u8; 16]>().prop_map(Ipv6Addr::from)
    }

    prop_compose! {
        fn association()(
            (id, t1, t2, status) in any::<(u32, u32, u32, u16)>(), given in any::<bool>(),
            address in address(), (preferred, valid) in any::<(u32, u32)>(),
        ) -> Association {
            let address = given.then_some(Address { address, preferred, valid });
            Association { id, t1, t2, address, status }
        }
    }

    prop_compose! {
        fn message()(
            kind in prop::sample::select(vec![Kind::Solicit, Kind::Advertise, Kind::Request, Kind::Renew, Kind::Rebind, Kind::Reply]),
            xid in 0_u32..1 << 24, client in prop::collection::vec(any::<u8>(), 0..20),
            server in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
            association in prop::option::of(association()), dns in prop::collection::vec(address(), 0..4), status: u16,
        ) -> Message {
            Message { kind, xid, client, server, association, dns, status }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_reads_as_itself(message in message()) {
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Message::parse(&bytes);
        }

        #[test]
        fn a_damaged_message_is_read_or_refused(
            message in message(), cut in 0_usize..200, at in 0_usize..200, value: u8,
        ) {
            let mut bytes = message.emit();
            bytes.truncate(cut);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = Message::parse(&bytes);
        }
    }
}
