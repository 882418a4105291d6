//! Addresses and neighbours.

use net::{Address, DuplicateDetection, Error, NeighbourState, NewLink, Peer, Readiness};
use serde_json::Value;

use crate::fixture::{Fixture, ask, mac, network, not_run_here, run};

fn shown(handle: &net::Handle, link: &str) -> Vec<Value> {
    let seen = ask(handle.namespace(), &format!("ip -j address show dev {link}"));
    seen[0]["addr_info"].as_array().unwrap().clone()
}

#[tokio::test]
async fn addresses_of_both_families_are_added_listed_and_deleted() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::veth("eth0", Peer::new("wire").up()).up()).await.unwrap();
    handle.flush_addresses("eth0").await.unwrap();
    let (v4, v6, waiting) = (network("192.0.2.1/24"), network("2001:db8::1/64"), network("2001:db8::2/64"));
    handle.add_address("eth0", Address::new(v4)).await.unwrap();
    handle.add_address("eth0", Address::new(v6).detection(DuplicateDetection::Skip)).await.unwrap();
    let seen = shown(&handle, "eth0");
    assert_eq!((&seen[0]["local"], &seen[0]["prefixlen"]), (&"192.0.2.1".into(), &24.into()));
    assert_eq!(seen[0]["broadcast"], "192.0.2.255");
    assert_eq!((&seen[1]["local"], &seen[1]["prefixlen"]), (&"2001:db8::1".into(), &64.into()));
    assert_eq!((&seen[1]["nodad"], &seen[1]["tentative"]), (&true.into(), &Value::Null));

    // Without a word about it, the kernel waits until nobody else has answered.
    run(handle.namespace(), "ip link set wire down");
    handle.add_address("eth0", Address::new(waiting)).await.unwrap();
    let listed = handle.addresses("eth0").await.unwrap();
    let state = |network| listed.iter().find(|address| address.network == network).unwrap();
    assert_eq!((state(v4).readiness, state(v6).readiness), (Readiness::Usable, Readiness::Usable));
    assert_eq!(state(waiting).readiness, Readiness::Tentative);
    assert!(listed.iter().all(|address| address.permanent && !address.link_local));

    assert!(handle.add_address("eth0", Address::new(v4)).await.unwrap_err().is_already_exists());
    assert!(!handle.ensure_address("eth0", Address::new(v4)).await.unwrap());
    let other_prefix = handle.ensure_address("eth0", Address::new(network("2001:db8::1/48"))).await;
    assert!(matches!(other_prefix, Err(Error::Different { .. })));
    handle.delete_address("eth0", v4).await.unwrap();
    assert!(handle.delete_address("eth0", v4).await.unwrap_err().is_not_found());
    assert!(!handle.delete_address_if_exists("eth0", v4).await.unwrap());
    assert!(!handle.delete_address_if_exists("absent", v4).await.unwrap());
    assert!(handle.ensure_address("eth0", Address::new(v4)).await.unwrap());
    assert!(handle.add_address("absent", Address::new(v4)).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn an_optimistic_address_may_be_used_meanwhile() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::veth("eth0", Peer::new("wire"))).await.unwrap();
    let setting = net::Sysctl::at("ipv6/conf/eth0/optimistic_dad").unwrap();
    let address = Address::new(network("2001:db8::1/64")).detection(DuplicateDetection::Optimistic);
    let has_it = handle.namespace().set_sysctl(&setting, "1");
    handle.add_address("eth0", address).await.unwrap();
    let seen = shown(&handle, "eth0");
    match has_it {
        Ok(()) => assert_eq!(seen[0]["optimistic"], true, "{seen:?}"),
        Err(error) => {
            assert!(error.is_not_found(), "{error}");
            not_run_here("optimistic addresses", &error);
        }
    }
    assert_eq!(handle.addresses("eth0").await.unwrap()[0].network, address.network);
}

#[tokio::test]
async fn flushing_takes_every_address_that_another_tool_added() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    for address in ["192.0.2.10/24", "192.0.2.11/24", "198.51.100.1/32", "2001:db8::10/64 nodad"] {
        run(a.namespace(), &format!("ip address add {address} dev eth0"));
    }
    let listed = a.addresses("eth0").await.unwrap();
    assert!(listed.iter().any(|address| address.network == network("198.51.100.1/32")));
    assert_eq!(listed.len(), shown(&a, "eth0").len());
    a.flush_addresses("eth0").await.unwrap();
    assert_eq!(shown(&a, "eth0"), Vec::<Value>::new());
    a.flush_addresses("eth0").await.unwrap();
    assert!(!shown(&b, "eth0").is_empty());
    assert!(a.flush_addresses("absent").await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn neighbours_are_set_listed_and_deleted() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let (v4, v6) = ("192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap());
    run(a.namespace(), "ip neighbour add 192.0.2.9 lladdr 02:00:00:00:00:01 nud stale dev eth0");
    run(a.namespace(), "ip neighbour add 192.0.2.8 nud failed dev eth0");
    let listed = a.neighbours("eth0").await.unwrap();
    let stale = listed.iter().find(|neighbour| neighbour.address == v4).unwrap();
    assert_eq!((stale.mac, stale.state), (Some(mac("02:00:00:00:00:01")), NeighbourState::Unconfirmed));

    for address in [v4, v6] {
        a.set_neighbour("eth0", address, mac("02:00:00:00:00:02")).await.unwrap();
        a.set_neighbour("eth0", address, mac("02:00:00:00:00:03")).await.unwrap();
        let seen = ask(a.namespace(), &format!("ip -j neighbour show {address} dev eth0"));
        assert_eq!(
            (&seen[0]["lladdr"], &seen[0]["state"][0]),
            (&"02:00:00:00:00:03".into(), &"PERMANENT".into())
        );
        let listed = a.neighbours("eth0").await.unwrap();
        let found = listed.iter().find(|neighbour| neighbour.address == address).unwrap();
        assert_eq!((found.mac, found.state), (Some(mac("02:00:00:00:00:03")), NeighbourState::Permanent));
        assert!(a.delete_neighbour_if_exists("eth0", address).await.unwrap());
    }
    assert!(!a.delete_neighbour_if_exists("eth0", "192.0.2.77".parse().unwrap()).await.unwrap());
    assert!(a.delete_neighbour("eth0", "192.0.2.77".parse().unwrap()).await.unwrap_err().is_not_found());
}
