//! Addresses of pods: given once, kept, checked, freed.

use std::net::IpAddr;

use serde_json::json;

use crate::world::{Interface, World, with_previous};

#[tokio::test]
async fn an_address_is_given_kept_checked_and_freed() {
    let world = World::new().await;
    let config = world.config(json!({
        "range": "10.1.0.0/24", "gateway": "10.1.0.1", "exclude": ["10.1.0.128/25"],
        "routes": [{ "dst": "10.9.0.0/16", "gw": "10.1.0.1" }], "dns": { "nameservers": ["10.1.0.53"] },
        "leader_lease_duration": 1500, "surprise": true,
    }));
    let first = Interface::of("first");
    let added = world.add(&first, &config);
    let address = added.ip();
    let IpAddr::V4(v4) = address else { panic!("{address}") };
    assert!(v4.octets()[..3] == [10, 1, 0] && (2..128).contains(&v4.octets()[3]), "{address}");
    assert_eq!(added.json["cniVersion"], "1.1.0");
    assert_eq!(added.json["ips"][0], json!({ "address": format!("{address}/24"), "gateway": "10.1.0.1" }));
    assert_eq!(added.json["routes"], json!([{ "dst": "10.9.0.0/16", "gw": "10.1.0.1" }]));
    assert_eq!(added.json["dns"], json!({ "nameservers": ["10.1.0.53"] }));
    assert!(added.stderr.contains("ipam.surprise is not known here"), "{}", added.stderr);
    assert!(!added.stderr.contains("leader_lease"), "{}", added.stderr);

    let objects = world.objects().await;
    assert_eq!(objects.len(), 1, "one address, one object");
    let name = format!("{}.shared", address.to_string().replace('.', "-"));
    assert_eq!(objects[0].metadata.name.as_deref(), Some(name.as_str()));
    assert_eq!(objects[0].spec.owner, Some(first.owner("node-1")));

    assert_eq!(world.add(&first, &config).ip(), address, "ADD again gives the same");
    assert_eq!(world.objects().await.len(), 1);
    let second = world.add(&Interface::of("second"), &config).ip();
    assert_ne!(second, address);

    let (code, text) = world.call("CHECK", &first, &config).error();
    assert_eq!(code, 7, "there is nothing to check: {text}");
    assert!(text.contains("prevResult"), "{text}");
    let remembered = with_previous(&config, &added);
    assert!(world.call("CHECK", &first, &remembered).success);
    world.del(&first, &remembered);
    world.del(&first, &config);
    let (code, text) = world.call("CHECK", &first, &remembered).error();
    assert_eq!(code, 103);
    assert!(text.contains(&format!("{address} of network shared is free")), "{text}");
    assert_eq!(world.owned().await, [second]);
    assert_eq!(world.journal_files().len(), 1, "nothing of the first is left in the journal");
}

#[tokio::test]
async fn a_restarted_sandbox_keeps_its_address_and_the_old_one_cannot_free_it() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let old = Interface::of("a");
    let address = world.add(&old, &config).ip();
    let new = old.clone().container("restarted");
    assert_eq!(world.add(&new, &config).ip(), address);
    world.del(&old, &config);
    assert_eq!(world.owner(address).await, Some(new.owner("node-1")));
    world.del(&new, &config);
    assert_eq!(world.owned().await, Vec::<IpAddr>::new());
}

#[tokio::test]
async fn without_its_journal_the_runtimes_result_frees_an_address() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let (mine, other) = (Interface::of("mine"), Interface::of("other"));
    let added = world.add(&mine, &config);
    world.add(&other, &config);
    std::fs::remove_dir_all(world.journal()).unwrap();
    // A result of another's, or a stale one, frees nothing.
    world.del(&other, &with_previous(&config, &added));
    assert_eq!(world.owned().await.len(), 2);
    world.del(&mine, &with_previous(&config, &added));
    assert_eq!(world.owned().await.len(), 1);
}

