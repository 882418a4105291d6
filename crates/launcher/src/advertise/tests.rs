//! Whom a guest is told to be its router, and who is believed to be it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use proptest::prelude::*;
use wire::{Dns, VnicAddress, VnicRoute};

use super::*;

const GATEWAY: &str = "2001:db8::1";
const THERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const ELSEWHERE: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

fn search() -> Search {
    Search::of(Router::Gateway(GATEWAY.parse().unwrap()), "fe80::b".parse().unwrap())
}

fn neighbour(address: &str, mac: MacAddress) -> Heard {
    Heard::Neighbour { address: address.parse().unwrap(), mac }
}

fn router(address: &str) -> Heard {
    Heard::Router { address: address.parse().unwrap() }
}

#[test]
fn the_router_at_the_gateways_place_is_the_gateway() {
    let mut search = search();
    for heard in
        [router("fe80::7"), router("fe80::8"), neighbour("fe80::7", ELSEWHERE), neighbour("fe80::8", THERE)]
    {
        search.hear(heard);
        assert_eq!(search.found, None, "where the gateway is, is not known yet");
    }
    search.hear(neighbour(GATEWAY, THERE));
    assert_eq!(search.found, Some("fe80::8".parse().unwrap()));
    assert!(!search.goes_on());
}

#[test]
fn a_gateway_that_hears_no_calls_is_known_by_its_ethernet_address() {
    let mut search = search();
    search.hear(neighbour(GATEWAY, THERE));
    assert_eq!(search.found, None, "it may be another's");
    search.hear(neighbour("fe80::ff:fe00:1", THERE));
    assert_eq!(search.found, Some("fe80::ff:fe00:1".parse().unwrap()));
}

#[test]
fn a_gateway_that_is_link_local_needs_no_search() {
    let gateway = "fe80::ecee:eeff:feee:eeee".parse().unwrap();
    let search = Search::of(Router::Gateway(gateway), "fe80::b".parse().unwrap());
    assert_eq!((search.found, search.goes_on()), (Some(gateway), false));
}

fn vnic(address: &str, gateway: Option<&str>, routes: &[(&str, Option<&str>)]) -> Vnic {
    let ip = |text: &str| text.parse().unwrap();
    let route =
        |(to, by): &(&str, Option<&str>)| VnicRoute { destination: to.parse().unwrap(), gateway: by.map(ip) };
    Vnic {
        name: "default".parse().unwrap(),
        interface: "vnic0".parse().unwrap(),
        mac: None,
        addresses: vec![VnicAddress { address: address.parse().unwrap(), gateway: gateway.map(ip) }],
        routes: routes.iter().map(route).collect(),
        dns: Dns::default(),
        mtu: None,
    }
}

#[test]
fn the_default_route_decides_who_the_router_is() {
    let own = "2001:db8::5/64";
    let of = |vnic: &Vnic| advertised(vnic, 0, 1500, Bridge::Segment).map(|told| told.router);
    let by = |text: &str| Some(Router::Gateway(text.parse().unwrap()));
    assert_eq!(of(&vnic(own, Some(GATEWAY), &[])), by(GATEWAY));
    assert_eq!(of(&vnic(own, Some(GATEWAY), &[("0.0.0.0/0", None)])), by(GATEWAY));
    assert_eq!(of(&vnic(own, Some(GATEWAY), &[("::/0", None)])), by(GATEWAY));
    assert_eq!(of(&vnic(own, Some(GATEWAY), &[("::/0", Some("2001:db8::9"))])), by("2001:db8::9"));
    assert_eq!(of(&vnic(own, Some(GATEWAY), &[("2001:db8:1::/64", None)])), Some(Router::None));
    assert_eq!(of(&vnic(own, None, &[])), Some(Router::None));
    assert_eq!(of(&vnic("10.0.0.5/24", None, &[])), None);
    let told = advertised(&vnic("2001:db8::5/128", Some(GATEWAY), &[]), 3, 1400, Bridge::Gateway).unwrap();
    assert_eq!((told.prefix, told.router, told.tap.as_str()), (None, Router::Bridge, "tap3"));
}

proptest! {
    /// Whatever is heard, and from however many, only a machine at the gateway's place is taken for it.
    #[test]
    fn nobody_else_is_taken_for_the_gateway(said in proptest::collection::vec((0_u16..40, 0_u8..4, any::<bool>()), 0..80)) {
        let mut search = search();
        let gateway: Ipv6Addr = GATEWAY.parse().unwrap();
        for (number, mac, is_router) in said {
            let address = if number == 0 { gateway } else { Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number) };
            let mac = MacAddress([2, 0, 0, 0, 0, mac]);
            search.hear(if is_router && number > 0 { Heard::Router { address } } else { Heard::Neighbour { address, mac } });
            prop_assert!(search.candidates.len() <= CANDIDATES);
            if let Some(found) = search.found {
                prop_assert_eq!(search.places.get(&found), search.places.get(&gateway));
                prop_assert!(found.is_unicast_link_local());
            }
        }
    }
}
