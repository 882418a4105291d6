//! Neighbours: which Ethernet address an IP address has on a link.

use std::net::IpAddr;

use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage, NeighbourState as KernelState,
};
use rtnetlink::packet_route::route::RouteType;
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::deleted;
use crate::handle::{Asked, Existing};
use crate::{Error, Handle, LinkId, MacAddress};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub address: IpAddr,
    /// Not known yet, or nobody answered.
    pub mac: Option<MacAddress>,
    pub state: NeighbourState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// Set by hand; neither asked for nor forgotten.
    Permanent,
    /// Known, and confirmed lately.
    Reachable,
    /// Known, and to be confirmed when it is next used (stale), or being confirmed (delay, probe).
    Unconfirmed,
    /// Being asked for.
    Incomplete,
    /// Nobody answered.
    Failed,
}

impl Handle {
    /// Says once and for all which Ethernet address an IP address has on a link, whatever was known of it before.
    pub async fn set_neighbour(
        &self,
        link: impl Into<LinkId>,
        address: IpAddr,
        mac: MacAddress,
    ) -> Result<(), Error> {
        let link = link.into();
        let mut message = message(self.index_of(link.clone()).await?, address);
        message.header.state = KernelState::Permanent;
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        let asked =
            Asked { operation: "setting neighbour", object: format!("{address} at {mac} on link {link}") };
        self.ask(asked, RouteNetlinkMessage::NewNeighbour(message), Existing::Replace.flags()).await.map(drop)
    }

    pub async fn delete_neighbour(&self, link: impl Into<LinkId>, address: IpAddr) -> Result<(), Error> {
        let link = link.into();
        let message = message(self.index_of(link.clone()).await?, address);
        let asked = Asked { operation: "deleting neighbour", object: format!("{address} on link {link}") };
        self.ask(asked, RouteNetlinkMessage::DelNeighbour(message), 0).await.map(drop)
    }

    /// Deletes the neighbour; says whether it was there.
    pub async fn delete_neighbour_if_exists(
        &self,
        link: impl Into<LinkId>,
        address: IpAddr,
    ) -> Result<bool, Error> {
        deleted(self.delete_neighbour(link, address).await)
    }

    /// The neighbours on a link, without the groups that the kernel keeps there too.
    pub async fn neighbours(&self, link: impl Into<LinkId>) -> Result<Vec<Neighbour>, Error> {
        let index = self.index_of(link.into()).await?;
        let asked = Asked { operation: "listing", object: "neighbours".to_owned() };
        let answers =
            self.list(asked, RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default())).await?;
        let neighbours = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewNeighbour(message) if message.header.ifindex == index => parse(&message),
            _ => None,
        });
        Ok(neighbours.collect())
    }
}

fn message(index: u32, address: IpAddr) -> NeighbourMessage {
    let (family, destination) = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    let mut message = NeighbourMessage::default();
    message.header =
        NeighbourHeader { family, ifindex: index, kind: RouteType::Unspec, ..NeighbourHeader::default() };
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

fn parse(message: &NeighbourMessage) -> Option<Neighbour> {
    let state = match message.header.state {
        KernelState::Permanent => NeighbourState::Permanent,
        KernelState::Reachable => NeighbourState::Reachable,
        KernelState::Stale | KernelState::Delay | KernelState::Probe => NeighbourState::Unconfirmed,
        KernelState::Incomplete => NeighbourState::Incomplete,
        KernelState::Failed => NeighbourState::Failed,
        _ => return None,
    };
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(found)) => {
                address = Some(IpAddr::V4(*found));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => {
                address = Some(IpAddr::V6(*found));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = bytes.as_slice().try_into().ok().map(MacAddress);
            }
            _ => {}
        }
    }
    Some(Neighbour { address: address?, mac, state })
}
