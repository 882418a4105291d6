//! Neighbours and routers as the kernel at the other end answers for them, and what it believes of a router.

use std::net::Ipv6Addr;
use std::time::Duration;

use net::{Discovery, Heard, RouterAdvertisement, Sysctl};
use tokio::time::timeout;

use crate::fixture::{Fixture, ask, eventually, mac};

async fn listen(handle: &net::Handle) -> Discovery {
    // A link-local address can be used when nobody else was found to have it.
    for _ in 0..100 {
        match handle.discovery("eth0").await {
            Ok(discovery) => return discovery,
            Err(error) => assert!(error.is_not_found(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no link-local address within 5 s")
}

async fn hear(discovery: &Discovery, what: &str, wanted: impl Fn(&Heard) -> bool) -> Heard {
    let heard = async {
        loop {
            let heard = discovery.heard().await.unwrap();
            if wanted(&heard) {
                return heard;
            }
        }
    };
    timeout(Duration::from_secs(10), heard).await.unwrap_or_else(|_| panic!("not heard: {what}"))
}

#[tokio::test]
async fn neighbours_and_routers_answer() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    b.namespace().set_sysctl(&Sysctl::ipv6_forwarding(), "1").unwrap();
    let (discovery, there) = (listen(&a).await, listen(&b).await);
    let address: Ipv6Addr = "2001:db8::2".parse().unwrap();
    discovery.ask(address).await.unwrap();
    let heard = hear(&discovery, "the neighbour", |heard| matches!(heard, Heard::Neighbour { .. })).await;
    assert_eq!(heard, Heard::Neighbour { address, mac: there.mac() });
    discovery.call_routers().await.unwrap();
    let heard = hear(&discovery, "the router", |heard| matches!(heard, Heard::Router { .. })).await;
    assert_eq!(heard, Heard::Router { address: there.address() });
}

#[tokio::test]
async fn a_router_is_believed_and_asked_for() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    let discovery = listen(&a).await;
    b.set_down("eth0").await.unwrap();
    b.set_up("eth0").await.unwrap();
    hear(&discovery, "the question for routers", |heard| *heard == Heard::RouterSolicitation).await;
    let router = "fe80::77".parse().unwrap();
    let advertisement = RouterAdvertisement {
        router,
        lifetime: 1800,
        prefix: Some("2001:db8:7::/64".parse().unwrap()),
        mtu: Some(1400),
        sender: mac("02:00:00:00:00:77"),
    };
    a.advertise_router("eth0", &advertisement).await.unwrap();
    let routes = eventually("a default route", || {
        let routes = ask(b.namespace(), "ip -6 -j route show");
        let by_it = routes.as_array()?.iter().any(|route| route["gateway"] == "fe80::77");
        by_it.then(|| routes.to_string())
    });
    assert!(routes.contains("2001:db8:7::/64"), "{routes}");
    let addresses = ask(b.namespace(), "ip -6 -j address show dev eth0").to_string();
    assert!(!addresses.contains("2001:db8:7"), "no address is made up: {addresses}");

    let bad = RouterAdvertisement { router: "2001:db8::1".parse().unwrap(), ..advertisement };
    assert!(matches!(a.advertise_router("eth0", &bad).await, Err(net::Error::Invalid { .. })));
}
