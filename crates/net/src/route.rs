//! Unicast routes of the main table.

use std::fmt;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::{created, deleted};
use crate::handle::{Asked, Existing};
use crate::{Error, Handle};

/// A route: to `destination` by `gateway`, by `link`, or by both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Its host part does not matter.
    pub destination: IpNet,
    pub gateway: Option<IpAddr>,
    /// The index of the link that packets leave by.
    pub link: Option<u32>,
    /// The gateway is reached by that link even if no network of the link has it.
    pub onlink: bool,
    /// The address that packets get which have none yet.
    pub source: Option<IpAddr>,
    /// Of routes to one destination the lowest is taken. Without it the kernel's default holds: 0 for IPv4, 1024 for IPv6.
    pub metric: Option<u32>,
}

impl Route {
    pub fn to(destination: IpNet) -> Self {
        Self { destination, gateway: None, link: None, onlink: false, source: None, metric: None }
    }

    /// The default route of the gateway's family.
    pub fn default_by(gateway: IpAddr) -> Self {
        let anywhere = match gateway {
            IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
            IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
        };
        Self::to(anywhere).gateway(gateway)
    }

    #[must_use]
    pub fn gateway(self, gateway: IpAddr) -> Self {
        Self { gateway: Some(gateway), ..self }
    }

    #[must_use]
    pub fn link(self, index: u32) -> Self {
        Self { link: Some(index), ..self }
    }

    #[must_use]
    pub fn onlink(self) -> Self {
        Self { onlink: true, ..self }
    }

    #[must_use]
    pub fn source(self, source: IpAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    #[must_use]
    pub fn metric(self, metric: u32) -> Self {
        Self { metric: Some(metric), ..self }
    }

    fn check(&self) -> Result<(), Error> {
        let invalid = |rule| Err(Error::Invalid { object: format!("route {self}"), rule });
        let v4 = self.destination.addr().is_ipv4();
        if self.gateway.into_iter().chain(self.source).any(|other| other.is_ipv4() != v4) {
            return invalid("destination, gateway and source must be of one family");
        }
        if self.gateway.is_none() && self.link.is_none() {
            return invalid("it needs a gateway or a link");
        }
        if self.onlink && (self.gateway.is_none() || self.link.is_none()) {
            return invalid("a gateway that is on the link needs the gateway and the link");
        }
        Ok(())
    }
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.destination.trunc().fmt(out)?;
        if let Some(gateway) = self.gateway {
            write!(out, " by {gateway}")?;
        }
        if let Some(link) = self.link {
            write!(out, " on link {link}")?;
        }
        Ok(())
    }
}

impl Handle {
    pub async fn add_route(&self, route: &Route) -> Result<(), Error> {
        self.new_route("adding route", route, Existing::Refuse).await
    }

    /// Adds the route in place of the one with the same destination and metric, if there is one.
    pub async fn replace_route(&self, route: &Route) -> Result<(), Error> {
        self.new_route("replacing route", route, Existing::Replace).await
    }

    /// Sees to it that the route is there, and says whether it had to be added or replaced.
    pub async fn ensure_route(&self, route: &Route) -> Result<bool, Error> {
        if created(self.add_route(route).await)? {
            return Ok(true);
        }
        if self.routes().await?.iter().any(|there| route.is(there)) {
            return Ok(false);
        }
        self.replace_route(route).await.map(|()| true)
    }

    /// Deletes the route that has all that `route` says.
    pub async fn delete_route(&self, route: &Route) -> Result<(), Error> {
        let mut message = message(route);
        // These stand for "any", so that routes which others made can be deleted too.
        message.header.protocol = RouteProtocol::Unspec;
        message.header.scope = RouteScope::NoWhere;
        message.header.kind = RouteType::Unspec;
        let asked = Asked { operation: "deleting route", object: route.to_string() };
        self.ask(asked, RouteNetlinkMessage::DelRoute(message), 0).await.map(drop)
    }

    /// Deletes the route; says whether it was there.
    pub async fn delete_route_if_exists(&self, route: &Route) -> Result<bool, Error> {
        deleted(self.delete_route(route).await)
    }

