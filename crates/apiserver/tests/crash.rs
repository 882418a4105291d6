//! The server is killed again and again while it is written to and watched, and must lose, repeat and reorder nothing.
//!
//! Several writers each own some `ConfigMap`s and remember what was acknowledged. A write whose answer was cut off is in doubt: its
//! writer reads back what became of it, and both outcomes are right. Two watchers, a plain watch that resumes from the last version it
//! saw and the watcher of kube-runtime, must each report exactly the writes that took place, per object and in order.
//!
//! Only for the embedded server, unless asked otherwise: `GODWIT_CRASH=WRITES,KILLS,SEED`. The real one
//! forgets at a restart what its watchers have yet to see and has them list anew; there they may miss what came between.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in its helpers"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::{Http, Options, Server};
use tokio::sync::watch;

/// Writes, kills and seed, unless `GODWIT_CRASH` says otherwise. `make test-all` kills fifty times.
const FEW: &str = "2400,12,1";
const WRITERS: usize = 16;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LABEL: &str = "crash%3Dtest";
/// The last object to be written.
const END: &str = "the-end";

/// What happened to one object, in order: the sequence numbers that its writer gave it, and `None` for a deletion.
type History = BTreeMap<String, Vec<Option<u64>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_no_event_is_missed() {
    let mut given = std::env::var("GODWIT_CRASH").unwrap_or_default();
    let mut server = Server::start(Options { durable: true, history: Some(100_000) }).await;
    if given.is_empty() {
        if !server.is_embedded() {
            testkit::not_run("only the embedded server is killed again and again; GODWIT_CRASH asks for it");
            return;
        }
        given = FEW.into();
    }
    let numbers: Vec<u64> =
        given.split(',').map(|number| number.parse().expect("GODWIT_CRASH=WRITES,KILLS,SEED")).collect();
    let [writes, kills, seed] = numbers[..] else { panic!("GODWIT_CRASH=WRITES,KILLS,SEED") };
    println!("{writes} writes, {kills} kills, seed {seed}");

    let world = World { remembers: server.is_embedded(), ..World::default() };
    let client = server.client().await;
    let http = Http::new(client.clone());
    let from = version(&http.get(MAPS).await.ok());
    let test = async {
        let writing = async {
            let writer =
                |number| write(number, seed, writes / WRITERS as u64, Http::new(client.clone()), &world);
            let histories = futures::future::join_all((0..WRITERS).map(writer)).await;
            http.post(MAPS, &config_map(END, 0)).await.ok();
            histories.into_iter().flatten().collect::<History>()
        };
        let killing = kill(&mut server, writes, kills, seed, &world);
        let plain = watch_plainly(Http::new(client.clone()), from, &world);
        let runtime = watch_with_kube(client.clone(), &world);
        // The end is written only after the last kill: kills wait for writes, and writes for the server.
        let ((), truth, plain, runtime) = tokio::join!(killing, writing, plain, runtime);
        plain.assert_true("a plain watch", &truth);
        runtime.assert_true("the watcher of kube-runtime", &truth);
        truth
    };
    let truth = tokio::time::timeout(Duration::from_mins(5), test).await.expect("an end within five minutes");
    let changes: usize = truth.values().map(Vec::len).sum();
    println!("{changes} changes of {} objects", truth.len());
}

/// What writers, watchers and the killer share.
#[derive(Default)]
struct World {
    acknowledged: watch::Sender<u64>,
    /// How many times the server has been started again.
    starts: watch::Sender<u64>,
    /// The largest version that anyone was told.
    newest: AtomicU64,
    /// A watch can always be resumed.
    remembers: bool,
}

impl World {
    /// Waits for the next start after the given number of them.
    async fn started_after(&self, starts: u64) {
        let waiting = async { self.starts.subscribe().wait_for(|now| *now > starts).await.map(|now| *now) };
        let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        waited
            .expect("a connection breaks only when the server is killed")
            .expect("the world outlives its parts");
    }

    fn starts(&self) -> u64 {
        *self.starts.borrow()
    }
}

