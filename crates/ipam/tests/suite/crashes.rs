//! Whatever dies: no address is lost, none is given twice.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;
use testkit::Options;

use crate::world::{Interface, World, answer};

#[tokio::test]
async fn del_succeeds_without_an_api_server_and_is_made_good_by_the_next_call() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    // The same node, while its API server cannot be reached: nobody listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let kubeconfig = world.journal().with_file_name("unreachable");
    let text = std::fs::read_to_string(world.server.kubeconfig()).unwrap();
    let address = world.server.address().await;
    std::fs::write(&kubeconfig, text.replace(&format!(":{}", address.port()), &format!(":{port}"))).unwrap();
    let down = world.config(json!({ "range": "10.1.0.0/24", "kubernetes": { "kubeconfig": kubeconfig } }));

    let (first, second, third) = (Interface::of("first"), Interface::of("second"), Interface::of("third"));
    world.add(&first, &config).ip();
    let kept = world.add(&second, &config).ip();
    let (code, text) = world.add(&third, &down).error();
    assert_eq!(code, 11, "{text}");
    assert!(text.contains("cannot be reached"), "{text}");
    world.del(&third, &down);
    world.del(&first, &down);
    world.del(&second, &down);
    assert_eq!(world.owned().await.len(), 2, "nothing could be freed");
    // The second container is back before its release: it keeps its address, and the release is off.
    assert_eq!(world.add(&second, &config).ip(), kept);
    assert_eq!(world.owned().await, [kept], "the next call freed the first");
    assert_eq!(world.journal_files().len(), 1);
    // Nonsense on the way down is no reason to fail either.
    for config in [json!("{"), json!({}), json!({ "ipam": { "range": 5 } })] {
        world.del(&Interface::of("nobody"), &config);
    }
}

#[tokio::test]
async fn an_api_server_that_is_killed_loses_no_address() {
    let mut world = World::with(Options { durable: true, ..Options::default() }).await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let address = world.add(&Interface::of("a"), &config).ip();
    world.server.kill().await;
    world.client = world.server.client().await;
    assert_eq!(world.add(&Interface::of("a"), &config).ip(), address);
    assert_ne!(world.add(&Interface::of("b"), &config).ip(), address);
}

/// Kills plugins at random moments of their lives, some of them again when they are tried again, as a runtime would.
#[tokio::test]
async fn a_plugin_that_is_killed_anywhere_leaks_nothing_and_gives_nothing_twice() {
    let seed = 0x00c0_ffee;
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new().await;
    let config = world.config(json!({ "ipRanges": [
        { "range": "10.1.0.0/25" }, { "range": "fd00:1::/120" } ], "rest_seconds": 0 }));
    // How long an undisturbed call takes, to kill within it.
    let begin = std::time::Instant::now();
    let calibration = Interface::of("calibration");
    world.add(&calibration, &config).ips();
    let whole = u64::try_from(begin.elapsed().as_micros()).unwrap();
    world.del(&calibration, &config);

    let mut pods = Vec::new();
    for number in 0..24 {
        pods.push(world.pod(&format!("pod-{number}")).await);
    }
    let mut holders: BTreeMap<std::net::IpAddr, String> = BTreeMap::new();
    let mut killed = 0;
    for round in 0..120 {
        let pod = &pods[random.usize(..pods.len())];
        let command = if random.u8(..3) == 0 { "DEL" } else { "ADD" };
        let mut child = world.start(command, pod, &config);
        if random.bool() {
            tokio::time::sleep(Duration::from_micros(random.u64(..whole))).await;
            child.kill().unwrap();
            killed += u32::from(!child.wait().unwrap().success());
        } else {
            let answer = answer(child);
            assert!(answer.success, "seed {seed:#x}, round {round}: {answer:?}");
            holders.retain(|_, holder| *holder != pod.pod);
            if command == "ADD" {
                for address in answer.ips() {
                    let before = holders.insert(address, pod.pod.clone());
                    assert!(before.is_none(), "seed {seed:#x}, round {round}: {address} is {before:?}'s too");
                }
            }
            continue;
        }
        // A killed DEL may have freed; what a killed ADD has, the next call finds.
        if command == "DEL" {
            holders.retain(|_, holder| *holder != pod.pod);
        }
    }
    // How many are still at work when the signal comes depends on the machine.
    assert!(killed > 3, "only {killed} of the plugins died");
    // Whoever is asked again has one address of each range: no more are held than that.
    for pod in &pods {
        world.add(pod, &config).ips();
    }
    assert_eq!(world.owned().await.len(), pods.len() * 2, "seed {seed:#x}");
    // Half go as they should, half as if their node had been lost.
    for (number, pod) in pods.iter().enumerate() {
        if number % 2 == 0 {
            world.del(pod, &config);
        } else {
            world.delete_pod(&pod.pod).await;
        }
    }
    assert_eq!(world.owned().await.len(), pods.len(), "seed {seed:#x}");
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!(swept.released.len(), pods.len(), "seed {seed:#x}: {swept:?}");
    assert_eq!(world.owned().await.len(), 0);
}

/// A pod that is killed in ADD and never comes back: only the sweep can know.
#[tokio::test]
async fn the_sweep_frees_what_is_nobodys_and_never_what_somebody_has() {
    let world = World::new().await;
    let config = world.config(json!({ "range": "10.1.0.0/24" }));
    let (live, gone) = (world.pod("live").await, world.pod("gone").await);
    let held = world.add(&live, &config).ip();
    let lost = world.add(&gone, &config).ip();
    world.delete_pod("gone").await;
    // Another of its name is another.
    world.pod("gone").await;
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.released.len(), swept.kept), (1, 1), "{swept:?}");
    assert_eq!(world.owned().await, [held]);
    let object =
        world.objects().await.into_iter().find(|object| object.spec.address == lost.to_string()).unwrap();
    assert!(object.spec.released_at.is_some(), "it rests before another has it");
    let swept = ipam::sweep::sweep(&world.client).await.unwrap();
    assert_eq!((swept.released.len(), swept.forgotten, swept.kept), (0, 0, 2), "{swept:?}");
}
