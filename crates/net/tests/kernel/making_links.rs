//! Making links of every kind.

use net::{Error, LinkKind, NewLink, Peer, Vxlan};

use crate::fixture::{Fixture, ask, link, mac, not_run_here, run};

#[tokio::test]
async fn a_veth_pair_has_its_peer_in_another_namespace_from_the_beginning() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.handle("a"), fixture.handle("b"));
    a.create_link(&NewLink::bridge("bridge0").up()).await.unwrap();
    let peer = Peer::new("eth0").namespace(b.namespace()).mac(mac("02:00:00:00:00:02")).mtu(1400).up();
    let pair = NewLink::veth("node-b", peer).mac(mac("02:00:00:00:00:01")).mtu(1400).master("bridge0").up();
    a.create_link(&pair).await.unwrap();

    let (here, there) = (link(a.namespace(), "node-b"), link(b.namespace(), "eth0"));
    assert_eq!((&here["address"], &here["mtu"]), (&"02:00:00:00:00:01".into(), &1400.into()));
    assert_eq!((&there["address"], &there["mtu"]), (&"02:00:00:00:00:02".into(), &1400.into()));
    assert_eq!((&here["operstate"], &there["operstate"]), (&"UP".into(), &"UP".into()));
    assert_eq!((&here["master"], &here["link_index"]), (&"bridge0".into(), &there["ifindex"]));
    assert!(a.find_link("eth0").await.unwrap().is_none());

    // A pair whose peer's name is taken is not made at all.
    let taken = NewLink::veth("second", Peer::new("eth0").namespace(b.namespace()));
    assert!(a.create_link(&taken).await.unwrap_err().is_already_exists());
    assert!(a.ensure_link(&taken).await.unwrap_err().is_already_exists());
    assert!(a.find_link("second").await.unwrap().is_none());
}

#[tokio::test]
async fn a_bridge_has_no_spanning_tree() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle
        .create_link(&NewLink::bridge("bridge0").mtu(9000).mac(mac("02:00:00:00:00:01")).up())
        .await
        .unwrap();
    let seen = link(handle.namespace(), "bridge0");
    assert_eq!((&seen["mtu"], &seen["address"]), (&9000.into(), &"02:00:00:00:00:01".into()));
    assert_eq!(seen["linkinfo"]["info_kind"], "bridge");
    assert_eq!(seen["linkinfo"]["info_data"]["stp_state"], 0);
}

#[tokio::test]
async fn a_bridge_keeps_its_mtu_whatever_its_ports_have() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.handle("a"), fixture.handle("b"));
    for (bridge, mtu, ports) in [("large", 9000, 1500), ("usual", 1500, 9000)] {
        a.create_link(&NewLink::bridge(bridge).namespace(b.namespace()).mtu(mtu)).await.unwrap();
        run(
            b.namespace(),
            &format!("ip link add {bridge}-0 mtu {ports} master {bridge} type veth peer name {bridge}-1"),
        );
        assert_eq!(link(b.namespace(), bridge)["mtu"], mtu);
    }
    // The least is 68, so that making it succeeds and changing it does not.
    let impossible = b.create_link(&NewLink::bridge("tiny").mtu(67)).await.unwrap_err();
    assert!(matches!(impossible, Error::Refused { .. }), "{impossible}");
    assert!(b.find_link("tiny").await.unwrap().is_none(), "nothing is left half made");
}

#[tokio::test]
async fn a_bridge_filters_vlans_or_is_not_made() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    match handle.create_link(&NewLink::vlan_bridge("bridge0")).await {
        Ok(()) => {
            let seen = link(handle.namespace(), "bridge0");
            assert_eq!(seen["linkinfo"]["info_data"]["vlan_filtering"], 1);
        }
        Err(error) => {
            assert!(error.is_unsupported(), "{error}");
            not_run_here("a bridge that filters VLANs", &error);
            assert!(
                handle.find_link("bridge0").await.unwrap().is_none(),
                "one that does not filter must not be left"
            );
        }
    }
}

