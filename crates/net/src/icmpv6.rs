//! Frames of neighbour discovery (RFC 4861), which are sent out of a link as they are. Pure, but for the sending.

use std::net::Ipv6Addr;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrLike, sendto, socket};

use crate::MacAddress;

pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const ALL_NODES_MAC: MacAddress = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
const ETHERTYPE_IPV6: u16 = 0x86dd;
const NEXT_HEADER_ICMPV6: u8 = 58;

/// A message to everybody on the link, from an address that need not be the link's own. Its checksum is filled in; its length is even.
pub(crate) fn to_all_nodes(sender: MacAddress, source: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let protocol = [0, 0, 0, NEXT_HEADER_ICMPV6];
    let sum = checksum(&[&source.octets(), &ALL_NODES.octets(), &[0, 0], &length, &protocol, &message])
        .to_be_bytes();
    message[2..4].copy_from_slice(&sum);

    let mut frame = [ALL_NODES_MAC.0.as_slice(), &sender.0, &ETHERTYPE_IPV6.to_be_bytes()].concat();
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length);
    frame.extend([NEXT_HEADER_ICMPV6, 255]); // receivers drop what could have come through a router
    frame.extend(source.octets());
    frame.extend(ALL_NODES.octets());
    frame.extend(message);
    frame
}

/// Sends a frame, to which the kernel adds nothing: the socket is made in the namespace of the calling thread.
pub(crate) fn send(index: u32, frame: &[u8]) -> Result<(), Errno> {
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

/// The Internet checksum over parts of even length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts
        .iter()
        .flat_map(|part| part.chunks_exact(2))
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = ((folded & 0xffff) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}
