//! The kernel's networking by netlink, one request at a time: what the guest needs of it and no more.
//!
//! Owns the socket and its sequence numbers. Decides nothing.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope, CacheInfo};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, Inet6IfaceFlags, LinkAttribute, LinkFlags, LinkLayerType, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Links, addresses and routes of both versions, and what routers say: the groups of `RTMGRP_*`.
const CHANGES: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 0x800;

#[derive(Debug, thiserror::Error)]
#[error("the kernel refused to {operation}")]
pub struct Error {
    pub operation: String,
    #[source]
    pub cause: io::Error,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u32,
    pub up: bool,
    /// A router said that addresses come by DHCPv6.
    pub managed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub to: IpNet,
    pub via: Option<IpAddr>,
}

/// How long an address may be used: both 0 for the IPv4 address that is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    pub preferred: u32,
    pub valid: u32,
}

#[derive(Debug)]
pub struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            Ok(Self { socket, sequence: 0 })
        };
        open().map_err(|cause| Error { operation: "open a netlink socket".to_owned(), cause })
    }

    /// The network cards: Ethernet, and not the loopback.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.request("list links", message, NLM_F_DUMP)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => link(message),
            _ => None,
        });
        Ok(links.collect())
    }

    /// Which link has which address.
    pub fn addresses(&mut self) -> Result<Vec<(u32, IpNet)>, Error> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.request("list addresses", message, NLM_F_DUMP)?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => address(&message),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Which link has which route of the main table.
    pub fn routes(&mut self) -> Result<Vec<(u32, Route)>, Error> {
        let message = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let answers = self.request("list routes", message, NLM_F_DUMP)?;
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => route(&message),
            _ => None,
        });
        Ok(routes.collect())
    }

    pub fn set_up(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.command(&format!("bring link {index} up"), RouteNetlinkMessage::SetLink(message), 0)
    }

    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::Mtu(mtu)];
        let operation = format!("set the MTU of link {index} to {mtu}");
        self.command(&operation, RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Adds an address, or sets the lifetime of one that is there.
    pub fn set_address(&mut self, index: u32, address: IpNet, lifetime: Lifetime) -> Result<(), Error> {
        let mut message = address_message(index, address);
        let mut lifetimes = CacheInfo::default();
        lifetimes.ifa_preferred = lifetime.preferred;
        lifetimes.ifa_valid = lifetime.valid;
        message.attributes.push(AddressAttribute::CacheInfo(lifetimes));
        if let IpNet::V4(network) = address {
            message.attributes.push(AddressAttribute::Broadcast(network.broadcast()));
        }
        let operation = format!("give link {index} the address {address}");
        self.command(&operation, RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    pub fn delete_address(&mut self, index: u32, address: IpNet) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelAddress(address_message(index, address));
        self.command(&format!("take the address {address} off link {index}"), message, 0)
    }

    /// Adds or replaces a route; of two links with the same route, the one with the lower index wins.
    pub fn set_route(&mut self, index: u32, route: Route) -> Result<(), Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(route.to.addr());
        message.header.destination_prefix_length = route.to.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Dhcp;
        message.header.kind = RouteType::Unicast;
        message.header.scope = if route.via.is_some() { RouteScope::Universe } else { RouteScope::Link };
        message.attributes = vec![
            RouteAttribute::Destination(route.to.network().into()),
            RouteAttribute::Oif(index),
            RouteAttribute::Priority(1000 + index),
        ];
        message.attributes.extend(route.via.map(|via| RouteAttribute::Gateway(via.into())));
        let operation = format!("route {} over link {index}", route.to);
        self.command(&operation, RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn command(&mut self, operation: &str, message: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.request(operation, message, NLM_F_ACK | flags).map(drop)
    }

    fn request(
        &mut self,
        operation: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        self.exchange(message, flags).map_err(|cause| Error { operation: operation.to_owned(), cause })
    }

    fn exchange(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause.to_string()))?;
                // Each message begins at a multiple of four.
                let length = usize::try_from(answer.header.length).unwrap_or(usize::MAX);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue; // of a request that was given up
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }
}

/// A socket that becomes readable when something of the network changed.
pub fn changes() -> Result<Socket, Error> {
    let open = || {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, CHANGES))?;
        socket.set_non_blocking(true)?;
        Ok(socket)
    };
    open().map_err(|cause| Error { operation: "watch the network".to_owned(), cause })
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.scope = AddressScope::Universe;
    message.header.index = index;
    message.attributes =
        vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    message
}

fn link(message: LinkMessage) -> Option<Link> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        managed: false,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().ok()?,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::AfSpecUnspec(specs) => link.managed = managed(&specs),
            _ => {}
        }
    }
    Some(link)
}

fn managed(specs: &[AfSpecUnspec]) -> bool {
    specs.iter().any(|spec| match spec {
        AfSpecUnspec::Inet6(values) => values.iter().any(
            |value| matches!(value, AfSpecInet6::Flags(flags) if flags.contains(Inet6IfaceFlags::RaManaged)),
        ),
        _ => false,
    })
}

fn address(message: &AddressMessage) -> Option<(u32, IpNet)> {
    let found = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| message.attributes.iter().find_map(wanted);
    // IPv4 has both, and the local one is the address; IPv6 has only the other.
    let local = found(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        found(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    Some((message.header.index, IpNet::new(address, message.header.prefix_len).ok()?))
}

fn route(message: &RouteMessage) -> Option<(u32, Route)> {
    let header = &message.header;
    if header.table != RouteHeader::RT_TABLE_MAIN || header.kind != RouteType::Unicast {
        return None;
    }
    let nowhere = match header.address_family {
        AddressFamily::Inet => IpAddr::from([0; 4]),
        AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let (mut link, mut to, mut via) = (None, nowhere, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => link = Some(*index),
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Gateway(address) => via = Some(ip(address)?),
            _ => {}
        }
    }
    Some((link?, Route { to: IpNet::new(to, header.destination_prefix_length).ok()?, via }))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lists_can_be_read() {
        let mut kernel = Kernel::open().unwrap();
        kernel.links().unwrap();
        let addresses = kernel.addresses().unwrap();
        let loopback: IpNet = "127.0.0.1/8".parse().unwrap();
        assert!(addresses.iter().any(|(_, address)| *address == loopback), "{addresses:?}");
        kernel.routes().unwrap();
    }

    #[test]
    fn a_refusal_names_the_operation() {
        let mut kernel = Kernel::open().unwrap();
        let error = kernel.set_mtu(u32::MAX / 2, 1500).unwrap_err();
        assert_eq!(error.to_string(), "the kernel refused to set the MTU of link 2147483647 to 1500");
    }
}
