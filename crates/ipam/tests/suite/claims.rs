//! Addresses of claims: they outlive pods, and two pods of a move have the same.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{Interface, World, with_previous};

fn of_claim(world: &World, name: &str, ipam: Value) -> Value {
    let mut config = world.config(ipam);
    config["args"] = json!({ "cni": { "ipam-claim-reference": name } });
    config
}

#[tokio::test]
async fn the_interface_of_a_machines_pod_is_mute_until_its_addresses_are_the_guests() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let namespaces = net::Namespaces::at(directory.path().join("netns"));
    let handle = net::Handle::open(&namespaces.create("pod").unwrap()).unwrap();
    handle.create_link(&net::NewLink::veth("net1", net::Peer::new("peer"))).await.unwrap();
    let config = of_claim(&world, "vm.blue", json!({ "range": "10.1.0.0/24" }));
    world.claim("vm.blue", None).await;
    let pod = world.pod("launcher").await.in_namespace(handle.namespace().path());
    world.add(&pod, &config).ip();
    let plain = handle.unmute("net1").await;
    // Who holds a claim for a guest says so by this.
    let held = json!({ "metadata": { "finalizers": ["kubevirt.io/persistent-ipam"] } });
    world.claims().patch("vm.blue", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    let answer = world.add(&pod, &config);
    let mute = handle.unmute("net1").await;
    namespaces.delete_all().unwrap();
    assert!(!plain.unwrap(), "a pod's own address is for all to hear");
    assert!(mute.unwrap(), "{answer:?}");
    // One that cannot be made mute is not given the guest's addresses.
    let (code, text) = world.add(&pod, &config).error();
    assert_eq!(code, 11, "{text}");
    assert!(text.contains("cannot be made mute"), "{text}");
}

#[tokio::test]
async fn a_claims_addresses_outlive_pods_and_are_the_same_in_both_of_a_move() {
    let world = World::new().await;
    let config = of_claim(
        &world,
        "vm.blue",
        json!({ "ipRanges": [
        { "range": "10.1.0.0/24" }, { "range": "fd00:1::/112" } ]}),
    );
    let (source, target) = (world.pod("source").await, world.pod("target").await);
    let (code, text) = world.add(&source, &config).error();
    assert_eq!(code, 11, "it may be there soon: {text}");
    assert!(text.contains("claim default/vm.blue, which the pod refers to, does not exist"), "{text}");

    world.claim("vm.blue", None).await;
    let given = world.add(&source, &config).ips();
    assert_eq!(world.add(&source, &config).ips(), given, "ADD again");
    let claim = world.claims().get("vm.blue").await.unwrap();
    let status = claim.status.unwrap();
    assert_eq!(status.ips, [format!("{}/24", given[0]), format!("{}/112", given[1])]);
    assert_eq!(status.owner_pod.unwrap().name, "source");
    assert_eq!(
        (status.conditions[0].type_.as_str(), status.conditions[0].status.as_str()),
        ("IPsAllocated", "True")
    );

    // The target of a move: the same addresses, and the source stays the one that uses them.
    assert_eq!(world.add(&target, &config).ips(), given);
    let owner = world.claims().get("vm.blue").await.unwrap().status.unwrap().owner_pod;
    assert_eq!(owner.unwrap().name, "source");
    world.del(&source, &config);
    world.delete_pod("source").await;
    world.del(&target, &config);
    world.delete_pod("target").await;
    assert_eq!(world.owned().await.len(), 2, "no pod is left, and the claim has them still");

    let restarted = world.pod("restarted").await;
    assert_eq!(world.add(&restarted, &config).ips(), given);
    let owner = world.claims().get("vm.blue").await.unwrap().status.unwrap().owner_pod;
    assert_eq!(owner.unwrap().name, "restarted", "who was named is gone");
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.released.len(), swept.kept), (0, 2), "{swept:?}");

    world.claims().delete("vm.blue", &DeleteParams::default()).await.unwrap();
    world.delete_pod("restarted").await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!(swept.released.len(), 2, "{swept:?}");
    assert_eq!(world.owned().await.len(), 0);
}

#[tokio::test]
async fn a_pod_keeps_the_addresses_of_a_claim_that_was_forced_away_until_it_has_ended() {
    let world = World::new().await;
    let range = json!({ "range": "10.1.0.0/24" });
    let networks = |claim: &str| json!([{ "name": "blue", "ipam-claim-reference": claim }]).to_string();
    let default = |claim: &str| json!([{ "name": "blue", "namespace": "a", "ipam-claim-reference": claim }]);
    for claim in ["gone", "primary", "again"] {
        world.claim(claim, None).await;
    }
    let pods = [
        world.annotated_pod("gone", "k8s.v1.cni.cncf.io/networks", &networks("gone")).await,
        world
            .annotated_pod("primary", "v1.multus-cni.io/default-network", &default("primary").to_string())
            .await,
        world.annotated_pod("again", "k8s.v1.cni.cncf.io/networks", &networks("again")).await,
    ];
    for pod in &pods {
        world.add(pod, &of_claim(&world, &pod.pod, range.clone())).ip();
    }
    for claim in ["gone", "primary", "again"] {
        world.claims().delete(claim, &DeleteParams::default()).await.unwrap();
    }
    // Another claim of its name is not the one that it has its address of.
    world.claim("again", None).await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.released.len(), swept.kept), (0, 3), "{swept:?}");

    world.delete_pod("gone").await;
    world.end_pod("primary", "Succeeded").await;
    world.end_pod("again", "Failed").await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!(swept.released.len(), 3, "{swept:?}");
    assert_eq!(world.owned().await.len(), 0);
}

