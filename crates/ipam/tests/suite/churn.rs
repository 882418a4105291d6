//! Coming and going at once, in a small pool that also has claims and addresses at rest, and is swept meanwhile.
//!
//! An address counts as held from the answer to ADD until DEL is asked for, and as released from when DEL is asked for: whatever the
//! plugins did in between, two that hold one address by that measure did hold it, and one that is back too soon did not rest.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::{Interface, World};

const RANGE: &str = "10.1.0.0/27";
const PODS: usize = 10;
const CLAIMS: usize = 3;
const ROUNDS: usize = 12;
const REST_SECONDS: u32 = 1;
/// Somebody else's period, which outlasts the test.
const LONG_SECONDS: u32 = 600;
const PATIENCE: Duration = Duration::from_mins(2);

/// What those who asked know.
#[derive(Default)]
struct Seen {
    held: BTreeMap<IpAddr, String>,
    released: BTreeMap<IpAddr, Instant>,
    claimed: BTreeMap<String, IpAddr>,
    resting: BTreeSet<IpAddr>,
}

impl Seen {
    fn may_be_given(&self, address: IpAddr, to: &str) {
        assert!(!self.resting.contains(&address), "{address} rests for long and was given to {to}");
        let held = self.held.get(&address);
        assert_eq!(held, None, "{address} was given to {to} as well");
        let since = self.released.get(&address).map(Instant::elapsed);
        let rested = since.is_none_or(|since| since >= Duration::from_secs(REST_SECONDS.into()));
        assert!(rested, "{address} was given to {to} {since:?} after it was released");
    }

    fn given(&mut self, address: IpAddr, to: &str) {
        self.may_be_given(address, to);
        let claim = self.claimed.iter().find(|(_, claimed)| **claimed == address);
        assert_eq!(claim, None, "{address} was given to {to} as well");
        self.held.insert(address, to.to_owned());
    }

    fn given_to_claim(&mut self, address: IpAddr, claim: &str) {
        if let Some(claimed) = self.claimed.get(claim) {
            assert_eq!(*claimed, address, "the address of {claim}");
            return;
        }
        self.may_be_given(address, claim);
        let other = self.claimed.iter().find(|(_, claimed)| **claimed == address);
        assert_eq!(other, None, "{address} was given to {claim} as well");
        self.claimed.insert(claim.to_owned(), address);
    }

    fn about_to_be_released(&mut self, address: IpAddr) {
        self.held.remove(&address);
        self.released.insert(address, Instant::now());
    }
}

struct Churn {
    world: World,
    seen: Mutex<Seen>,
    /// How often the pool was full for the moment.
    refused: AtomicUsize,
}

impl Churn {
    /// As a runtime does: again, as long as the pool is full or others are faster.
    fn add(&self, of: &Interface, config: &Value) -> IpAddr {
        let begin = Instant::now();
        loop {
            let answer = self.world.add(of, config);
            if answer.success {
                return answer.ip();
            }
            let (code, text) = answer.error();
            assert!(code == 100 || text.contains("others were faster"), "{code} {text}");
            assert!(begin.elapsed() < PATIENCE, "{} has waited for too long: {text}", of.pod);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of_pod(&self, of: &Interface, config: &Value) {
        for _ in 0..ROUNDS {
            let address = self.add(of, config);
            self.seen.lock().unwrap().given(address, &of.pod);
            let again = self.world.add(of, config).ip();
            assert_eq!(again, address, "ADD again of {}", of.pod);
            self.seen.lock().unwrap().about_to_be_released(address);
            self.world.del(of, config);
        }
    }

    /// One of the two pods of a move.
    fn of_claim(&self, of: &Interface, claim: &str, config: &Value) {
        let mut config = config.clone();
        config["args"] = json!({ "cni": { "ipam-claim-reference": claim } });
        for _ in 0..ROUNDS {
            let address = self.add(of, &config);
            self.seen.lock().unwrap().given_to_claim(address, claim);
            self.world.del(of, &config);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_and_goes_no_address_is_held_twice_nor_given_while_it_rests_or_is_claimed() {
    let world = World::new().await;
    let long = world.config(json!({ "range": RANGE, "rest_seconds": LONG_SECONDS }));
    let config = Arc::new(world.config(json!({ "range": RANGE, "rest_seconds": REST_SECONDS })));
    let mut seen = Seen::default();
    for pod in ["a", "b", "c", "d"].map(Interface::of) {
        seen.resting.insert(world.add(&pod, &long).ip());
        world.del(&pod, &long);
    }
    let mut pods = Vec::new();
    for number in 0..PODS {
        pods.push((world.pod(&format!("pod-{number}")).await, None));
    }
    for number in 0..CLAIMS {
        let claim = format!("vm-{number}.blue");
        world.claim(&claim, None).await;
        for side in ["source", "target"] {
            pods.push((world.pod(&format!("{side}-{number}")).await, Some(claim.clone())));
        }
    }

    let churn = Arc::new(Churn { world, seen: Mutex::new(seen), refused: AtomicUsize::new(0) });
    let over = Arc::new(AtomicBool::new(false));
    let sweeping = tokio::spawn({
        let (client, over) = (churn.world.client.clone(), over.clone());
        async move {
            let mut forgotten = 0;
            while !over.load(Ordering::Relaxed) {
                let swept = ipam::sweep::sweep(&client).await.unwrap();
                assert_eq!(swept.released, [""; 0], "everybody is there");
                forgotten += swept.forgotten;
                // Not to synchronise: the processor is for the plugins.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            forgotten
        }
    });
    let begin = Instant::now();
    let workers: Vec<_> = (pods.into_iter())
        .map(|(of, claim)| {
            let (churn, config) = (churn.clone(), config.clone());
            tokio::task::spawn_blocking(move || match claim {
                Some(claim) => churn.of_claim(&of, &claim, &config),
                None => churn.of_pod(&of, &config),
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let forgotten = sweeping.await.unwrap();
    let refused = churn.refused.load(Ordering::Relaxed);
    println!("{:?}; {refused} refused, {forgotten} forgotten by the sweep", begin.elapsed());

    let Seen { claimed, resting, .. } = std::mem::take(&mut *churn.seen.lock().unwrap());
    let claimed: BTreeSet<IpAddr> = claimed.into_values().collect();
    assert_eq!(claimed.len(), CLAIMS);
    let owned: BTreeSet<IpAddr> = churn.world.owned().await.into_iter().collect();
    assert_eq!(owned, claimed, "every pod has given back what it had, and nobody else has anything");
    let objects = churn.world.objects().await;
    let left = objects.iter().filter(|object| object.spec.rest_seconds == Some(LONG_SECONDS));
    let left: BTreeSet<IpAddr> = left.map(|object| object.spec.address.parse().unwrap()).collect();
    assert_eq!(left, resting, "they rest still");
    assert_eq!(churn.world.journal_files(), [""; 0]);
}