    /// The unicast routes of the main table, those that the kernel made among them. Of a route over several gateways,
    /// gateway and link are not said.
    pub async fn routes(&self) -> Result<Vec<Route>, Error> {
        let asked = Asked { operation: "listing", object: "routes".to_owned() };
        let answers = self.list(asked, RouteNetlinkMessage::GetRoute(RouteMessage::default())).await?;
        let routes = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(message) => parse(&message),
            _ => None,
        });
        Ok(routes.collect())
    }

    async fn new_route(
        &self,
        operation: &'static str,
        route: &Route,
        existing: Existing,
    ) -> Result<(), Error> {
        route.check()?;
        let asked = Asked { operation, object: route.to_string() };
        self.ask(asked, RouteNetlinkMessage::NewRoute(message(route)), existing.flags()).await.map(drop)
    }
}

impl Route {
    /// Whether the route that is there does what this one asks for; what it does not ask for is the kernel's choice.
    fn is(&self, there: &Self) -> bool {
        let same = |asked: Option<IpAddr>, there: Option<IpAddr>| asked.is_none() || asked == there;
        self.destination.trunc() == there.destination
            && self.gateway == there.gateway
            && same(self.source, there.source)
            && (self.link.is_none() || self.link == there.link)
            && (self.metric.is_none() || self.metric == there.metric)
            && self.onlink == there.onlink
    }
}

fn message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let destination = route.destination.trunc();
    message.header = RouteHeader {
        address_family: if destination.addr().is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 },
        destination_prefix_length: destination.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: if route.gateway.is_some() || destination.addr().is_ipv6() {
            RouteScope::Universe
        } else {
            RouteScope::Link
        },
        kind: RouteType::Unicast,
        flags: if route.onlink { RouteFlags::Onlink } else { RouteFlags::empty() },
        ..RouteHeader::default()
    };
    let attributes = [
        // No destination at all is how the kernel writes a default route.
        (destination.prefix_len() > 0).then(|| RouteAttribute::Destination(destination.addr().into())),
        route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())),
        route.link.map(RouteAttribute::Oif),
        route.source.map(|source| RouteAttribute::PrefSource(source.into())),
        route.metric.map(RouteAttribute::Priority),
    ];
    message.attributes = attributes.into_iter().flatten().collect();
    message
}

fn parse(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let anywhere = match header.address_family {
        AddressFamily::Inet => IpNet::V4(Ipv4Net::default()),
        AddressFamily::Inet6 => IpNet::V6(Ipv6Net::default()),
        _ => return None,
    };
    let mut table = u32::from(header.table);
    let mut route = Route { onlink: header.flags.contains(RouteFlags::Onlink), ..Route::to(anywhere) };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(destination) => {
                route.destination =
                    IpNet::new(address(destination)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::Gateway(gateway) => route.gateway = address(gateway),
            RouteAttribute::PrefSource(source) => route.source = address(source),
            RouteAttribute::Oif(link) => route.link = Some(*link),
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            _ => {}
        }
    }
    let ours = table == u32::from(RouteHeader::RT_TABLE_MAIN)
        && header.kind == RouteType::Unicast
        && !header.flags.contains(RouteFlags::Cloned);
    ours.then_some(route)
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let routes = [
            Route::to(network("192.0.2.0/24")).link(7),
            Route::default_by("192.0.2.1".parse().unwrap()).link(7).onlink().metric(9),
            Route::to(network("2001:db8::/32")).gateway("fe80::1".parse().unwrap()).link(7),
            Route::default_by("2001:db8::1".parse().unwrap()).source("2001:db8::2".parse().unwrap()),
        ];
        for route in routes {
            assert_eq!(parse(&message(&route)), Some(route));
        }
    }

    #[test]
    fn impossible_routes_are_refused() {
        let gateway = "192.0.2.1".parse().unwrap();
        for route in [
            Route::to(network("192.0.2.0/24")),
            Route::to(network("2001:db8::/32")).gateway(gateway),
            Route::default_by(gateway).onlink(),
            Route::to(network("192.0.2.0/24")).link(7).source("::1".parse().unwrap()),
        ] {
            assert!(matches!(route.check(), Err(Error::Invalid { .. })), "{route}");
        }
    }
}
