//! The controllers may be killed at any moment, and whoever comes after them goes on.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use serde_json::json;
use testkit::eventually;

use crate::support::{Cluster, Witness, image, image_of, is_leaving, workload};

#[tokio::test]
async fn killed_again_and_again_in_the_middle_of_rollouts_they_still_keep_to_the_bounds() {
    let mut cluster = Cluster::new(&["a", "b", "c"]).await;
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    cluster.create::<Deployment>(workload("web", "one", json!({"replicas": 3, "strategy": strategy}))).await;
    cluster.create::<DaemonSet>(workload("agent", "one", json!({}))).await;
    let all_of = async |cluster: &Cluster, version: &str| {
        let pods = cluster.pods().await;
        pods.len() == 6
            && pods.iter().all(|pod| {
                let ready = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                let ready =
                    ready.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status == "True");
                image_of(pod) == version && ready && !is_leaving(pod)
            })
    };
    eventually("the first version", async || all_of(&cluster, "one").await.then_some(())).await;
    let (web, agent) = (Witness::of(cluster.api(), "web").await, Witness::of(cluster.api(), "agent").await);
    cluster.patch::<Deployment>("web", image("two")).await;
    cluster.patch::<DaemonSet>("agent", image("two")).await;
    let mut kills = 0;
    while !all_of(&cluster, "two").await {
        assert!(kills < 1000, "no rollout gets on");
        // A little more life each time, so that every step is cut somewhere and the work ends nevertheless.
        tokio::time::sleep(Duration::from_millis(kills % 40)).await;
        cluster.kill_controllers().await;
        cluster.start_controllers();
        kills += 1;
    }
    assert!(kills > 1, "the rollout was over before anybody was killed");
    assert!(web.seen().most <= 4 && web.seen().fewest_ready >= 3, "{:?}", web.seen());
    assert!(agent.seen().most <= 3 && agent.seen().fewest_ready >= 2, "{:?}", agent.seen());
}
