//! Router advertisements (RFC 4861, section 4.2) on behalf of a router that does not advertise itself.
//!
//! The one told of it takes the sender's address for its default router, and asks for that by neighbour discovery: the Ethernet
//! address is not in the message, so that only the router itself can answer. Addresses come from DHCPv6, and from nowhere else.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::handle::Asked;
use crate::icmpv6::{send, to_all_nodes};
use crate::{Error, Handle, LinkId, MacAddress};

const ROUTER_ADVERTISEMENT: u8 = 134;
const HOP_LIMIT: u8 = 64;
/// Addresses, and all else, come from DHCPv6.
const MANAGED_AND_OTHER: u8 = 0x80 | 0x40;
const MTU: u8 = 5;
const PREFIX: u8 = 3;
/// And not for addresses that a machine makes up itself.
const ON_LINK: u8 = 0x80;
const FOR_EVER: [u8; 4] = [0xff; 4];

/// What is said of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// Its link-local address.
    pub router: Ipv6Addr,
    /// Seconds for which it is a default router; 0: it is none.
    pub lifetime: u16,
    /// Whose addresses are on the link.
    pub prefix: Option<Ipv6Net>,
    pub mtu: Option<u32>,
    /// Whom the frame is from.
    pub sender: MacAddress,
}

impl Handle {
    /// Sends the advertisement once, to everybody who is at the other end of a link that is up.
    pub async fn advertise_router(
        &self,
        link: impl Into<LinkId>,
        advertisement: &RouterAdvertisement,
    ) -> Result<(), Error> {
        let (link, router) = (link.into(), advertisement.router);
        let asked = Asked { operation: "advertising", object: format!("router {router} on link {link}") };
        if !router.is_unicast_link_local() || !advertisement.sender.is_station() {
            let object = format!("advertising router {router}");
            return Err(Error::Invalid { object, rule: "a router is named by its link-local address" });
        }
        let index = self.index_of(link).await?;
        let sent = self.namespace().run(|| send(index, &advertisement.frame()))?;
        sent.map_err(|errno| self.refused(asked, errno))
    }
}

impl RouterAdvertisement {
    fn frame(&self) -> Vec<u8> {
        let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, MANAGED_AND_OTHER];
        message.extend(self.lifetime.to_be_bytes());
        message.extend([0; 8]); // how long neighbours are believed is left to the receiver
        if let Some(mtu) = self.mtu {
            message.extend([MTU, 1, 0, 0]);
            message.extend(mtu.to_be_bytes());
        }
        if let Some(prefix) = self.prefix {
            message.extend([PREFIX, 4, prefix.prefix_len(), ON_LINK]);
            message.extend([FOR_EVER, FOR_EVER, [0; 4]].concat());
            message.extend(prefix.network().octets());
        }
        to_all_nodes(self.sender, self.router, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmpv6::checksum;

    #[test]
    fn an_advertisement_says_what_it_should_and_adds_up() {
        let advertisement = RouterAdvertisement {
            router: "fe80::1".parse().unwrap(),
            lifetime: 1800,
            prefix: Some("2001:db8::5/64".parse().unwrap()),
            mtu: Some(1450),
            sender: MacAddress([2, 0, 0, 0, 0, 1]),
        };
        let frame = advertisement.frame();
        let message = &frame[54..];
        assert_eq!(message[..2], [134, 0]);
        assert_eq!(message[4..16], [64, 0xc0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(message[16..24], [5, 1, 0, 0, 0, 0, 0x05, 0xaa]);
        assert_eq!(message[24..28], [3, 4, 64, 0x80]);
        assert_eq!(message[40..], [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(frame[21], 255, "hop limit");
        let length = u8::try_from(message.len()).unwrap();
        assert_eq!(checksum(&[&frame[22..54], &[0, length, 0, 58], message]), 0);
    }
}
