//! What a pool gives: chosen addresses, one of each range or none, rest, and an end that is explained.

use std::net::IpAddr;

use api::godwit::AddressAllocation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::world::{Interface, World};

#[tokio::test]
async fn a_chosen_address_is_honoured_or_refused_with_who_has_it() {
    let world = World::new().await;
    let mut config = world.config(json!({ "range": "10.1.0.0/24", "exclude": ["10.1.0.9"] }));
    let chosen = |address: &str| json!({ "ips": [address] });
    config["runtimeConfig"] = chosen("10.1.0.7/24");
    let first = Interface::of("first");
    assert_eq!(world.add(&first, &config).ip().to_string(), "10.1.0.7");
    let (code, text) = world.add(&Interface::of("second"), &config).error();
    assert_eq!(code, 101);
    assert!(text.contains("10.1.0.7 is taken by pod default/first (interface net1, node node-1)"), "{text}");
    for (address, words) in
        [("10.1.0.9", "10.1.0.9 is excluded"), ("10.2.0.1", "outside of"), ("10.1.0.255", "never given")]
    {
        config["runtimeConfig"] = chosen(address);
        let (code, text) = world.add(&Interface::of("second"), &config).error();
        assert_eq!(code, 101, "{text}");
        assert!(text.contains(words), "{words:?} is not in {text:?}");
    }
    config["runtimeConfig"] = chosen("10.1.0.8");
    let (_, text) = world.add(&first, &config).error();
    assert!(text.contains("10.1.0.7 is held already"), "{text}");
    // What was given stays, what was refused left nothing.
    assert_eq!(world.owned().await, ["10.1.0.7".parse::<IpAddr>().unwrap()]);
    assert_eq!(world.journal_files().len(), 1);
    // The other ways to say it.
    config["runtimeConfig"] = json!({});
    config["args"] = json!({ "cni": { "ips": ["10.1.0.20"] } });
    assert_eq!(world.add(&Interface::of("third"), &config).ip().to_string(), "10.1.0.20");
}

#[tokio::test]
async fn a_full_pool_says_how_full_and_by_whom() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/29", "gateway": "10.1.0.1" }));
    for pod in ["a", "b", "c", "d", "e"] {
        world.add(&Interface::of(pod), &config).ip();
    }
    assert_eq!(world.owned().await.len(), 5);
    let (code, text) = world.add(&Interface::of("late"), &config).error();
    assert_eq!(code, 100);
    for words in [
        "10.1.0.0/29 has no free address: of 5 that can be given, 5 are taken and 0 are resting",
        "namespace default: 5 by pods, 0 by claims",
        "pod default/a (interface net1, node node-1)",
        "widen the range",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text:?}");
    }
    let (code, text) = world.call("STATUS", &Interface::of("late"), &config).error();
    assert_eq!(code, 50);
    assert!(text.contains("5 are taken"), "{text}");
    world.del(&Interface::of("c"), &config);
    let (_, text) = world.add(&Interface::of("late"), &config).error();
    assert!(text.contains("4 are taken and 1 are resting; the first of them can be given in"), "{text}");
    assert_eq!(world.journal_files().len(), 4, "a refused ADD leaves no entry");
}

/// STATUS costs one request of one page, however much the network has that the pool is of.
#[tokio::test]
async fn the_fullness_of_a_pool_is_told_unless_its_network_is_large() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.5-10.1.0.5/24" }));
    let of = Interface::of("a");
    world.add(&of, &config).ip();
    let (code, text) = world.call("STATUS", &of, &config).error();
    assert_eq!(code, 50, "{text}");
    // Others of the same network, as the plugin would write them.
    let addresses: Api<AddressAllocation> = Api::all(world.client.clone());
    let mut other = world.objects().await.remove(0);
    other.metadata = ObjectMeta { labels: other.metadata.labels, ..ObjectMeta::default() };
    for number in 0..500_u32 {
        let address = std::net::Ipv4Addr::from(0x0a02_0000 + number);
        other.spec.address = address.to_string();
        other.metadata.name = Some(api::godwit::allocation_name("shared", address.into()).unwrap());
        addresses.create(&PostParams::default(), &other).await.unwrap();
    }
    let answer = world.call("STATUS", &of, &config);
    assert!(answer.success, "what does not fit into a page is not read: {answer:?}");
    assert_eq!(world.add(&Interface::of("b"), &config).error().0, 100, "ADD says it");
}

