//! Addresses on links.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::AddressMessageBuilder;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};

use crate::error::{created, deleted};
use crate::handle::{Asked, Existing};
use crate::{Error, Handle, LinkId, Teardown};

/// An address to be put on a link, with the prefix of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub network: IpNet,
    pub detection: DuplicateDetection,
}

/// What an IPv6 address waits for before it can be used. IPv4 addresses can be used at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DuplicateDetection {
    /// Nobody else answers to it, which takes a second or more.
    #[default]
    Wait,
    /// The same, but it may be used meanwhile. The kernel heeds it only where `optimistic_dad` or `use_optimistic` is set.
    Optimistic,
    /// Nothing: for addresses that something else keeps unique.
    Skip,
}

impl Address {
    pub fn new(network: IpNet) -> Self {
        Self { network, detection: DuplicateDetection::default() }
    }

    #[must_use]
    pub fn detection(self, detection: DuplicateDetection) -> Self {
        Self { detection, ..self }
    }
}

/// Whether an address can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Usable,
    /// Not yet: duplicate detection is under way, or waits for a carrier.
    Tentative,
    /// Never: somebody else has it.
    Duplicate,
}

/// An address as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressState {
    pub link: u32,
    pub network: IpNet,
    /// It stays until it is deleted; others were learnt, and expire.
    pub permanent: bool,
    pub readiness: Readiness,
    /// It is valid on this link alone, such as those of `fe80::/10`.
    pub link_local: bool,
}

impl Handle {
    pub async fn add_address(&self, link: impl Into<LinkId>, address: Address) -> Result<(), Error> {
        let link = link.into();
        let index = self.index_of(link.clone()).await?;
        let message = RouteNetlinkMessage::NewAddress(message(index, address));
        self.ask(asked("adding address", address.network, &link), message, Existing::Refuse.flags())
            .await
            .map(drop)
    }

    /// Adds the address unless it is there; says whether it was added. The same address with another prefix is an error.
    pub async fn ensure_address(&self, link: impl Into<LinkId>, address: Address) -> Result<bool, Error> {
        let link = link.into();
        if created(self.add_address(link.clone(), address).await)? {
            return Ok(true);
        }
        let there = self.addresses(link.clone()).await?;
        match there.iter().find(|there| there.network.addr() == address.network.addr()) {
            Some(there) if there.network != address.network => Err(Error::Different {
                object: format!("address {} on link {link}", address.network.addr()),
                namespace: self.namespace().name().to_owned(),
                wanted: address.network.to_string(),
                found: there.network.to_string(),
            }),
            _ => Ok(false),
        }
    }

    pub async fn delete_address(&self, link: impl Into<LinkId>, network: IpNet) -> Result<(), Error> {
        let link = link.into();
        let index = self.index_of(link.clone()).await?;
        let message = RouteNetlinkMessage::DelAddress(message(index, Address::new(network)));
        self.ask(asked("deleting address", network, &link), message, 0).await.map(drop)
    }

    /// Deletes the address; says whether it was there. No link, no address.
    pub async fn delete_address_if_exists(
        &self,
        link: impl Into<LinkId>,
        network: IpNet,
    ) -> Result<bool, Error> {
        deleted(self.delete_address(link, network).await)
    }

    /// The addresses of one link, in the kernel's order.
    pub async fn addresses(&self, link: impl Into<LinkId>) -> Result<Vec<AddressState>, Error> {
        let index = self.index_of(link.into()).await?;
        let all = self.all_addresses().await?;
        Ok(all.into_iter().filter(|address| address.link == index).collect())
    }

    /// The addresses of every link of the namespace.
    pub async fn all_addresses(&self) -> Result<Vec<AddressState>, Error> {
        let asked = Asked { operation: "listing", object: "addresses".to_owned() };
        let answers = self.list(asked, RouteNetlinkMessage::GetAddress(AddressMessage::default())).await?;
        let addresses = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => state(&message),
            _ => None,
        });
        Ok(addresses.collect())
    }

    /// Takes every address off a link, the link-local ones too. Goes on past errors and reports them all.
    pub async fn flush_addresses(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        let mut teardown = Teardown::new("flushing addresses");
        for address in self.addresses(link).await? {
            // With the first address of an IPv4 network the others of it go too.
            teardown.step(self.delete_address(address.link, address.network).await);
        }
        teardown.finish()
    }
}

fn asked(operation: &'static str, network: IpNet, link: &LinkId) -> Asked {
    Asked { operation, object: format!("{network} of link {link}") }
}

fn message(index: u32, address: Address) -> AddressMessage {
    let (network, length) = (address.network, address.network.prefix_len());
    let mut message = match network.addr() {
        IpAddr::V4(address) => {
            AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(address, length).build()
        }
        IpAddr::V6(address) => {
            AddressMessageBuilder::<Ipv6Addr>::new().index(index).address(address, length).build()
        }
    };
    let flags = match address.detection {
        DuplicateDetection::Wait => return message,
        DuplicateDetection::Optimistic => AddressFlags::Optimistic,
        DuplicateDetection::Skip => AddressFlags::Nodad,
    };
    if network.addr().is_ipv6() {
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    message
}

fn state(message: &AddressMessage) -> Option<AddressState> {
    let (mut local, mut address, mut flags) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Address(found) => address = Some(*found),
            AddressAttribute::Flags(found) => flags = Some(*found),
            _ => {}
        }
    }
    let has = |wide: AddressFlags, narrow: AddressHeaderFlags| {
        flags.map_or(message.header.flags.contains(narrow), |flags| flags.contains(wide))
    };
    let readiness = if has(AddressFlags::Dadfailed, AddressHeaderFlags::Dadfailed) {
        Readiness::Duplicate
    } else if has(AddressFlags::Tentative, AddressHeaderFlags::Tentative) {
        Readiness::Tentative
    } else {
        Readiness::Usable
    };
    Some(AddressState {
        link: message.header.index,
        // On a point-to-point link `Address` is the other end's, and `Local` ours; elsewhere one of them may be missing.
        network: IpNet::new(local.or(address)?, message.header.prefix_len).ok()?,
        permanent: has(AddressFlags::Permanent, AddressHeaderFlags::Permanent),
        readiness,
        link_local: message.header.scope == AddressScope::Link,
    })
}
