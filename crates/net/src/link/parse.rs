//! The kernel's form of a link, read. Pure.

use std::net::IpAddr;

use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoMacVlan, InfoVlan, InfoVxlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};

use super::{Counters, Link, LinkKind};
use crate::MacAddress;

/// The links among the answers.
pub(super) fn links(answers: Vec<RouteNetlinkMessage>) -> impl Iterator<Item = Link> {
    answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewLink(message) => Some(link(message)),
        _ => None,
    })
}

fn link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        kind: LinkKind::Plain,
        mac: None,
        mtu: 0,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        master: None,
        parent: None,
        parent_elsewhere: false,
        counters: Counters::default(),
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(MacAddress),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Controller(master) => link.master = Some(master).filter(|master| *master != 0),
            LinkAttribute::Link(parent) => link.parent = Some(parent).filter(|parent| *parent != 0),
            LinkAttribute::LinkNetNsId(_) => link.parent_elsewhere = true,
            LinkAttribute::Stats64(stats) => {
                link.counters = Counters {
                    rx_bytes: stats.rx_bytes,
                    rx_packets: stats.rx_packets,
                    tx_bytes: stats.tx_bytes,
                    tx_packets: stats.tx_packets,
                };
            }
            LinkAttribute::LinkInfo(info) => link.kind = kind(info),
            _ => {}
        }
    }
    link
}

fn kind(info: Vec<LinkInfo>) -> LinkKind {
    let (mut kind, mut data) = (None, None);
    for info in info {
        match info {
            LinkInfo::Kind(found) => kind = Some(found),
            LinkInfo::Data(found) => data = Some(found),
            _ => {}
        }
    }
    match (kind, data) {
        (None, _) => LinkKind::Plain,
        (Some(InfoKind::Veth), _) => LinkKind::Veth,
        (Some(InfoKind::Dummy), _) => LinkKind::Dummy,
        (Some(InfoKind::Bridge), Some(InfoData::Bridge(options))) => LinkKind::Bridge {
            stp: options.iter().any(
                |option| matches!(option, InfoBridge::StpState(state) if *state != BridgeStpState::Disabled),
            ),
            vlan_filtering: options.contains(&InfoBridge::VlanFiltering(true)),
        },
        (Some(InfoKind::MacVlan), Some(InfoData::MacVlan(options))) => {
            LinkKind::Macvlan { mode: options.iter().find_map(macvlan_mode).unwrap_or_default() }
        }
        (Some(InfoKind::Vlan), Some(InfoData::Vlan(options))) => LinkKind::Vlan {
            id: options
                .iter()
                .find_map(|option| if let InfoVlan::Id(id) = option { Some(*id) } else { None })
                .unwrap_or_default(),
        },
        (Some(InfoKind::Vxlan), Some(InfoData::Vxlan(options))) => vxlan(&options),
        (Some(other), _) => LinkKind::Other(other.to_string()),
    }
}

fn macvlan_mode(option: &InfoMacVlan) -> Option<String> {
    match option {
        InfoMacVlan::Mode(mode) => Some(mode.to_string()),
        _ => None,
    }
}

fn vxlan(options: &[InfoVxlan]) -> LinkKind {
    let (mut vni, mut local, mut remote, mut port) = (0, None, None, 0);
    for option in options {
        match option {
            InfoVxlan::Id(id) => vni = *id,
            InfoVxlan::Local(address) => local = Some(IpAddr::V4(*address)),
            InfoVxlan::Local6(address) => local = Some(IpAddr::V6(*address)),
            InfoVxlan::Group(address) => remote = Some(IpAddr::V4(*address)),
            InfoVxlan::Group6(address) => remote = Some(IpAddr::V6(*address)),
            InfoVxlan::Port(number) => port = *number,
            _ => {}
        }
    }
    LinkKind::Vxlan { vni, local, remote, port }
}