async fn kill(server: &mut Server, writes: u64, kills: u64, seed: u64, world: &World) {
    let mut random = fastrand::Rng::with_seed(seed);
    let share = writes / (kills + 1);
    for number in 0..kills {
        let when = number * share + random.u64(1..=share);
        let mut acknowledged = world.acknowledged.subscribe();
        acknowledged.wait_for(|count| *count >= when).await.expect("the world outlives its parts");
        // Somewhere within a write, and not always right after one.
        tokio::time::sleep(Duration::from_micros(random.u64(0..3000))).await;
        server.kill().await;
        world.starts.send_modify(|starts| *starts += 1);
    }
}

/// One writer's objects: what they should be, and what happened to them.
#[derive(Default)]
struct Mine {
    now: BTreeMap<String, u64>,
    history: History,
    last_version: u64,
}

impl Mine {
    fn done(&mut self, name: &str, sequence: Option<u64>) {
        self.history.entry(name.to_owned()).or_default().push(sequence);
        match sequence {
            Some(sequence) => self.now.insert(name.to_owned(), sequence),
            None => self.now.remove(name),
        };
    }
}

async fn write(number: usize, seed: u64, share: u64, http: Http, world: &World) -> History {
    let mut random = fastrand::Rng::with_seed(seed * 1000 + number as u64);
    let mut mine = Mine::default();
    let mut sequence = 0;
    let mut acknowledged = 0;
    while acknowledged < share {
        sequence += 1;
        let name = format!("w{number}-{}", random.u8(0..8));
        let exists = mine.now.contains_key(&name);
        let (method, path, wanted) = match random.u8(0..10) {
            _ if !exists => (Method::POST, MAPS.to_owned(), Some(sequence)),
            0..2 => (Method::DELETE, format!("{MAPS}/{name}"), None),
            _ => (Method::PUT, format!("{MAPS}/{name}"), Some(sequence)),
        };
        let body = wanted.map(|sequence| config_map(&name, sequence).to_string()).unwrap_or_default();
        let starts = world.starts();
        let headers = [("content-type", "application/json")];
        let Ok(reply) = http.try_send(method.clone(), &path, &headers, body).await else {
            world.started_after(starts).await;
            settle(number, &http, world, &mut mine, (&name, wanted)).await;
            continue;
        };
        let answer = reply.ok();
        if wanted.is_some() {
            let version = version(&answer);
            let before = mine.last_version;
            assert!(version > before, "{method} {path}: version {version} after {before}");
            mine.last_version = version;
            world.newest.fetch_max(version, Ordering::SeqCst);
        }
        mine.done(&name, wanted);
        acknowledged += 1;
        world.acknowledged.send_modify(|count| *count += 1);
    }
    mine.history
}

/// After a kill: every object is as acknowledged; only the one of the write in doubt may be as before or as wanted.
async fn settle(number: usize, http: &Http, world: &World, mine: &mut Mine, doubt: (&str, Option<u64>)) {
    let newest = world.newest.load(Ordering::SeqCst);
    let list = list(http, &format!(",writer%3Dw{number}"), world).await;
    assert!(version(&list) >= newest, "a list of version {} after {newest} was acknowledged", version(&list));
    let found = contents(&list);
    let (doubted, wanted) = doubt;
    if found.get(doubted) != mine.now.get(doubted) {
        assert_eq!(found.get(doubted).copied(), wanted, "{doubted} is neither as before nor as wanted");
        mine.done(doubted, wanted);
    }
    assert_eq!(found, mine.now, "writer {number} after a restart");
}

/// What a watcher saw.
#[derive(Default)]
struct Seen {
    history: History,
    /// Whether it had to list anew, and so may have missed something.
    relisted: bool,
}

impl Seen {
    fn change(&mut self, name: String, sequence: Option<u64>) {
        self.history.entry(name).or_default().push(sequence);
    }

    fn list(&mut self, found: &BTreeMap<String, u64>) {
        for (name, history) in &mut self.history {
            if history.last().is_some_and(Option::is_some) && !found.contains_key(name) {
                history.push(None);
            }
        }
        for (name, sequence) in found {
            let history = self.history.entry(name.clone()).or_default();
            if history.last() != Some(&Some(*sequence)) {
                history.push(Some(*sequence));
            }
        }
    }