#[tokio::test]
async fn garbage_is_what_the_runtime_does_not_list() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let mut elsewhere = world.config(json!({ "range": "10.1.0.0/24" }));
    elsewhere["name"] = json!("green");
    let (kept, garbage, foreign) =
        (Interface::of("kept"), Interface::of("garbage"), Interface::of("foreign"));
    let kept_address = world.add(&kept, &config).ip();
    world.add(&garbage, &config);
    let foreign_address = world.add(&foreign, &elsewhere).ip();
    // A runtime that says nothing of attachments is not taken to have none.
    assert!(world.call("GC", &kept, &config).success);
    assert_eq!(world.owned().await.len(), 3);
    let mut collecting = config.clone();
    collecting["cni.dev/valid-attachments"] = json!([{ "containerID": kept.container, "ifname": "net1" }]);
    let collected = world.call("GC", &kept, &collecting);
    assert!(collected.success, "{collected:?}");
    let mut left = world.owned().await;
    left.sort();
    let mut expected = [kept_address, foreign_address];
    expected.sort();
    assert_eq!(left, expected);
}

#[tokio::test]
async fn garbage_that_cannot_be_freed_is_told_and_the_other_garbage_is_freed() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let garbage = ["one", "two", "three", "four"].map(Interface::of);
    for interface in &garbage {
        world.add(interface, &config).ip();
    }
    // The first and the third file of the journal are of networks that no object can be named after.
    let mut files = world.journal_files();
    files.sort();
    for (file, letter) in [(&files[0], "a"), (&files[2], "b")] {
        let path = world.journal().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let long = format!(r#""network":"{}""#, letter.repeat(300));
        std::fs::write(&path, text.replace(r#""network":"shared""#, &long)).unwrap();
    }
    // An empty list is believed.
    let mut collecting = config.clone();
    collecting["cni.dev/valid-attachments"] = json!([]);
    let (code, text) = world.call("GC", &garbage[0], &collecting).error();
    assert_eq!(code, 7, "{text}");
    assert!(
        text.contains("2 of the attachments that the runtime does not list could not be freed"),
        "{text}"
    );
    assert!(text.contains("aaaa") && text.contains("bbbb"), "each says why: {text}");
    assert_eq!(world.owned().await.len(), 2, "the others were freed");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_its_code() {
    let world = World::new().await;
    let of = Interface::of("a");
    let version = world.call("VERSION", &of, &json!({ "cniVersion": "1.0.0" }));
    assert_eq!(version.json["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    let cases = [
        (json!({ "cniVersion": "1.1.0", "name": "blue" }), 7, "no ipam"),
        (world.config(json!({ "range": "10.1.0.0/31" })), 7, "too small"),
        (world.config(json!({ "range": "10.1.0.0" })), 7, "prefix"),
        (world.config(json!({ "range": 7 })), 6, "expected"),
        (
            world.config(json!({ "range": "10.1.0.0/24", "configuration_path": "/nowhere.conf" })),
            5,
            "/nowhere.conf",
        ),
        (
            world.config(json!({ "range": "10.1.0.0/24", "kubernetes": { "kubeconfig": "/nowhere" } })),
            7,
            "/nowhere",
        ),
        (json!({ "cniVersion": "9.0.0", "name": "blue", "ipam": { "range": "10.1.0.0/24" } }), 1, "9.0.0"),
    ];
    for (config, code, words) in cases {
        let (was, text) = world.add(&of, &config).error();
        assert_eq!(was, code, "{text}");
        assert!(text.contains(words), "{words:?} is not in {text:?}");
        world.del(&of, &config);
    }
    let broken = world.call("ADD", &of, &json!("{")).error();
    assert_eq!(broken.0, 6);
    assert_eq!(world.journal_files(), Vec::<String>::new());
}

#[tokio::test]
async fn the_settings_of_a_node_hold_for_all_its_networks() {
    let world = World::new().await;
    let settings = world.journal().with_file_name("whereabouts.conf");
    let log = world.journal().with_file_name("log");
    let text = json!({
        "datastore": "kubernetes", "kubernetes": { "kubeconfig": world.server.kubeconfig() },
        "log_file": log, "log_level": "debug", "data_dir": world.journal(), "node_name": "node-9",
    });
    std::fs::write(&settings, text.to_string()).unwrap();
    let config = json!({ "cniVersion": "0.3.1", "name": "blue", "type": "bridge",
        "ipam": { "type": "whereabouts", "range": "10.1.0.10-10.1.0.12/24", "configuration_path": settings } });
    let of = Interface::of("a");
    let added = world.add(&of, &config);
    assert_eq!(added.json["ips"][0]["version"], "4", "as 0.3.1 writes it");
    assert_eq!(world.owner(added.ip()).await, Some(of.owner("node-9")));
    assert!(std::fs::read_to_string(log).unwrap().contains("given:"));
}
