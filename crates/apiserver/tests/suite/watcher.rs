//! kube-runtime's watcher, with both of its strategies, over a network that breaks and a history that is forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use testkit::{Flaky, Options, Server};

use crate::Space;

/// What a client of the watcher believes there is.
#[derive(Default)]
struct Belief {
    now: BTreeMap<String, String>,
    next: BTreeMap<String, String>,
}

impl Belief {
    fn learn(&mut self, event: Event<ConfigMap>) {
        let entry = |map: ConfigMap| {
            let value = map.data.unwrap_or_default().remove("n").unwrap_or_default();
            (map.metadata.name.unwrap_or_default(), value)
        };
        match event {
            Event::Init => self.next.clear(),
            Event::InitApply(map) => self.next.extend([entry(map)]),
            Event::InitDone => self.now = std::mem::take(&mut self.next),
            Event::Apply(map) => self.now.extend([entry(map)]),
            Event::Delete(map) => {
                self.now.remove(&entry(map).0);
            }
        }
    }
}

/// Watches through a proxy while `disturb` is called between writes, until the belief is the truth.
async fn converges(
    server: &Server,
    namespace: &str,
    config: watcher::Config,
    disturb: impl AsyncFn(&Flaky, usize),
) {
    let flaky = Flaky::to(server.address().await).await;
    let mut through = server.config().await;
    through.cluster_url = format!("https://{}", flaky.address).parse().unwrap();
    let watched: Api<ConfigMap> = Api::namespaced(Client::try_from(through).unwrap(), namespace);
    let config = config.labels("watched=yes");
    let mut stream = watcher(watched, config).default_backoff().boxed();

    let maps: Api<ConfigMap> = Api::namespaced(server.client().await, namespace);
    let write = async |number: usize| {
        let map = json!({"metadata": {"name": format!("m{}", number % 7), "labels": {"watched": "yes"}}, "data": {"n": number.to_string()}});
        let map: ConfigMap = serde_json::from_value(map).unwrap();
        let name = map.metadata.name.clone().unwrap();
        if number % 5 == 4 {
            maps.delete(&name, &DeleteParams::default()).await.ok();
        } else if maps.get_opt(&name).await.unwrap().is_some() {
            maps.replace(&name, &PostParams::default(), &map).await.unwrap();
        } else {
            maps.create(&PostParams::default(), &map).await.unwrap();
        }
    };
    let writes = async {
        for number in 0..40 {
            write(number).await;
            disturb(&flaky, number).await;
        }
        let list = maps.list(&kube::api::ListParams::default().labels("watched=yes")).await.unwrap();
        let truth =
            list.items.into_iter().map(|map| (map.metadata.name.unwrap(), map.data.unwrap()["n"].clone()));
        truth.collect::<BTreeMap<_, _>>()
    };
    let mut belief = Belief::default();
    let mut truth = None;
    tokio::pin!(writes);
    let convergence = async {
        loop {
            tokio::select! {
                result = &mut writes, if truth.is_none() => truth = Some(result),
                // An error is a cut connection; the watcher goes on by itself.
                event = stream.next() => if let Ok(event) = event.expect("a watcher never ends") {
                    belief.learn(event);
                },
            }
            if truth.as_ref() == Some(&belief.now) {
                return;
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_mins(1), convergence).await;
    assert!(result.is_ok(), "believes {:?}, but the truth is {truth:?}", belief.now);
}

async fn cut(flaky: &Flaky, number: usize) {
    if number.is_multiple_of(4) {
        flaky.cut();
    }
}

#[tokio::test]
async fn list_and_watch_survives_cut_connections() {
    let space = Space::new().await;
    converges(space.server, &space.name, watcher::Config::default(), cut).await;
}

#[tokio::test]
async fn streamed_lists_survive_cut_connections() {
    let space = Space::new().await;
    converges(space.server, &space.name, watcher::Config::default().streaming_lists(), cut).await;
}

/// Writes more than the server remembers while the watcher is cut off, so that it must list anew. The real server forgets no events
/// that fast: there this is one more test with cut connections.
async fn forgets(config: watcher::Config) {
    let server = Server::start(Options { durable: false, history: Some(20) }).await;
    let http = server.http().await;
    let namespace = format!("forget-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await.ok();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let path = &path;
    converges(&server, &namespace, config, async |flaky, number| {
        if number.is_multiple_of(10) {
            flaky.cut();
            for _ in 0..30 {
                http.post(path, &json!({"metadata": {"generateName": "noise-"}})).await.ok();
            }
        }
    })
    .await;
    http.delete(&format!("/api/v1/namespaces/{namespace}")).await;
}

#[tokio::test]
async fn list_and_watch_survives_a_forgetful_server() {
    forgets(watcher::Config::default()).await;
}

#[tokio::test]
async fn streamed_lists_survive_a_forgetful_server() {
    forgets(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn a_metadata_watcher_gets_metadata() {
    let space = Space::new().await;
    space.config_map("a", &json!({"k": "v"})).await;
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(space.client.clone(), &space.name);
    let config = watcher::Config::default().fields("metadata.name=a");
    let mut stream = watcher(maps, config).applied_objects().boxed();
    let seen = stream.try_next().await.unwrap().unwrap();
    assert_eq!(seen.metadata.name.as_deref(), Some("a"));
}
