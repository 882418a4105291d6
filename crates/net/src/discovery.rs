//! Neighbour discovery by hand, on a link that has no address of the network that it is on: who is where, and who asks for a router.
//!
//! The socket is bound to the link's own link-local address, which no router forwards to: what is heard was said on the link.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{BindToDevice, Ipv6MulticastHops};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn6, bind, setsockopt, socket,
};
use tokio::net::UdpSocket;

use crate::handle::Asked;
use crate::icmpv6::ALL_ROUTERS;
use crate::{Error, Handle, IpNet, LinkId, MacAddress, Readiness};

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_SOLICITATION: u8 = 133;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// Tells our echoes from those of others.
const IDENTIFIER: [u8; 2] = *b"gw";
/// Neighbour discovery is dropped if it could have come through a router.
const HOPS: i32 = 255;

/// What was heard on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Somebody asks for routers.
    RouterSolicitation,
    /// Somebody says where an address is.
    Neighbour { address: Ipv6Addr, mac: MacAddress },
    /// A router answered to our call.
    Router { address: Ipv6Addr },
}

/// A socket on a link.
#[derive(Debug)]
pub struct Discovery {
    /// One of ICMPv6: the type is that of a socket that sends and receives with addresses.
    socket: UdpSocket,
    index: u32,
    mac: MacAddress,
    address: Ipv6Addr,
}

impl Handle {
    /// Opens a socket on a link that has a link-local address; one that has none yet is not found. Must be called within a tokio
    /// runtime that has I/O enabled.
    pub async fn discovery(&self, link: impl Into<LinkId>) -> Result<Discovery, Error> {
        let link = link.into();
        let asked = || Asked { operation: "listening on", object: format!("link {link}") };
        let found = self.link(link.clone()).await?;
        let addresses = self.addresses(link.clone()).await?;
        let own = addresses.iter().find_map(|address| match address.network {
            IpNet::V6(own) if own.addr().is_unicast_link_local() => {
                (address.readiness == Readiness::Usable).then(|| own.addr())
            }
            _ => None,
        });
        let (Some(own), Some(mac)) = (own, found.mac) else {
            return Err(self.refused(asked(), Errno::EADDRNOTAVAIL));
        };
        let failed = |cause: io::Error| {
            self.refused(asked(), Errno::from_raw(cause.raw_os_error().unwrap_or_default()))
        };
        let opened = self.namespace().run(|| open(&found.name, found.index, own))?;
        let socket = opened.and_then(UdpSocket::from_std).map_err(failed)?;
        Ok(Discovery { socket, index: found.index, mac, address: own })
    }
}

fn open(name: &str, index: u32, own: Ipv6Addr) -> io::Result<std::net::UdpSocket> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
    setsockopt(&socket, BindToDevice, &name.into())?;
    setsockopt(&socket, Ipv6MulticastHops, &HOPS)?;
    bind(socket.as_raw_fd(), &SockaddrIn6::from(SocketAddrV6::new(own, 0, 0, index)))?;
    let socket = std::net::UdpSocket::from(socket);
    socket.join_multicast_v6(&ALL_ROUTERS, index)?;
    Ok(socket)
}

impl Discovery {
    /// The link's own link-local address.
    pub fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// The link's own Ethernet address.
    pub fn mac(&self) -> MacAddress {
        self.mac
    }

    /// Asks where an address is.
    pub async fn ask(&self, address: Ipv6Addr) -> io::Result<()> {
        let mut message = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        message.extend(address.octets());
        message.extend([SOURCE_LINK_LAYER_ADDRESS, 1]);
        message.extend(self.mac.0);
        self.send(solicited_node(address), &message).await
    }

    /// Asks all routers to say that they are there.
    pub async fn call_routers(&self) -> io::Result<()> {
        let mut message = vec![ECHO_REQUEST, 0, 0, 0];
        message.extend(IDENTIFIER);
        message.extend([0, 1]);
        self.send(ALL_ROUTERS, &message).await
    }

    async fn send(&self, to: Ipv6Addr, message: &[u8]) -> io::Result<()> {
        // The kernel adds the checksum.
        self.socket.send_to(message, SocketAddrV6::new(to, 0, 0, self.index)).await.map(drop)
    }

    /// The next thing of interest that is heard. May be dropped while it waits.
    pub async fn heard(&self) -> io::Result<Heard> {
        let mut buffer = [0; 1500];
        loop {
            let (length, from) = self.socket.recv_from(&mut buffer).await?;
            let SocketAddr::V6(from) = from else { continue };
            if let Some(heard) = buffer.get(..length).and_then(|message| parse(message, *from.ip())) {
                return Ok(heard);
            }
        }
    }
}

/// The group that a station with this address listens to.
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c))
}

fn parse(message: &[u8], from: Ipv6Addr) -> Option<Heard> {
    match (message.first()?, message.get(1)?) {
        (&ROUTER_SOLICITATION, 0) => Some(Heard::RouterSolicitation),
        (&ECHO_REPLY, 0) if message.get(4..6)? == IDENTIFIER && from.is_unicast_link_local() => {
            Some(Heard::Router { address: from })
        }
        (&NEIGHBOUR_ADVERTISEMENT, 0) => {
            let octets: [u8; 16] = message.get(8..24)?.try_into().ok()?;
            let mac = link_layer_address(message.get(24..)?)?;
            mac.is_station().then(|| Heard::Neighbour { address: octets.into(), mac })
        }
        _ => None,
    }
}

/// Options are a kind, a length in eights of octets, and the rest.
fn link_layer_address(mut options: &[u8]) -> Option<MacAddress> {
    loop {
        let (kind, length) = (*options.first()?, usize::from(*options.get(1)?) * 8);
        // A length of nothing would never end.
        let option = options.get(..length).filter(|option| !option.is_empty())?;
        if kind == TARGET_LINK_LAYER_ADDRESS {
            return option.get(2..8)?.try_into().ok().map(MacAddress);
        }
        options = options.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let router: Ipv6Addr = "fe80::1".parse().unwrap();
        let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
        let mut advertisement = vec![136, 0, 0, 0, 0xe0, 0, 0, 0];
        advertisement.extend(address.octets());
        assert_eq!(parse(&advertisement, address), None, "it does not say where");
        advertisement.extend([14, 1, 0, 0, 0, 0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 7]);
        let mac = MacAddress([2, 0, 0, 0, 0, 7]);
        assert_eq!(parse(&advertisement, address), Some(Heard::Neighbour { address, mac }));
        assert_eq!(parse(&[133, 0, 0, 0, 0, 0, 0, 0], router), Some(Heard::RouterSolicitation));
        assert_eq!(parse(b"\x81\0\0\0gw\0\x01", router), Some(Heard::Router { address: router }));
        assert_eq!(parse(b"\x81\0\0\0gw\0\x01", address), None);
        assert_eq!(parse(b"\x81\0\0\0xx\0\x01", router), None);
        assert_eq!(solicited_node("2001:db8::12:3456".parse().unwrap()).to_string(), "ff02::1:ff12:3456");
    }

    proptest! {
        #[test]
        fn no_message_confuses_the_reader(message: Vec<u8>, from: [u8; 16], kind in 128_u8..138) {
            let message = [vec![kind, 0], message].concat();
            parse(&message, from.into());
        }
    }
}
