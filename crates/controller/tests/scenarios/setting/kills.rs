//! The controller is killed at every write that it makes on its way, before or after the API server took it: it ends in the same
//! state.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use api::names::annotations;
use apiserver::auth::User;
use kube::{Client, ResourceExt as _};
use tokio::sync::Notify;
use tower::{ServiceExt as _, service_fn};

use super::world::{FIRST, SECOND, World};
use crate::support::{Cluster, NAMESPACE, options};

/// Where a controller is killed.
#[derive(Clone, Copy, Debug)]
struct Kill {
    /// At the write of this number.
    write: usize,
    /// The API server has taken it.
    after: bool,
}

/// A client whose call at the fatal write never returns, and the news of it.
fn doomed(cluster: &Cluster, kill: Kill) -> (Client, Arc<Notify>) {
    let (writes, news) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let fatal = Arc::clone(&news);
    let service = cluster.server.service(User::admin());
    let service = service_fn(move |request: http::Request<kube::client::Body>| {
        let (service, writes, fatal) = (service.clone(), Arc::clone(&writes), Arc::clone(&fatal));
        async move {
            // What others write, they write beside this work, in no order.
            let ours = ["settings/", "kubevirts/", "network-attachment-definitions"];
            let counts = request.method() != http::Method::GET
                && ours.iter().any(|kind| request.uri().path().contains(kind));
            let is_fatal = counts && writes.fetch_add(1, Ordering::Relaxed) + 1 == kill.write;
            if !is_fatal {
                return service.oneshot(request).await;
            }
            if kill.after {
                service.oneshot(request).await?;
            }
            fatal.notify_one();
            std::future::pending().await
        }
    });
    (Client::new(service, NAMESPACE), news)
}

/// What everything has come to.
#[derive(Debug, PartialEq)]
struct End {
    network: Option<String>,
    definitions: Vec<String>,
    noted: Vec<Option<String>>,
}

async fn end(world: &World) -> End {
    let setting = world.setting().await;
    let noted = [annotations::MIGRATION_NETWORK_HASH, annotations::MIGRATION_NETWORK_DEFINITION];
    End {
        network: world.network_in_use().await,
        definitions: world.definitions().await,
        noted: noted.iter().map(|name| setting.annotations().get(*name).cloned()).collect(),
    }
}

/// A network, another, and none; the state after each.
async fn life(world: &World) -> Vec<End> {
    let mut ends = Vec::new();
    for value in [FIRST, SECOND, ""] {
        world.establish(value).await;
        ends.push(end(world).await);
    }
    ends
}

/// The same with controllers that are killed one after another; and how many were.
async fn life_with_kills(cluster: &Cluster, world: &World, kills: impl Fn() -> Kill) -> (Vec<End>, usize) {
    let killed = AtomicUsize::new(0);
    let sabotage = async {
        loop {
            let (client, fatal) = doomed(cluster, kills());
            cluster.start_with(client, options("controller-1"));
            fatal.notified().await;
            cluster.kill();
            killed.fetch_add(1, Ordering::Relaxed);
        }
    };
    let ends = tokio::select! {
        ends = life(world) => ends,
        () = sabotage => Vec::new(),
    };
    cluster.kill();
    (ends, killed.into_inner())
}

#[tokio::test]
async fn controllers_killed_at_any_write_end_in_the_same_state() {
    let cluster = Cluster::new().await;
    let world = World::new(&cluster).await;
    cluster.start();
    let undisturbed = life(&world).await;
    cluster.kill();
    assert_eq!(undisturbed[0].definitions.len(), 1);
    assert_ne!(undisturbed[0], undisturbed[1]);
    assert_eq!(undisturbed[2], End { network: None, definitions: Vec::new(), noted: vec![None, None] });

    // Each controller has one write, and is killed when it was taken, or when it is about to make the next: together they are
    // killed around every write that there is.
    for kill in [Kill { write: 1, after: true }, Kill { write: 2, after: false }] {
        let (ends, kills) = Box::pin(life_with_kills(&cluster, &world, || kill)).await;
        assert_eq!(ends, undisturbed, "{kill:?}");
        // Definition, KubeVirt, deletion, annotations, and the conditions between.
        assert!(kills >= 15, "{kill:?}: only {kills} places to be killed at were found");
    }
    for seed in 0..3 {
        let chance = Mutex::new(fastrand::Rng::with_seed(seed));
        let kills = || {
            let mut chance = chance.lock().unwrap();
            // A first write is needed to get anywhere.
            let after = chance.bool();
            Kill { write: chance.usize(if after { 1..=4 } else { 2..=5 }), after }
        };
        let (ends, _) = Box::pin(life_with_kills(&cluster, &world, kills)).await;
        assert_eq!(ends, undisturbed, "seed {seed}");
    }
}
