//! Announcements: "this address is at this Ethernet address now", said once to everybody on a link.
//!
//! An IPv4 address is announced by an ARP request for itself (RFC 5227, section 3), an IPv6 address by an unsolicited
//! neighbour advertisement with the override flag (RFC 4861, section 7.2.6). The frame's sender is the announced Ethernet address,
//! so that the bridges on the way learn where it is from the same frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, socket};

use crate::handle::Asked;
use crate::{Error, Handle, LinkId, MacAddress};

const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
const NEXT_HEADER_ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// What is announced. The address need not be one of the link's own: a VM's never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    pub address: IpAddr,
    pub mac: MacAddress,
}

impl Handle {
    /// Sends the announcement once, out of a link that is up.
    pub async fn announce(&self, link: impl Into<LinkId>, announcement: Announcement) -> Result<(), Error> {
        let link = link.into();
        let Announcement { address, mac } = announcement;
        let asked = Asked { operation: "announcing", object: format!("{address} at {mac} on link {link}") };
        if address.is_unspecified() || address.is_multicast() || !mac.is_station() {
            let object = format!("announcing {address} at {mac}");
            return Err(Error::Invalid { object, rule: "both must be the addresses of one station" });
        }
        let index = self.index_of(link).await?;
        let sent = self.namespace().run(|| send(index, &announcement.frame()))?;
        sent.map_err(|errno| self.refused(asked, errno))
    }
}

/// A frame of which the kernel adds nothing: the socket is made in the namespace of the calling thread.
fn send(index: u32, frame: &[u8]) -> Result<(), Errno> {
    // Protocol 0: the socket only sends, and is never given what others send.
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    sendto(socket.as_raw_fd(), frame, &link_address(index)?, MsgFlags::empty()).map(drop)
}

fn link_address(index: u32) -> Result<LinkAddr, Errno> {
    let raw = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(|_| Errno::EAFNOSUPPORT)?,
        sll_protocol: 0,
        sll_ifindex: i32::try_from(index).map_err(|_| Errno::ENODEV)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6, // the address itself is in the frame
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&raw)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the pointer and the length are those of `raw`, which is a whole `sockaddr_ll` with the family that says so,
    // and outlives the call, which copies it.
    #[allow(unsafe_code, reason = "no safe way to name a link to a packet socket exists in nix or std")]
    let address = unsafe { LinkAddr::from_raw((&raw const raw).cast(), Some(length)) };
    address.ok_or(Errno::EINVAL)
}

impl Announcement {
    fn frame(&self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(address) => self.arp(address),
            IpAddr::V6(address) => self.advertisement(address),
        }
    }

    fn ethernet(&self, to: MacAddress, ethertype: u16) -> Vec<u8> {
        [to.0.as_slice(), &self.mac.0, &ethertype.to_be_bytes()].concat()
    }

    fn arp(&self, address: Ipv4Addr) -> Vec<u8> {
        let mut frame = self.ethernet(MacAddress::BROADCAST, ETHERTYPE_ARP);
        frame.extend([0, 1, 8, 0, 6, 4, 0, 1]); // Ethernet, IPv4, their lengths, request
        frame.extend(self.mac.0);
        frame.extend(address.octets());
        frame.extend([0; 6]);
        frame.extend(address.octets());
        frame
    }

    fn advertisement(&self, address: Ipv6Addr) -> Vec<u8> {
        let mut message = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
        message.extend(address.octets());
        message.extend([TARGET_LINK_LAYER_ADDRESS, 1]);
        message.extend(self.mac.0);
        let length = [0, u8::try_from(message.len()).unwrap_or(u8::MAX)];
        let sum = checksum(&[
            &address.octets(),
            &ALL_NODES.octets(),
            &[0, 0],
            &length,
            &[0, 0, 0, NEXT_HEADER_ICMPV6],
            &message,
        ]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());

        let mut frame = self.ethernet(ALL_NODES_MAC, ETHERTYPE_IPV6);
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(length);
        frame.extend([NEXT_HEADER_ICMPV6, 255]); // receivers drop what could have come through a router
        frame.extend(address.octets());
        frame.extend(ALL_NODES.octets());
        frame.extend(message);
        frame
    }
}

/// The Internet checksum over parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts
        .iter()
        .flat_map(|part| part.chunks_exact(2))
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = ((folded & 0xffff) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x2a]);

    #[test]
    fn an_arp_announcement_asks_everybody_for_the_address_itself() {
        let frame = Announcement { address: "192.0.2.7".parse().unwrap(), mac: MAC }.frame();
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0x2a, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0,
            0, 0, 0x2a, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 192, 0, 2, 7,
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn an_advertisement_has_a_checksum_that_adds_up() {
        let frame = Announcement { address: "2001:db8::7".parse().unwrap(), mac: MAC }.frame();
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(frame[..6], ALL_NODES_MAC.0);
        assert_eq!(frame[21], 255, "hop limit");
        assert_eq!(frame[58], OVERRIDE, "neither solicited nor a router's");
        // Sender and receiver, length and protocol, and the message with its checksum in it: zero if it is right.
        assert_eq!(checksum(&[&frame[22..54], &[0, 32, 0, 58], &frame[54..]]), 0);
    }
}
