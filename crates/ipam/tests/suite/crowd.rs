//! Many at once: every address once, and nobody waits for a lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::world::{Interface, World};

/// 1,000 addresses to 50 plugin processes at a time, of a pool that has 1,022: it is nearly full at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_addresses_to_fifty_at_a_time_are_a_thousand_addresses() {
    const COUNT: usize = 1000;
    const AT_ONCE: usize = 50;
    let world = Arc::new(World::new().await);
    let config = Arc::new(world.config(json!({ "range": "10.1.0.0/22" })));
    let next = Arc::new(AtomicUsize::new(0));
    let begin = std::time::Instant::now();
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (world, config, next) = (world.clone(), config.clone(), next.clone());
            tokio::task::spawn_blocking(move || {
                let mut given = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= COUNT {
                        return given;
                    }
                    given.push(world.add(&Interface::of(&format!("pod-{number}")), &config).ip());
                }
            })
        })
        .collect();
    let mut given = Vec::new();
    for worker in workers {
        given.extend(worker.await.unwrap());
    }
    println!("{COUNT} addresses in {:?}", begin.elapsed());
    let distinct: BTreeSet<_> = given.iter().collect();
    assert_eq!((given.len(), distinct.len()), (COUNT, COUNT));
    let objects = world.objects().await;
    assert_eq!(objects.len(), COUNT, "nothing was taken on the way and left");
    let held: BTreeSet<_> = objects.iter().map(|object| object.spec.address.parse().unwrap()).collect();
    assert_eq!(held, given.into_iter().collect());
}