#[tokio::test]
async fn a_macvlan_is_made_in_the_namespace_that_it_is_for() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.handle("a"), fixture.handle("b"));
    a.create_link(&NewLink::veth("eth1", Peer::new("wire")).up()).await.unwrap();
    let child =
        NewLink::macvlan("migration0", "eth1").namespace(b.namespace()).mac(mac("02:00:00:00:00:07")).up();
    a.create_link(&child).await.unwrap();
    let seen = link(b.namespace(), "migration0");
    assert_eq!(seen["linkinfo"]["info_data"]["mode"], "bridge");
    assert_eq!(
        (&seen["address"], &seen["link_index"]),
        (&"02:00:00:00:00:07".into(), &a.link("eth1").await.unwrap().index.into())
    );
    let read = b.link("migration0").await.unwrap();
    assert_eq!((read.kind, read.parent_elsewhere), (LinkKind::Macvlan { mode: "bridge".to_owned() }, true));
    assert!(!a.ensure_link(&child).await.unwrap(), "it is looked for where it was made");
    assert!(a.create_link(&NewLink::macvlan("other", "absent")).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_vxlan_has_its_ends() {
    let fixture = Fixture::new();
    let (a, _b) = fixture.pair().await;
    let over_v4 = Vxlan {
        vni: 7,
        local: "192.0.2.1".parse().unwrap(),
        remote: "192.0.2.2".parse().ok(),
        port: 4789,
        parent: None,
    };
    let over_v6 = Vxlan {
        vni: 8,
        local: "2001:db8::1".parse().unwrap(),
        remote: "ff02::8".parse().ok(),
        port: 4790,
        parent: Some("eth0".into()),
    };
    a.create_link(&NewLink::vxlan("tunnel4", over_v4.clone()).up()).await.unwrap();
    a.create_link(&NewLink::vxlan("tunnel6", over_v6)).await.unwrap();
    let data = link(a.namespace(), "tunnel4")["linkinfo"]["info_data"].clone();
    assert_eq!((&data["id"], &data["port"]), (&7.into(), &4789.into()));
    assert_eq!((&data["local"], &data["remote"]), (&"192.0.2.1".into(), &"192.0.2.2".into()));
    let data = link(a.namespace(), "tunnel6")["linkinfo"]["info_data"].clone();
    assert_eq!(
        (&data["local6"], &data["group6"], &data["link"]),
        (&"2001:db8::1".into(), &"ff02::8".into(), &"eth0".into())
    );
    assert!(!a.ensure_link(&NewLink::vxlan("tunnel4", over_v4.clone())).await.unwrap());
    let other = NewLink::vxlan("tunnel4", Vxlan { vni: 9, ..over_v4 });
    assert!(matches!(a.ensure_link(&other).await, Err(Error::Different { .. })));
}

async fn check_vlan(fixture: &Fixture) -> Result<(), Error> {
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::veth("eth1", Peer::new("wire")).up()).await.unwrap();
    for id in [0, 4095] {
        let impossible = handle.create_link(&NewLink::vlan("eth1.x", "eth1", id)).await;
        assert!(matches!(impossible, Err(Error::Invalid { .. })), "{id}");
    }
    handle.create_link(&NewLink::vlan("eth1.100", "eth1", 100).up()).await?;
    let seen = link(handle.namespace(), "eth1.100");
    assert_eq!((&seen["link"], &seen["linkinfo"]["info_data"]["id"]), (&"eth1".into(), &100.into()));
    run(handle.namespace(), "ip link add link eth1 name eth1.200 type vlan id 200");
    assert_eq!(handle.link("eth1.200").await?.kind, LinkKind::Vlan { id: 200 });
    Ok(())
}

/// Whatever the kernel, the answer is right; on one without VLANs it is "this kernel cannot do that".
#[tokio::test]
async fn a_vlan_is_made_or_refused_by_name() {
    if let Err(error) = check_vlan(&Fixture::new()).await {
        assert!(error.is_unsupported(), "{error}");
        not_run_here("VLAN links", &error);
    }
}

#[tokio::test]
async fn a_dummy_or_what_stands_in_for_it_holds_addresses() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::dummy("dummy0").mtu(1400).up()).await.unwrap();
    let kind = link(handle.namespace(), "dummy0")["linkinfo"]["info_kind"].clone();
    assert!(kind == "dummy" || kind == "bridge", "{kind}");
    run(handle.namespace(), "ip address add 2001:db8::1/64 dev dummy0 nodad");
    let seen = ask(handle.namespace(), "ip -j address show dev dummy0 scope global");
    assert_eq!(seen[0]["addr_info"][0]["tentative"], serde_json::Value::Null);
    assert!(!handle.ensure_link(&NewLink::dummy("dummy0")).await.unwrap());
}

#[tokio::test]
async fn ensuring_a_link_brings_it_into_line_and_refuses_another_kind() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::bridge("bridge0")).await.unwrap();
    let wanted = NewLink::veth("pair0", Peer::new("pair1"))
        .mac(mac("02:00:00:00:00:01"))
        .mtu(1400)
        .master("bridge0")
        .up();
    assert!(handle.ensure_link(&wanted).await.unwrap());
    assert!(handle.create_link(&wanted).await.unwrap_err().is_already_exists());
    run(handle.namespace(), "ip link set pair0 down mtu 1500 address 02:00:00:00:00:05 nomaster");
    assert!(!handle.ensure_link(&wanted).await.unwrap());
    let seen = link(handle.namespace(), "pair0");
    assert_eq!(
        (&seen["mtu"], &seen["address"], &seen["master"]),
        (&1400.into(), &"02:00:00:00:00:01".into(), &"bridge0".into())
    );
    assert!(seen["flags"].as_array().unwrap().contains(&"UP".into()));

    let error = handle.ensure_link(&NewLink::bridge("pair0")).await.unwrap_err();
    assert!(matches!(error, Error::Different { .. }), "{error}");
    let words = "link pair0 in namespace a is there, but it is a veth link and not a bridge";
    assert!(error.to_string().starts_with(words), "{error}");
    assert_eq!(handle.link("pair0").await.unwrap().kind, LinkKind::Veth);
}

#[tokio::test]
async fn errors_say_what_was_done_to_what_and_where() {
    let fixture = Fixture::new();
    let handle = fixture.handle("a");
    handle.create_link(&NewLink::bridge("bridge0")).await.unwrap();
    let error = handle.create_link(&NewLink::bridge("bridge0")).await.unwrap_err();
    assert_eq!(error.to_string(), "creating bridge bridge0 in namespace a: it is already there");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("EEXIST"), "{cause}");
    let error = handle.set_mtu("bridge0", 1).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("mtu less than device minimum"), "the kernel's own words: {cause}");
    let error = handle.create_link(&NewLink::bridge("a-name-that-is-too-long")).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let group = NewLink::bridge("bridge1").mac(mac("01:00:00:00:00:01"));
    assert!(matches!(handle.create_link(&group).await, Err(Error::Invalid { .. })));
}
