//! Making links.
//!
//! A link is made with all its properties in one request, its peer in the peer's namespace, so that there is no moment at
//! which it is half made or in the wrong place. What the kernel cannot do by that request, it is told to do by a second one; if
//! that fails, the link is deleted again.

use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, InfoVxlan, LinkMessage,
    MacVlanMode,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use super::{Link, LinkId, LinkKind, checked_name};
use crate::handle::{Asked, Existing};
use crate::{Error, Handle, MacAddress, Namespace};

/// A link to be made.
#[derive(Debug, Clone)]
pub struct NewLink {
    end: Peer,
    spec: Spec,
    master: Option<LinkId>,
}

/// One end of a veth pair, or the only end of another link.
#[derive(Debug, Clone)]
pub struct Peer {
    name: String,
    namespace: Option<Namespace>,
    mac: Option<MacAddress>,
    mtu: Option<u32>,
    up: bool,
}

/// What a VXLAN link is made of.
#[derive(Debug, Clone)]
pub struct Vxlan {
    pub vni: u32,
    pub local: IpAddr,
    /// The one other end, or the multicast group of all.
    pub remote: Option<IpAddr>,
    pub port: u16,
    /// The link that its packets leave by; needed for a multicast group.
    pub parent: Option<LinkId>,
}

#[derive(Debug, Clone)]
enum Spec {
    Veth(Peer),
    Bridge { vlan_filtering: bool },
    Macvlan { parent: LinkId },
    Vlan { parent: LinkId, id: u16 },
    Vxlan(Vxlan),
    Dummy,
}

impl Peer {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), namespace: None, mac: None, mtu: None, up: false }
    }

    /// The namespace that it is made in; without this, that of the handle.
    #[must_use]
    pub fn namespace(self, namespace: &Namespace) -> Self {
        Self { namespace: Some(namespace.clone()), ..self }
    }

    #[must_use]
    pub fn mac(self, mac: MacAddress) -> Self {
        Self { mac: Some(mac), ..self }
    }

    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu: Some(mtu), ..self }
    }

    #[must_use]
    pub fn up(self) -> Self {
        Self { up: true, ..self }
    }

    fn message(&self) -> Result<LinkMessageBuilder<LinkUnspec>, Error> {
        let mut message = LinkUnspec::new_with_name(checked_name(&self.name)?);
        if let Some(namespace) = &self.namespace {
            message = message.setns_by_fd(namespace.as_raw_fd());
        }
        if let Some(mac) = self.mac {
            if !mac.is_station() {
                let rule = "an interface's MAC address must not be a group's and not be all zeros";
                return Err(Error::Invalid { object: format!("link {} with {mac}", self.name), rule });
            }
            message = message.address(mac.0.to_vec());
        }
        if let Some(mtu) = self.mtu {
            message = message.mtu(mtu);
        }
        Ok(if self.up { message.up() } else { message })
    }
}

impl NewLink {
    fn new(name: &str, spec: Spec) -> Self {
        Self { end: Peer::new(name), spec, master: None }
    }

    /// A pair of links; what enters one leaves the other.
    pub fn veth(name: &str, peer: Peer) -> Self {
        Self::new(name, Spec::Veth(peer))
    }

    /// A bridge without spanning tree, so that its ports forward at once.
    pub fn bridge(name: &str) -> Self {
        Self::new(name, Spec::Bridge { vlan_filtering: false })
    }

    /// A bridge that keeps VLANs apart.
    pub fn vlan_bridge(name: &str) -> Self {
        Self::new(name, Spec::Bridge { vlan_filtering: true })
    }

    /// A link with a MAC address of its own on `parent`; those of one parent reach each other, not the parent itself.
    pub fn macvlan(name: &str, parent: impl Into<LinkId>) -> Self {
        Self::new(name, Spec::Macvlan { parent: parent.into() })
    }

    pub fn vlan(name: &str, parent: impl Into<LinkId>, id: u16) -> Self {
        Self::new(name, Spec::Vlan { parent: parent.into(), id })
    }

    pub fn vxlan(name: &str, vxlan: Vxlan) -> Self {
        Self::new(name, Spec::Vxlan(vxlan))
    }

    /// A link that leads nowhere and can hold addresses. On a kernel without dummy links it is a bridge without ports,
    /// which has no carrier: IPv6 addresses on it need [`DuplicateDetection::Skip`](crate::DuplicateDetection).
    pub fn dummy(name: &str) -> Self {
        Self::new(name, Spec::Dummy)
    }

    /// The namespace that the link is made in; its parent is still one of the handle's namespace.
    #[must_use]
    pub fn namespace(self, namespace: &Namespace) -> Self {
        Self { end: self.end.namespace(namespace), ..self }
    }

