//! Lab processes, pods and plugins are killed at random while workloads roll. Then all converges, and then nothing is left.

use std::time::{Duration, Instant};

use lab::Lab;
use serde_json::Value;
use testkit::{TestLab, Traces};

const SEED: u64 = 20_261_115;
const KILLS: usize = 40;
/// Roughly how far the kills are apart: long enough for things to begin, too short for them to end.
const APART: Duration = Duration::from_millis(400);
const CONVERGE: &str = "--timeout=150s";

const WORKLOADS: &str = "
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: { name: net1 }
spec:
  config: '{\"cniVersion\":\"1.0.0\",\"name\":\"net1\",\"type\":\"macvlan\",\"master\":\"eth1\",\"ipam\":{\"type\":\"host-local\",\"subnet\":\"192.0.2.0/24\"}}'
---
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: every }
spec:
  selector: { matchLabels: { app: every } }
  template:
    metadata:
      labels: { app: every }
      annotations: { k8s.v1.cni.cncf.io/networks: net1, round: '0' }
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{ name: main, image: host, command: [sleep, infinity] }]
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: some }
spec:
  replicas: 4
  selector: { matchLabels: { app: some } }
  template:
    metadata: { labels: { app: some }, annotations: { round: '0' } }
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{ name: main, image: host, command: [sleep, infinity] }]
";

/// Processes that may be killed, and how often one of the kind is chosen.
const VICTIMS: [(&str, usize); 8] = [
    ("agent", 6),
    ("shim", 6),
    ("sleep", 6),
    ("control plane", 3),
    ("node init", 3),
    ("dhcp", 1),
    ("lab init", 1),
    ("keep", 1),
];

fn choose(random: &mut fastrand::Rng) -> &'static str {
    let all: usize = VICTIMS.iter().map(|(_, weight)| weight).sum();
    let mut at = random.usize(..all);
    for (role, weight) in VICTIMS {
        if at < weight {
            return role;
        }
        at -= weight;
    }
    unreachable!("the weights sum up")
}

/// Kills one process of a kind, or a plugin that happens to run.
fn kill_one(lab: &TestLab, random: &mut fastrand::Rng) -> String {
    let status = lab.status();
    let processes = status["processes"].as_array().unwrap();
    let plugins = ["bridge", "macvlan", "host-local", "runc"];
    let is = |process: &Value, role: &str| process["role"].as_str().is_some_and(|is| is.starts_with(role));
    let plugin = processes.iter().find(|process| plugins.iter().any(|plugin| is(process, plugin)));
    let role = choose(random);
    let candidates: Vec<_> = processes.iter().filter(|process| is(process, role)).collect();
    let victim =
        plugin.or_else(|| (!candidates.is_empty()).then(|| candidates[random.usize(..candidates.len())]));
    let Some(victim) = victim else { return format!("no {role}") };
    let pid = victim["pid"].as_i64().unwrap().to_string();
    // It may be gone already, which is as good.
    let _ = std::process::Command::new("kill").args(["-KILL", &pid]).output();
    format!("{} {}", victim["role"], victim["node"])
}

#[test]
fn whatever_is_killed_the_lab_converges_and_then_leaves_nothing() {
    let before = Traces::now();
    let mut random = fastrand::Rng::with_seed(SEED);
    let lab = TestLab::up("");
    lab.apply(WORKLOADS);
    let mut killed = Vec::new();
    for round in 0..KILLS {
        if round % 5 == 0 {
            let patch = format!(
                r#"{{"spec":{{"template":{{"metadata":{{"annotations":{{"round":"{round}"}}}}}}}}}}"#
            );
            // The API server may be one of the killed: then the workloads roll next time.
            lab.kubectl(&["patch", "ds/every", "--request-timeout=2s", "-p", &patch]);
            lab.kubectl(&["patch", "deploy/some", "--request-timeout=2s", "-p", &patch]);
        }
        let begin = Instant::now();
        killed.push(kill_one(&lab, &mut random));
        if killed.last().is_some_and(|last| last.starts_with("\"keep\"")) {
            lab.up_again();
        }
        let pause = APART.mul_f32(random.f32() * 2.0);
        std::thread::sleep(pause.saturating_sub(begin.elapsed()));
    }
    println!("killed: {}", killed.join(", "));
    lab.up_again();
    for workload in ["ds/every", "deploy/some"] {
        lab.kubectl_ok(&["rollout", "status", workload, CONVERGE]);
    }
    converged(&lab);

    let (directory, cgroup) = (lab.directory(), Lab::at(&lab.directory()).unwrap().cgroup());
    lab.down();
    assert_eq!(Traces::of(&directory, &cgroup), Vec::<String>::new());
    assert_eq!(before.changes(), Vec::<String>::new());
}

/// Exactly the pods that are wanted run, with exactly their network namespaces and their addresses.
fn converged(lab: &TestLab) {
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let wrong = differences(lab);
        if wrong.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "not converged: {wrong:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn differences(lab: &TestLab) -> Vec<String> {
    let mut wrong = Vec::new();
    let pods: Value = serde_json::from_str(&lab.kubectl_ok(&["get", "pods", "-A", "-o", "json"])).unwrap();
    let pods = pods["items"].as_array().unwrap();
    if pods.len() != 7 {
        wrong.push(format!("{} pods", pods.len()));
    }
    for node in ["node-1", "node-2", "node-3"] {
        let mut here: Vec<_> = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).collect();
        here.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let count = |command: &str| lab.shell(node, command).trim().parse::<usize>().unwrap();
        let namespaces = count("ls /run/netns | wc -l");
        let containers = count("runc --root /run/runc list -q | wc -l");
        let addresses = count("ls /var/lib/cni/networks/pods | grep -c '^10\\.' || true");
        let macvlan = count("ls /var/lib/cni/networks/net1 2>/dev/null | grep -c '^192\\.' || true");
        let daemons = here.iter().filter(|pod| pod["metadata"]["labels"]["app"] == "every").count();
        for (what, is, wanted) in [
            ("network namespaces", namespaces, here.len()),
            ("containers", containers, here.len()),
            ("pod addresses", addresses, here.len()),
            ("addresses of net1", macvlan, daemons),
        ] {
            if is != wanted {
                wrong.push(format!("{node}: {is} {what}, and there should be {wanted}"));
            }
        }
    }
    wrong
}