    fn assert_true(mut self, who: &str, truth: &History) {
        self.history.remove(END);
        for (name, truth) in truth {
            let seen = self.history.get(name).map(Vec::as_slice).unwrap_or_default();
            if self.relisted {
                let mut rest = truth.iter();
                let in_order = seen.iter().all(|change| rest.any(|true_change| true_change == change));
                assert!(in_order, "{who} saw of {name} {seen:?}, but the truth is {truth:?}");
                assert_eq!(seen.last(), truth.last(), "{who} does not know the end of {name}");
            } else {
                let at = truth.iter().zip(seen).take_while(|(truth, seen)| truth == seen).count();
                assert_eq!(&truth[at..], &seen[at..], "{who} differs at change {at} of {name}");
            }
        }
        assert_eq!(truth.len(), self.history.len(), "{who} saw objects that nobody wrote");
    }
}

async fn watch_plainly(http: Http, mut last: u64, world: &World) -> Seen {
    let mut seen = Seen::default();
    loop {
        let starts = world.starts();
        let path = format!("{MAPS}?watch=true&labelSelector={LABEL}&resourceVersion={last}");
        if let Ok(mut watch) = http.try_watch(&path, &[]).await {
            while let Some(event) = watch.next().await {
                let object = &event["object"];
                if !world.remembers && object["code"] == 410 {
                    let list = list(&http, "", world).await;
                    (seen.relisted, last) = (true, version(&list));
                    seen.list(&contents(&list));
                    break;
                }
                let known = matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED" | "DELETED"));
                assert!(known, "resumed from {last}: {event}");
                assert!(version(object) > last, "after {last}: {event}");
                last = version(object);
                let before = seen.history.get(&name(object)).and_then(|history| history.last());
                assert_eq!(event["type"] == "ADDED", !before.is_some_and(Option::is_some), "{event}");
                seen.change(name(object), (event["type"] != "DELETED").then(|| sequence(object)));
                if name(object) == END {
                    return seen;
                }
            }
            if seen.relisted && seen.history.contains_key(END) {
                return seen;
            }
            if seen.relisted && world.starts() == starts {
                continue;
            }
        }
        world.started_after(starts).await;
    }
}

async fn watch_with_kube(client: Client, world: &World) -> Seen {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut stream = watcher(maps, watcher::Config::default().labels("crash=test")).boxed();
    let mut seen = Seen::default();
    let mut lists = 0;
    let mut found = BTreeMap::new();
    while !seen.history.contains_key(END) {
        let starts = world.starts();
        let json = |map: ConfigMap| serde_json::to_value(map).expect("a ConfigMap is JSON");
        match stream.next().await.expect("a watcher never ends") {
            Ok(watcher::Event::Init) => {
                lists += 1;
                seen.relisted = lists > 1;
                assert!(
                    !seen.relisted || !world.remembers,
                    "it had to list anew: the server forgot where it was"
                );
                found.clear();
            }
            Ok(watcher::Event::InitApply(map)) => {
                found.extend([json(map)].iter().map(|map| (name(map), sequence(map))));
            }
            Ok(watcher::Event::InitDone) => seen.list(&found),
            Ok(watcher::Event::Apply(map)) => {
                let map = json(map);
                seen.change(name(&map), Some(sequence(&map)));
            }
            Ok(watcher::Event::Delete(map)) => seen.change(name(&json(map)), None),
            // It tries again as soon as it is asked, and there may be nobody there yet.
            Err(_) => {
                tokio::time::timeout(Duration::from_millis(50), world.started_after(starts)).await.ok();
            }
        }
    }
    seen
}

/// Lists what there is of one writer's or of all objects, as soon as the server answers.
async fn list(http: &Http, selector: &str, world: &World) -> Value {
    let path = format!("{MAPS}?labelSelector={LABEL}{selector}");
    loop {
        let starts = world.starts();
        match http.try_send(Method::GET, &path, &[], "").await {
            Ok(reply) => return reply.ok(),
            Err(_) => world.started_after(starts).await,
        }
    }
}

fn contents(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().map(|item| (name(item), sequence(item))).collect()
}

fn config_map(name: &str, sequence: u64) -> Value {
    let writer = name.split('-').next();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"crash": "test", "writer": writer}},
        "data": {"sequence": sequence.to_string()},
    })
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn sequence(object: &Value) -> u64 {
    object["data"]["sequence"].as_str().and_then(|text| text.parse().ok()).expect("a sequence number")
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).expect("a version")
}