#[tokio::test]
async fn a_freed_address_rests_and_is_then_given_again() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.5-10.1.0.5/24" }));
    let (first, second) = (Interface::of("first"), Interface::of("second"));
    let address = world.add(&first, &config).ip();
    world.del(&first, &config);
    let objects = world.objects().await;
    assert!(objects[0].spec.owner.is_none() && objects[0].spec.released_at.is_some(), "it rests");
    assert_eq!(world.add(&second, &config).error().0, 100);
    world.released_ago(61).await;
    assert!(world.call("STATUS", &second, &config).success);
    assert_eq!(world.add(&second, &config).ip(), address);
    assert_eq!(world.owner(address).await, Some(second.owner("node-1")));
    // Whoever says that nothing need rest has it at once.
    let hasty = world.config(json!({ "range": "10.1.0.6-10.1.0.6/24", "rest_seconds": 0 }));
    let third = Interface::of("third");
    world.add(&third, &hasty);
    world.del(&third, &hasty);
    assert_eq!(world.objects().await.len(), 1);
    world.add(&Interface::of("fourth"), &hasty).ip();
}

#[tokio::test]
async fn an_address_rests_for_as_long_as_it_was_given_with_whoever_asks_and_whoever_releases() {
    let world = World::new().await;
    let range = "10.1.0.5-10.1.0.6/24";
    let long = world.config(json!({ "range": range, "rest_seconds": 600 }));
    let usual = world.config(json!({ "range": range }));
    let (deleted, lost) = (Interface::of("deleted"), world.pod("lost").await);
    world.add(&deleted, &long).ip();
    world.add(&lost, &long).ip();
    let periods = async || {
        let objects = world.objects().await;
        objects.iter().map(|object| object.spec.rest_seconds).collect::<Vec<_>>()
    };
    assert_eq!(periods().await, [Some(600), Some(600)], "it is written with the address");
    world.del(&deleted, &long);
    world.delete_pod("lost").await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!(swept.released.len(), 1, "{swept:?}");
    assert_eq!(periods().await, [Some(600), Some(600)], "and outlives its release");

    // Longer than others rest.
    world.released_ago(61).await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.forgotten, swept.kept), (0, 2), "{swept:?}");
    let (code, text) = world.add(&Interface::of("hasty"), &usual).error();
    assert_eq!(code, 100, "{text}");
    assert!(text.contains("2 are resting"), "{text}");

    world.released_ago(601).await;
    world.add(&Interface::of("hasty"), &usual).ip();
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.forgotten, swept.released.len()), (1, 1), "the hasty one is no pod: {swept:?}");
    assert_eq!(periods().await, [Some(60)], "who has it next has it with a period of its own");
}

#[tokio::test]
async fn both_families_or_neither() {
    let world = World::new().await;
    let ranges = |last: &str| {
        json!({ "ipRanges": [
            { "range": "10.1.0.0/24", "gateway": "10.1.0.1" },
            { "range": "fd00:1::/112", "range_start": "fd00:1::10", "range_end": last, "gateway": "fd00:1::1" },
        ]})
    };
    let config = world.config(ranges("fd00:1::10"));
    let added = world.add(&Interface::of("first"), &config);
    let ips = added.ips();
    assert!(ips[0].is_ipv4() && ips[1].to_string() == "fd00:1::10", "{ips:?}");
    assert_eq!(added.json["ips"][0]["gateway"], "10.1.0.1");
    assert_eq!(added.json["ips"][1]["gateway"], "fd00:1::1");
    let (code, text) = world.add(&Interface::of("second"), &config).error();
    assert_eq!(code, 100);
    assert!(text.contains("fd00:1::/112 has no free address"), "{text}");
    let objects = world.objects().await;
    assert_eq!(objects.len(), 2, "of the second there is not even an object: {objects:?}");
    let wider = world.config(ranges("fd00:1::11"));
    assert_eq!(world.add(&Interface::of("second"), &wider).ips()[1].to_string(), "fd00:1::11");
    world.del(&Interface::of("second"), &wider);
    let owned = world.owned().await;
    assert_eq!(owned.len(), 2, "both were freed: {owned:?}");
}

#[tokio::test]
async fn equal_ranges_share_their_addresses_unless_they_are_named_apart() {
    let world = World::new().await;
    let mut shared = world.config(json!({ "range": "10.1.0.5-10.1.0.5/24" }));
    world.add(&Interface::of("a"), &shared).ip();
    shared["name"] = json!("another-definition");
    assert_eq!(world.add(&Interface::of("b"), &shared).error().0, 100);
    let apart = world.config(json!({ "range": "10.1.0.5-10.1.0.5/24", "network_name": "Tenant_b" }));
    assert_eq!(world.add(&Interface::of("b"), &apart).ip().to_string(), "10.1.0.5");
}
