//! The manifest of the plugin: its rights are what the plugin uses, no more and no less.

use ipam::keeper;
use kube::Client;
use serde_json::{Value, json};
use testkit::{Granted, Used, eventually};

use crate::world::{Interface, World, with_previous};

const MANIFEST: &str = include_str!("../../../../deploy/godwit-cni.yaml");

/// A keeper that writes down what is asked through it.
async fn observed(world: &World, settings: &std::path::Path) -> Used {
    let used = Used::default();
    let (record, client) = (used.clone(), world.client.clone());
    let noting = tower::service_fn(move |request| {
        let (request, client) = (record.note(request), client.clone());
        async move { client.send(request).await }
    });
    let (socket, client) = (settings.join(keeper::SOCKET), Client::new(noting, "default"));
    let there = socket.clone();
    tokio::spawn(async move { keeper::serve(&socket, client).await });
    eventually("the keeper to listen", async || there.exists().then_some(())).await;
    used
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_has_every_right_that_it_uses_and_none_that_it_does_not() {
    let world = World::new().await;
    let settings = tempfile::tempdir().unwrap();
    let used = observed(&world, settings.path()).await;
    let config = |ipam: Value| {
        let mut ipam = ipam;
        ipam["kubernetes"] = json!({ "kubeconfig": settings.path().join("none.kubeconfig") });
        world.config(ipam)
    };
    // A pod that the runtime says too little of, is given an address, shows that it has it, and gives it back to rest.
    let pod = world.pod("pod").await;
    let unknown = Interface { uid: String::new(), ..pod.clone() };
    let plain = config(json!({ "range": "10.1.0.0/24" }));
    let given = world.add(&unknown, &plain);
    assert!(world.call("CHECK", &pod, &with_previous(&plain, &given)).success);
    world.del(&pod, &plain);
    // Addresses that need no rest, until there are no more.
    let small = config(json!({ "range": "10.2.0.0/30", "rest_seconds": 0 }));
    let pods = ["one", "two", "three"].map(Interface::of);
    assert!(world.add(&pods[0], &small).success && world.add(&pods[1], &small).success);
    assert!(!world.add(&pods[2], &small).success);
    world.del(&pods[0], &small);
    // A machine's.
    world.claim("vm.blue", None).await;
    let mut machines = config(json!({ "range": "10.3.0.0/24" }));
    machines["args"] = json!({ "cni": { "ipam-claim-reference": "vm.blue" } });
    world.add(&pod, &machines).ip();

    let documents: Vec<Value> = serde_saphyr::from_multiple(MANIFEST).unwrap();
    Granted::by(&documents).are_exactly(&used, |_, _| false);
}