#[tokio::test]
async fn a_claim_may_say_which_addresses_it_wants() {
    let world = World::new().await;
    let range = json!({ "range": "10.1.0.0/24" });
    world.claim("one", Some("10.1.0.40")).await;
    world.claim("two", Some("10.1.0.40")).await;
    world.claim("three", Some("10.1.0.400")).await;
    let (a, b) = (world.pod("a").await, world.pod("b").await);
    assert_eq!(world.add(&a, &of_claim(&world, "one", range.clone())).ip().to_string(), "10.1.0.40");
    let (code, text) = world.add(&b, &of_claim(&world, "two", range.clone())).error();
    assert_eq!(code, 101);
    assert!(text.contains("10.1.0.40 is taken by claim default/one"), "{text}");
    let refused = world.claims().get("two").await.unwrap().status.unwrap();
    assert_eq!(
        (refused.conditions[0].status.as_str(), refused.conditions[0].reason.as_str()),
        ("False", "IPAddressConflict")
    );
    let (_, text) = world.add(&b, &of_claim(&world, "three", range.clone())).error();
    assert!(text.contains("10.1.0.400"), "{text}");
    let mut elsewhere = of_claim(&world, "one", range);
    elsewhere["name"] = json!("green");
    let (_, text) = world.add(&b, &elsewhere).error();
    assert!(text.contains("is for network \"blue\", and this is \"green\""), "{text}");
}

#[tokio::test]
async fn a_claim_that_was_made_anew_does_not_have_what_the_earlier_one_had() {
    let world = World::new().await;
    let config = of_claim(&world, "vm.blue", json!({ "range": "10.1.0.0/24" }));
    world.claim("vm.blue", None).await;
    let pod = world.pod("a").await;
    let added = world.add(&pod, &config);
    let address = added.ip();
    let remembered = with_previous(&config, &added);
    assert!(world.call("CHECK", &pod, &remembered).success);
    world.claims().delete("vm.blue", &DeleteParams::default()).await.unwrap();
    let (_, text) = world.call("CHECK", &pod, &remembered).error();
    assert!(text.contains("claim default/vm.blue, which the pod refers to, does not exist"), "{text}");
    world.claim("vm.blue", None).await;
    let (code, text) = world.call("CHECK", &pod, &remembered).error();
    assert_eq!(code, 103, "{text}");
    let words = format!("{address} of network shared is of an earlier claim default/vm.blue");
    assert!(text.contains(&words), "{text}");
}

#[tokio::test]
async fn an_address_that_the_status_does_not_say_yet_is_found_again() {
    let world = World::new().await;
    let config = of_claim(&world, "vm", json!({ "range": "10.1.0.0/24" }));
    let mut claim = world.claim("vm", None).await;
    let pod = world.pod("a").await;
    let address = world.add(&pod, &config).ip();
    // As if the plugin had been killed before it wrote the status, and another node asked next.
    claim.metadata.resource_version = None;
    claim.status = None;
    let status = json!({ "status": { "ips": [], "ownerPod": null, "conditions": [] } });
    let patch = Patch::Merge(status);
    world.claims().patch_status("vm", &PatchParams::default(), &patch).await.unwrap();
    std::fs::remove_dir_all(world.journal()).unwrap();
    assert_eq!(world.add(&pod, &config).ip(), address);
    assert_eq!(world.objects().await.len(), 1);
}

#[tokio::test]
async fn the_pods_annotation_says_the_claim_when_the_runtime_does_not() {
    let world = World::new().await;
    world.claim("vm", None).await;
    let pod = world.pod("a").await;
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::default_namespaced(world.client.clone());
    let networks = r#"[{"name":"other","interface":"net5"},{"name":"blue","interface":"net1","ipam-claim-reference":"vm"}]"#;
    let patch = json!({ "metadata": { "annotations": { "k8s.v1.cni.cncf.io/networks": networks } } });
    pods.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let mut config = world.config(json!({ "range": "10.1.0.0/24" }));
    config["allowPersistentIPs"] = json!(true);
    let address = world.add(&pod, &config).ip();
    assert!(world.owner(address).await.unwrap().claim.is_some());
    assert!(
        world.add(&Interface { uid: String::new(), ..world.pod("b").await }, &config).success,
        "its UID is asked for"
    );
}
