//! Links: reading them, changing them, deleting them. Making them is in `create`, reading the kernel's form in `parse`.
//!
//! A link is named by its name or its index, and a request that can name it directly does so: between a look-up and a
//! change the name may come to mean another link.

use std::fmt;
use std::net::IpAddr;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    InfoBridgePort, InfoPortData, InfoPortKind, LinkAttribute, LinkInfo, LinkMessage,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::error::deleted;
use crate::handle::Asked;
use crate::{Error, Handle, MacAddress, Namespace};

mod create;
mod parse;

pub use create::{NewLink, Peer, Vxlan};

/// The longest name of a link, without its terminating null.
const NAME_LENGTH: usize = 15;

/// A link as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub kind: LinkKind,
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    /// It was set up.
    pub up: bool,
    /// It can carry traffic: it is up, and there is something at the other end.
    pub carrier: bool,
    /// The bridge that it is a port of.
    pub master: Option<u32>,
    /// The link that it is built on: of a macvlan or VLAN its parent, of a veth its peer. The index is one of another
    /// namespace if `parent_elsewhere`.
    pub parent: Option<u32>,
    pub parent_elsewhere: bool,
    pub counters: Counters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// The kernel names no kind: loopback and physical links.
    Plain,
    Veth,
    Bridge {
        stp: bool,
        vlan_filtering: bool,
    },
    Macvlan {
        mode: String,
    },
    Vlan {
        id: u16,
    },
    Vxlan {
        vni: u32,
        local: Option<IpAddr>,
        remote: Option<IpAddr>,
        port: u16,
    },
    Dummy,
    Other(String),
}

impl LinkKind {
    /// The kernel's word for it; empty for plain links.
    pub fn name(&self) -> &str {
        match self {
            Self::Plain => "",
            Self::Veth => "veth",
            Self::Bridge { .. } => "bridge",
            Self::Macvlan { .. } => "macvlan",
            Self::Vlan { .. } => "vlan",
            Self::Vxlan { .. } => "vxlan",
            Self::Dummy => "dummy",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |value: &bool| if *value { "on" } else { "off" };
        let end = |end: &Option<IpAddr>| end.map_or_else(|| "anywhere".to_owned(), |end| end.to_string());
        match self {
            Self::Plain => out.write_str("a plain link"),
            Self::Bridge { stp, vlan_filtering } => {
                write!(out, "a bridge (spanning tree {}, VLAN filtering {})", on(stp), on(vlan_filtering))
            }
            Self::Macvlan { mode } => write!(out, "a macvlan in mode {mode}"),
            Self::Vlan { id } => write!(out, "VLAN {id}"),
            Self::Vxlan { vni, local, remote, port } => {
                write!(out, "VXLAN {vni} from {} to {}, port {port}", end(local), end(remote))
            }
            Self::Veth | Self::Dummy | Self::Other(_) => write!(out, "a {} link", self.name()),
        }
    }
}

/// What went through a link since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
}

/// Which link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkId {
    Name(String),
    Index(u32),
}

impl From<&str> for LinkId {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<&String> for LinkId {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<u32> for LinkId {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl From<&Link> for LinkId {
    fn from(link: &Link) -> Self {
        Self::Index(link.index)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Index(index) => write!(out, "with index {index}"),
        }
    }
}

impl LinkId {
    /// A message that names the link.
    fn message(&self) -> Result<LinkMessageBuilder<LinkUnspec>, Error> {
        match self {
            Self::Name(name) => Ok(LinkUnspec::new_with_name(checked_name(name)?)),
            Self::Index(0) => {
                Err(Error::Invalid { object: "a link with index 0".to_owned(), rule: "indices begin at 1" })
            }
            Self::Index(index) => Ok(LinkUnspec::new_with_index(*index)),
        }
    }
}

/// The kernel's rule for names, and one of ours: it would fill in a percent sign's place with a number.
fn checked_name(name: &str) -> Result<&str, Error> {
    let invalid = |rule| Err(Error::Invalid { object: format!("a link called {name:?}"), rule });
    match name {
        "" | "." | ".." => invalid("the name must not be empty or a dot"),
        _ if name.len() > NAME_LENGTH => invalid("the name must not be longer than 15 bytes"),
        _ if name.contains(|c: char| c.is_whitespace() || c.is_control() || "/:%".contains(c)) => {
            invalid("the name must not contain white space, a slash, a colon or a percent sign")
        }
        _ => Ok(name),
    }
}

type Change = LinkMessageBuilder<LinkUnspec>;

impl Handle {
    /// One link.
    pub async fn link(&self, link: impl Into<LinkId>) -> Result<Link, Error> {
        let link = link.into();
        let asked = Asked { operation: "reading link", object: link.to_string() };
        let message = RouteNetlinkMessage::GetLink(link.message()?.build());
        let answers = self.ask(asked.clone(), message, 0).await?;
        parse::links(answers).next().ok_or_else(|| self.refused(asked, nix::errno::Errno::ENODEV))
    }

