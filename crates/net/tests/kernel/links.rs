//! Reading, changing, moving and deleting links.

use net::{Link, LinkKind, NewLink, Peer};

use crate::fixture::{Fixture, ask, datagram, link, mac, run};

fn names(links: &[Link]) -> Vec<&str> {
    links.iter().map(|link| link.name.as_str()).collect()
}

#[tokio::test]
async fn what_another_tool_made_is_read() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    let namespace = handle.namespace();
    for command in [
        "ip link add bridge0 address 02:00:00:00:00:01 type bridge stp_state 1",
        "ip link set bridge0 mtu 1400",
        "ip link add pair0 type veth peer name pair1",
        "ip link set pair0 master bridge0 up",
        "ip link set pair1 up",
        "ip link add link pair1 name child0 type macvlan mode private",
        "ip link add tunnel0 type vxlan id 77 local 192.0.2.1 remote 192.0.2.2 dstport 4789",
    ] {
        run(namespace, command);
    }
    let links = handle.links().await.unwrap();
    let find = |name: &str| links.iter().find(|link| link.name == name).unwrap();
    let bridge = find("bridge0");
    assert_eq!(bridge.kind, LinkKind::Bridge { stp: true, vlan_filtering: false });
    assert_eq!((bridge.mtu, bridge.mac, bridge.up), (1400, Some(mac("02:00:00:00:00:01")), false));
    let (pair0, pair1) = (find("pair0"), find("pair1"));
    assert_eq!(
        (&pair0.kind, pair0.master, pair0.up, pair0.carrier),
        (&LinkKind::Veth, Some(bridge.index), true, true)
    );
    assert_eq!((pair0.parent, pair0.parent_elsewhere), (Some(pair1.index), false));
    let child = find("child0");
    assert_eq!(
        (&child.kind, child.parent),
        (&LinkKind::Macvlan { mode: "private".to_owned() }, Some(pair1.index))
    );
    let ends = (Some("192.0.2.1".parse().unwrap()), Some("192.0.2.2".parse().unwrap()));
    assert_eq!(find("tunnel0").kind, LinkKind::Vxlan { vni: 77, local: ends.0, remote: ends.1, port: 4789 });
    assert_eq!((&find("lo").kind, find("lo").index), (&LinkKind::Plain, 1));

    assert_eq!(handle.link("bridge0").await.unwrap(), *bridge);
    assert_eq!(handle.link(bridge.index).await.unwrap(), *bridge);
    assert!(handle.link("absent").await.unwrap_err().is_not_found());
    assert!(handle.link(9999).await.unwrap_err().is_not_found());
    assert_eq!(handle.find_link("absent").await.unwrap(), None);
}

#[tokio::test]
async fn changes_are_seen_by_another_tool() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    let namespace = handle.namespace().clone();
    handle.create_link(&NewLink::bridge("bridge0")).await.unwrap();
    handle.create_link(&NewLink::veth("pair0", Peer::new("pair1"))).await.unwrap();

    handle.set_up("pair0").await.unwrap();
    handle.set_mtu("pair0", 1280).await.unwrap();
    handle.set_mac("pair0", mac("02:00:00:00:00:09")).await.unwrap();
    handle.set_master("pair0", "bridge0").await.unwrap();
    let seen = link(&namespace, "pair0");
    assert_eq!((&seen["mtu"], &seen["address"]), (&1280.into(), &"02:00:00:00:00:09".into()));
    assert!(seen["flags"].as_array().unwrap().contains(&"UP".into()));
    let ports = ask(&namespace, "bridge -j link show");
    assert_eq!((&ports[0]["ifname"], &ports[0]["master"]), (&"pair0".into(), &"bridge0".into()));
    handle.set_learning("pair0", false).await.unwrap();
    assert_eq!(ask(&namespace, "bridge -d -j link show")[0]["learning"], false);
    handle.set_learning("pair0", true).await.unwrap();
    assert_eq!(ask(&namespace, "bridge -d -j link show")[0]["learning"], true);

    handle.set_no_master("pair0").await.unwrap();
    assert_eq!(ask(&namespace, "bridge -j link show"), serde_json::json!([]));
    handle.set_down("pair0").await.unwrap();
    handle.rename("pair0", "renamed0").await.unwrap();
    let seen = link(&namespace, "renamed0");
    assert!(!seen["flags"].as_array().unwrap().contains(&"UP".into()));
    assert!(handle.rename("renamed0", "bridge0").await.unwrap_err().is_already_exists());
    assert!(handle.set_up("pair0").await.unwrap_err().is_not_found());

    handle.delete_link("renamed0").await.unwrap();
    let links = handle.links().await.unwrap();
    assert!(
        !names(&links).contains(&"renamed0") && !names(&links).contains(&"pair1"),
        "both ends go: {links:?}"
    );
    assert!(handle.delete_link("renamed0").await.unwrap_err().is_not_found());
    assert!(!handle.delete_link_if_exists("renamed0").await.unwrap());
    assert!(handle.delete_link_if_exists("bridge0").await.unwrap());
}

#[tokio::test]
async fn a_link_moves_to_another_namespace() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.handle("a"), fixture.handle("b"));
    a.create_link(&NewLink::veth("pair0", Peer::new("pair1"))).await.unwrap();
    a.move_link("pair1", b.namespace()).await.unwrap();
    assert!(a.find_link("pair1").await.unwrap().is_none());
    assert_eq!(link(b.namespace(), "pair1")["linkinfo"]["info_kind"], "veth");
    assert!(b.link("pair1").await.unwrap().parent_elsewhere);
    // One of that name is there already.
    a.create_link(&NewLink::veth("pair1", Peer::new("other"))).await.unwrap();
    assert!(a.move_link("pair1", b.namespace()).await.unwrap_err().is_already_exists());
    assert!(a.find_link("pair1").await.unwrap().is_some());
}

#[tokio::test]
async fn counters_count_what_passes() {
    let fixture = Fixture::new();
    let (a, b) = fixture.pair().await;
    let before = (a.counters("eth0").await.unwrap(), b.counters("eth0").await.unwrap());
    for _ in 0..10 {
        datagram(a.namespace(), b.namespace(), "192.0.2.2", 1000);
    }
    let after = (a.counters("eth0").await.unwrap(), b.counters("eth0").await.unwrap());
    let sent = (after.0.tx_bytes - before.0.tx_bytes, after.0.tx_packets - before.0.tx_packets);
    let received = (after.1.rx_bytes - before.1.rx_bytes, after.1.rx_packets - before.1.rx_packets);
    // Ten datagrams with their headers, and what the kernel says to its neighbours meanwhile.
    for (bytes, packets) in [sent, received] {
        assert!(
            (10 * 1042..10 * 1042 + 2000).contains(&bytes) && (10..30).contains(&packets),
            "{bytes} in {packets}"
        );
    }
    // The other tool sees no less than we saw just before, and we no less than it saw.
    let theirs = link(a.namespace(), "eth0")["stats64"]["tx"]["bytes"].as_u64().unwrap();
    assert!(after.0.tx_bytes <= theirs && theirs <= a.counters("eth0").await.unwrap().tx_bytes);
}
