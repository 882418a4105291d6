//! The agent dies and comes back, and so does the node.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::cluster::{Cluster, agent_process, container, phase, run, script, sleeper, status};
use crate::fixture::{eventually, isolated};
use kubelet::runtime::{ContainerId, Runtime, State};

async fn pid(cluster: &Cluster, pod: &Pod) -> u32 {
    let id = ContainerId { pod: pod.metadata.uid.clone().unwrap(), container: "main".into(), attempt: 0 };
    match Runtime::open(cluster.node.options()).unwrap().state(&id).await.unwrap() {
        Some(State::Running { pid, .. }) => pid,
        other => panic!("{id} runs: {other:?}"),
    }
}

#[test]
fn an_agent_takes_over_what_runs() {
    isolated("restart::an_agent_takes_over_what_runs", |node| async {
        let mut cluster = Cluster::start(node).await;
        cluster.create(sleeper("app")).await;
        let before = cluster.running("app").await;
        let first = pid(&cluster, &before).await;
        cluster.stop_agent().await;
        assert_eq!(pid(&cluster, &before).await, first, "it goes on without an agent");
        cluster.start_agent();
        // The agent is there again once it has done something new.
        cluster.create(sleeper("other")).await;
        cluster.running("other").await;
        let after = cluster.running("app").await;
        assert_eq!(pid(&cluster, &after).await, first);
        assert_eq!(status(&after).pod_ip, status(&before).pod_ip);
        assert_eq!(container(&after, "main"), container(&before, "main"));
        assert_eq!(after.metadata.annotations, before.metadata.annotations);
        for name in ["app", "other"] {
            cluster.delete(name, &DeleteParams::default()).await;
        }
        assert!(cluster.leases("pods").is_empty());
    });
}

#[test]
fn what_ended_while_nobody_looked_is_found_out() {
    isolated("restart::what_ended_while_nobody_looked_is_found_out", |node| async {
        let mut cluster = Cluster::start(node).await;
        let mut pod = script("job", "sleep 2; exit 4");
        pod["spec"]["restartPolicy"] = json!("Never");
        cluster.create(pod).await;
        let before = cluster.running("job").await;
        cluster.stop_agent().await;
        let running = pid(&cluster, &before).await;
        eventually("it ends", || !std::path::Path::new(&format!("/proc/{running}/exe")).exists()).await;
        cluster.start_agent();
        let pod = cluster.pod("job", "failed", |pod| phase(pod) == "Failed").await;
        assert_eq!(container(&pod, "main").state.unwrap().terminated.unwrap().exit_code, 4);
        cluster.delete("job", &DeleteParams::default()).await;
    });
}

#[test]
fn a_pod_that_was_deleted_while_nobody_looked_is_removed() {
    isolated("restart::a_pod_that_was_deleted_while_nobody_looked_is_removed", |node| async {
        let mut cluster = Cluster::start(node).await;
        cluster.create(sleeper("deleted")).await;
        cluster.create(sleeper("forced")).await;
        let (deleted, forced) = (cluster.running("deleted").await, cluster.running("forced").await);
        cluster.stop_agent().await;
        cluster.pods().delete("deleted", &DeleteParams::default()).await.unwrap();
        cluster.pods().delete("forced", &DeleteParams::default().grace_period(0)).await.unwrap();
        cluster.start_agent();
        cluster.gone(&deleted).await;
        cluster.gone(&forced).await;
        eventually("all addresses are free", || cluster.leases("pods").is_empty()).await;
    });
}

#[test]
fn pods_come_back_after_a_power_cut() {
    isolated("restart::pods_come_back_after_a_power_cut", |node| async {
        let mut cluster = Cluster::start(node).await;
        let mut pod = sleeper("app");
        pod["spec"]["initContainers"] =
            json!([{ "name": "init", "image": "host", "command": ["/bin/true"] }]);
        cluster.create(pod).await;
        let before = cluster.running("app").await;
        cluster.stop_agent().await;
        // What a restart of the node takes: every process, and what is in memory.
        let uid = before.metadata.uid.clone().unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        run(
            "sh",
            &[
                "-c",
                "kill -9 $(ls /proc | grep -E '^[0-9]+$' | grep -vx -e 1 -e $$ -e $PPID) 2>/dev/null; true",
            ],
        );
        let netns = cluster.path("netns").join(&uid);
        run("umount", &[netns.to_str().unwrap()]);
        for place in mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|place| place.contains("/run/node/state"))
        {
            run("umount", &["--lazy", place]);
        }
        for place in ["netns", "volatile", "run"] {
            fs::remove_dir_all(cluster.path(place)).unwrap();
        }
        run("ip", &["link", "delete", "pods0"]);
        cluster.start_agent();
        let after = cluster
            .pod("app", "running again", |pod| {
                container(pod, "main").restart_count == 1 && phase(pod) == "Running"
            })
            .await;
        let last = container(&after, "main").last_state.unwrap().terminated.unwrap();
        assert_eq!(last.reason.as_deref(), Some("ContainerStatusUnknown"));
        assert_eq!(container(&after, "init").restart_count, 1, "a new sandbox is initialised anew");
        assert_eq!(cluster.leases("pods").len(), 1, "the old address went back");
        cluster.delete("app", &DeleteParams::default()).await;
    });
}

/// Whenever the agent dies, the next one makes of it what was wanted, and in the end nothing is left.
#[test]
fn an_agent_may_die_at_any_moment() {
    isolated("restart::an_agent_may_die_at_any_moment", |node| async {
        let cluster = Cluster::without_network(node).await;
        cluster.write_network();
        let kubeconfig = cluster.serve().await;
        let names: Vec<String> = (0..3).map(|n| format!("app{n}")).collect();
        for name in &names {
            cluster.create(sleeper(name)).await;
        }
        let die_often = || async {
            for round in 1..8 {
                let mut agent = agent_process(&kubeconfig);
                // Not to wait for something, but to come at another moment each time.
                tokio::time::sleep(Duration::from_millis(100 + round * 61)).await;
                agent.kill().unwrap();
                agent.wait().unwrap();
            }
            agent_process(&kubeconfig)
        };
        let mut agent = die_often().await;
        for name in &names {
            let pod = cluster.running(name).await;
            assert_eq!(container(&pod, "main").restart_count, 0, "no container was started twice");
        }
        assert_eq!(cluster.leases("pods").len(), names.len());
        for name in &names {
            cluster.pods().delete(name, &DeleteParams::default()).await.unwrap();
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        agent = die_often().await;
        for pod in cluster.pods().list(&ListParams::default()).await.unwrap() {
            cluster.gone(&pod).await;
        }
        eventually("all addresses are free", || cluster.leases("pods").is_empty()).await;
        let traces = cluster.path("state/containers");
        eventually("nothing is left", || fs::read_dir(&traces).unwrap().next().is_none()).await;
        agent.kill().unwrap();
        agent.wait().unwrap();
    });
}