    /// One link, or nothing if it is not there.
    pub async fn find_link(&self, link: impl Into<LinkId>) -> Result<Option<Link>, Error> {
        match self.link(link).await {
            Err(error) if error.is_not_found() => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Every link of the namespace, loopback among them, in order of their indices.
    pub async fn links(&self) -> Result<Vec<Link>, Error> {
        let asked = Asked { operation: "listing", object: "links".to_owned() };
        let answers = self.list(asked, RouteNetlinkMessage::GetLink(LinkMessage::default())).await?;
        let mut links: Vec<Link> = parse::links(answers).collect();
        links.sort_unstable_by_key(|link| link.index);
        Ok(links)
    }

    pub async fn counters(&self, link: impl Into<LinkId>) -> Result<Counters, Error> {
        self.link(link).await.map(|link| link.counters)
    }

    pub async fn set_up(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        self.change("setting up link", link, Change::up).await
    }

    pub async fn set_down(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        self.change("setting down link", link, Change::down).await
    }

    pub async fn set_mtu(&self, link: impl Into<LinkId>, mtu: u32) -> Result<(), Error> {
        self.change("setting the MTU of link", link, |message| message.mtu(mtu)).await
    }

    pub async fn set_mac(&self, link: impl Into<LinkId>, mac: MacAddress) -> Result<(), Error> {
        self.change("setting the MAC address of link", link, |message| message.address(mac.0.to_vec())).await
    }

    /// Makes the link a port of a bridge, of none other any more.
    pub async fn set_master(&self, link: impl Into<LinkId>, master: impl Into<LinkId>) -> Result<(), Error> {
        let master = self.index_of(master.into()).await?;
        self.change("setting the master of link", link, |message| message.controller(master)).await
    }

    pub async fn set_no_master(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        self.change("taking its master from link", link, Change::nocontroller).await
    }

    /// Whether a bridge takes the sender of what comes in by this port of it to be there. Without it, what is for an address that the
    /// bridge knows at no other port goes to all.
    pub async fn set_learning(&self, port: impl Into<LinkId>, learning: bool) -> Result<(), Error> {
        let settings = InfoPortData::BridgePort(vec![InfoBridgePort::Learning(learning)]);
        let kind = LinkInfo::PortKind(InfoPortKind::Bridge);
        let attribute = LinkAttribute::LinkInfo(vec![kind, LinkInfo::PortData(settings)]);
        let port = port.into();
        // The kernel takes the settings of a port in a request to make the link, which is there already.
        let message = RouteNetlinkMessage::NewLink(port.message()?.append_extra_attribute(attribute).build());
        let asked = Asked { operation: "setting the learning of port", object: port.to_string() };
        self.ask(asked, message, 0).await.map(drop)
    }

    /// Renames a link, also one that is up (Linux 6.3 or later; earlier kernels refuse that).
    pub async fn rename(&self, link: impl Into<LinkId>, name: &str) -> Result<(), Error> {
        checked_name(name)?;
        let index = self.index_of(link.into()).await?;
        self.change("renaming link", index, |message| message.name(name)).await
    }

    /// Moves a link into another namespace, where it arrives down and without addresses.
    pub async fn move_link(&self, link: impl Into<LinkId>, to: &Namespace) -> Result<(), Error> {
        use std::os::fd::AsRawFd as _;

        let link = link.into();
        let message = link.message()?.setns_by_fd(to.as_raw_fd()).build();
        let asked = Asked { operation: "moving to another namespace link", object: link.to_string() };
        self.ask_holding(asked, RouteNetlinkMessage::SetLink(message), 0, vec![to.clone()]).await
    }

    /// Deletes a link; of a veth pair, both ends go.
    pub async fn delete_link(&self, link: impl Into<LinkId>) -> Result<(), Error> {
        let link = link.into();
        let message = RouteNetlinkMessage::DelLink(link.message()?.build());
        let asked = Asked { operation: "deleting link", object: link.to_string() };
        self.ask(asked, message, 0).await.map(drop)
    }

    /// Deletes a link; says whether it was there.
    pub async fn delete_link_if_exists(&self, link: impl Into<LinkId>) -> Result<bool, Error> {
        deleted(self.delete_link(link).await)
    }

    async fn change(
        &self,
        operation: &'static str,
        link: impl Into<LinkId>,
        how: impl FnOnce(Change) -> Change,
    ) -> Result<(), Error> {
        let link = link.into();
        let message = RouteNetlinkMessage::SetLink(how(link.message()?).build());
        self.ask(Asked { operation, object: link.to_string() }, message, 0).await.map(drop)
    }

    /// The index of a link, for requests that cannot name it otherwise.
    pub(crate) async fn index_of(&self, link: LinkId) -> Result<u32, Error> {
        match link {
            LinkId::Index(index) => Ok(index),
            LinkId::Name(_) => self.link(link).await.map(|link| link.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_refuse_or_change_are_refused_here() {
        for name in ["", ".", "..", "a b", "a/b", "a:b", "veth%d", "sixteen-letters!", "a\n"] {
            assert!(matches!(checked_name(name), Err(Error::Invalid { .. })), "{name:?}");
        }
        for name in ["eth0", "eth0.100", "fifteen-letters", "migration0"] {
            assert!(checked_name(name).is_ok(), "{name:?}");
        }
    }
}