    #[must_use]
    pub fn mac(self, mac: MacAddress) -> Self {
        Self { end: self.end.mac(mac), ..self }
    }

    #[must_use]
    pub fn mtu(self, mtu: u32) -> Self {
        Self { end: self.end.mtu(mtu), ..self }
    }

    #[must_use]
    pub fn up(self) -> Self {
        Self { end: self.end.up(), ..self }
    }

    /// The bridge that it becomes a port of. Only for a link that stays in the handle's namespace.
    #[must_use]
    pub fn master(self, master: impl Into<LinkId>) -> Self {
        Self { master: Some(master.into()), ..self }
    }

    pub fn name(&self) -> &str {
        &self.end.name
    }

    fn asked(&self) -> Asked {
        Asked { operation: self.spec.operation(), object: self.end.name.clone() }
    }

    fn held(&self) -> Vec<Namespace> {
        let peer = if let Spec::Veth(peer) = &self.spec { peer.namespace.clone() } else { None };
        self.end.namespace.iter().cloned().chain(peer).collect()
    }
}

impl Spec {
    fn operation(&self) -> &'static str {
        match self {
            Self::Veth(_) => "creating veth",
            Self::Bridge { .. } => "creating bridge",
            Self::Macvlan { .. } => "creating macvlan",
            Self::Vlan { .. } => "creating VLAN",
            Self::Vxlan(_) => "creating VXLAN",
            Self::Dummy => "creating dummy",
        }
    }

    /// What the kernel will call it.
    fn kind(&self) -> LinkKind {
        match self {
            Self::Veth(_) => LinkKind::Veth,
            Self::Bridge { vlan_filtering } => {
                LinkKind::Bridge { stp: false, vlan_filtering: *vlan_filtering }
            }
            Self::Macvlan { .. } => LinkKind::Macvlan { mode: MacVlanMode::Bridge.to_string() },
            Self::Vlan { id, .. } => LinkKind::Vlan { id: *id },
            Self::Vxlan(Vxlan { vni, local, remote, port, .. }) => {
                LinkKind::Vxlan { vni: *vni, local: Some(*local), remote: *remote, port: *port }
            }
            Self::Dummy => LinkKind::Dummy,
        }
    }

    /// Whether the link that is there is what would have been made.
    fn is(&self, link: &Link) -> bool {
        let stands_in = matches!((self, &link.kind), (Self::Dummy, LinkKind::Bridge { .. }));
        stands_in || self.kind() == link.kind
    }
}

impl Handle {
    pub async fn create_link(&self, link: &NewLink) -> Result<(), Error> {
        match self.create_exactly(link).await {
            Err(error) if matches!(link.spec, Spec::Dummy) && error.is_unsupported() => {
                let stand_in = NewLink { spec: Spec::Bridge { vlan_filtering: false }, ..link.clone() };
                self.create_exactly(&stand_in).await
            }
            outcome => outcome,
        }
    }

