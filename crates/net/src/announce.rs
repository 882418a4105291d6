//! Announcements: "this address is at this Ethernet address now", said once to everybody on a link.
//!
//! An IPv4 address is announced by an ARP request for itself (RFC 5227, section 3), an IPv6 address by an unsolicited
//! neighbour advertisement with the override flag (RFC 4861, section 7.2.6). The frame's sender is the announced Ethernet address,
//! so that the bridges on the way learn where it is from the same frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::handle::Asked;
use crate::icmpv6::{send, to_all_nodes};
use crate::{Error, Handle, LinkId, MacAddress};

const ETHERTYPE_ARP: u16 = 0x0806;
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

impl Announcement {
    fn frame(&self) -> Vec<u8> {
        match self.address {
            IpAddr::V4(address) => self.arp(address),
            IpAddr::V6(address) => self.advertisement(address),
        }
    }

    fn arp(&self, address: Ipv4Addr) -> Vec<u8> {
        let mut frame =
            [MacAddress::BROADCAST.0.as_slice(), &self.mac.0, &ETHERTYPE_ARP.to_be_bytes()].concat();
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
        to_all_nodes(self.mac, address, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmpv6::checksum;

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
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(frame[21], 255, "hop limit");
        assert_eq!(frame[58], OVERRIDE, "neither solicited nor a router's");
        // Sender and receiver, length and protocol, and the message with its checksum in it: zero if it is right.
        assert_eq!(checksum(&[&frame[22..54], &[0, 32, 0, 58], &frame[54..]]), 0);
    }
}