    async fn create_exactly(&self, link: &NewLink) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewLink(self.build(link).await?);
        self.ask_holding(link.asked(), message, Existing::Refuse.flags(), link.held()).await?;
        let settled = self.settle(link).await;
        if settled.is_err() {
            // The first error is the one to report.
            if let Ok(there) = self.at(link.end.namespace.as_ref()) {
                let _ = there.delete_link(link.name()).await;
            }
        }
        settled
    }

    /// Makes the link, or brings the one of that name into line: MAC address, MTU, master, up. One of another kind is an
    /// error, and stays as it is. Says whether it was made. A veth's peer is not looked at.
    pub async fn ensure_link(&self, link: &NewLink) -> Result<bool, Error> {
        let taken = match self.create_link(link).await {
            Err(error) if error.is_already_exists() => error,
            outcome => return outcome.map(|()| true),
        };
        let place = self.at(link.end.namespace.as_ref())?;
        // If it is not there, it is the peer's name that is taken.
        let Some(there) = place.find_link(link.name()).await? else { return Err(taken) };
        if !link.spec.is(&there) {
            return Err(Error::Different {
                object: format!("link {}", link.name()),
                namespace: place.namespace().name().to_owned(),
                wanted: link.spec.kind().to_string(),
                found: there.kind.to_string(),
            });
        }
        if let Some(mac) = link.end.mac.filter(|mac| there.mac != Some(*mac)) {
            place.set_mac(&there, mac).await?;
        }
        if let Some(mtu) = link.end.mtu.filter(|mtu| there.mtu != *mtu) {
            place.set_mtu(&there, mtu).await?;
        }
        if let Some(master) = &link.master {
            let master = place.index_of(master.clone()).await?;
            if there.master != Some(master) {
                place.set_master(&there, master).await?;
            }
        }
        if link.end.up && !there.up {
            place.set_up(&there).await?;
        }
        Ok(false)
    }

    /// What the request that makes a link cannot do.
    async fn settle(&self, link: &NewLink) -> Result<(), Error> {
        match &link.spec {
            // A veth cannot be up before the other end is there.
            Spec::Veth(peer) if peer.up => self.at(peer.namespace.as_ref())?.set_up(&peer.name).await,
            Spec::Bridge { vlan_filtering } => {
                let there = self.at(link.end.namespace.as_ref())?;
                if let Some(mtu) = link.end.mtu {
                    there.set_mtu(link.name(), mtu).await?;
                }
                // A kernel without VLAN filtering says nothing of it, and makes a bridge that mixes VLANs.
                let filters = |kind| matches!(kind, LinkKind::Bridge { vlan_filtering: true, .. });
                if *vlan_filtering && !filters(there.link(link.name()).await?.kind) {
                    return Err(self.unsupported(link.asked(), "its bridges do not filter VLANs"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// This handle, or one to the namespace in which something was made instead.
    fn at(&self, namespace: Option<&Namespace>) -> Result<Handle, Error> {
        namespace.map_or_else(|| Ok(self.clone()), Handle::open)
    }

    async fn build(&self, link: &NewLink) -> Result<LinkMessage, Error> {
        let mut message = link.end.message()?;
        if let (Spec::Bridge { .. }, Some(mtu)) = (&link.spec, link.end.mtu) {
            // A bridge follows the MTU of its ports until its own is changed. So it is made with another.
            message = Peer { mtu: Some(mtu.saturating_add(1)), ..link.end.clone() }.message()?;
        }
        if let Some(master) = &link.master {
            message = message.controller(self.index_of(master.clone()).await?);
        }
        Ok(match &link.spec {
            Spec::Veth(peer) => {
                let peer = InfoVeth::Peer(Peer { up: false, ..peer.clone() }.message()?.build());
                with_kind(message, InfoKind::Veth, Some(InfoData::Veth(peer)))
            }
            Spec::Bridge { vlan_filtering } => {
                let mut options = vec![InfoBridge::StpState(BridgeStpState::Disabled)];
                if *vlan_filtering {
                    options.push(InfoBridge::VlanFiltering(true));
                }
                with_kind(message, InfoKind::Bridge, Some(InfoData::Bridge(options)))
            }
            Spec::Macvlan { parent } => {
                let message = message.link(self.index_of(parent.clone()).await?);
                let options = vec![InfoMacVlan::Mode(MacVlanMode::Bridge)];
                with_kind(message, InfoKind::MacVlan, Some(InfoData::MacVlan(options)))
            }
            Spec::Vlan { id, .. } if !(1..=4094).contains(id) => {
                let object = format!("VLAN {id} on link {}", link.name());
                return Err(Error::Invalid { object, rule: "VLANs have numbers from 1 to 4094" });
            }
            Spec::Vlan { parent, id } => {
                let message = message.link(self.index_of(parent.clone()).await?);
                with_kind(message, InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(*id)])))
            }
            Spec::Vxlan(vxlan) => {
                let parent = match &vxlan.parent {
                    Some(parent) => Some(self.index_of(parent.clone()).await?),
                    None => None,
                };
                with_kind(message, InfoKind::Vxlan, Some(InfoData::Vxlan(vxlan.options(parent))))
            }
            Spec::Dummy => with_kind(message, InfoKind::Dummy, None),
        })
    }
}

impl Vxlan {
    fn options(&self, parent: Option<u32>) -> Vec<InfoVxlan> {
        let local = match self.local {
            IpAddr::V4(address) => InfoVxlan::Local(address),
            IpAddr::V6(address) => InfoVxlan::Local6(address),
        };
        let remote = self.remote.map(|remote| match remote {
            IpAddr::V4(address) => InfoVxlan::Group(address),
            IpAddr::V6(address) => InfoVxlan::Group6(address),
        });
        let fixed = [InfoVxlan::Id(self.vni), local, InfoVxlan::Port(self.port)];
        fixed.into_iter().chain(remote).chain(parent.map(InfoVxlan::Link)).collect()
    }
}

/// The kind goes into the built message: the builder takes it only at its beginning.
fn with_kind(message: LinkMessageBuilder<LinkUnspec>, kind: InfoKind, data: Option<InfoData>) -> LinkMessage {
    use rtnetlink::packet_route::link::{LinkAttribute, LinkInfo};

    let mut message = message.build();
    let info = std::iter::once(LinkInfo::Kind(kind)).chain(data.map(LinkInfo::Data)).collect();
    message.attributes.push(LinkAttribute::LinkInfo(info));
    message
}
