//! What a person types: up, status, shell, logs, down.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::Lab;
use testkit::{TestLab, Traces};

#[test]
fn three_nodes_are_ready_within_twenty_seconds_and_nothing_is_left_of_them() {
    let before = Traces::now();
    let lab = TestLab::up("");
    assert!(lab.took < Duration::from_secs(20), "it took {:?}", lab.took);
    let nodes = lab.kubectl_ok(&["get", "nodes", "--no-headers"]);
    assert_eq!(nodes.lines().filter(|line| line.contains(" Ready ")).count(), 3, "{nodes}");
    assert_eq!(
        before.changes(),
        Vec::<String>::new(),
        "a running lab is not in the machine's own namespaces"
    );

    let status = lab.status();
    assert_eq!(status["running"], true);
    assert_eq!(status["clusters"][0]["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(lab.processes("agent").len(), 3);
    assert_eq!(lab.processes("node init").len(), 3);

    assert_eq!(lab.shell("node-2", "hostname").trim(), "node-2");
    assert!(lab.shell("fabric", "ip -br link").contains("management"));
    lab.shell("node-2", "touch /var/lib/of-node-2");
    assert_eq!(lab.shell("node-1", "ls /var/lib | grep -c of-node || true").trim(), "0");
    let unknown = lab.godwit(&["lab", "shell", "node-9", "--", "true"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("node-1, node-2, node-3"));

    let logs = lab.godwit(&["lab", "logs", "node-1"]);
    assert!(String::from_utf8_lossy(&logs.stdout).contains("agent"));

    let (directory, cgroup) = (lab.directory(), Lab::at(&lab.directory()).unwrap().cgroup());
    lab.down();
    assert_eq!(Traces::of(&directory, &cgroup), Vec::<String>::new());
    assert_eq!(before.changes(), Vec::<String>::new());
    lab.down();
}

#[test]
fn pods_of_different_nodes_reach_each_other_and_the_api_server() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 2 }]");
    lab.apply(
        "
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: reach }
spec:
  selector: { matchLabels: { app: reach } }
  template:
    metadata: { labels: { app: reach } }
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: reach
        image: host
        command: [iperf3, -s]
",
    );
    lab.kubectl_ok(&["rollout", "status", "ds/reach", "--timeout=60s"]);
    let pods = lab.kubectl_ok(&[
        "get",
        "pods",
        "-o",
        "jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{\"\\n\"}{end}",
    ]);
    let pods: Vec<_> = pods.lines().filter_map(|line| line.split_once(' ')).collect();
    let [(one, _), (_, other)] = pods.as_slice() else { panic!("two pods: {pods:?}") };
    lab.shell(one, &format!("iperf3 -c {other} -n 1M"));
    // Nobody is anonymous there, so the answer to a stranger is a refusal: by the API server itself.
    let answer = lab.shell(
        one,
        "curl -sk -o /dev/null -w '%{http_code}' https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api",
    );
    assert_eq!(answer, "401");
}

#[test]
fn logs_are_read_and_followed_by_kubectl() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 1 }]");
    lab.apply(
        "
apiVersion: v1
kind: Pod
metadata: { name: talks }
spec:
  restartPolicy: Never
  containers:
  - { name: main, image: host, command: [sh, -c, 'echo first; while ! test -e /run/go-on; do sleep 0.1; done; echo last'] }
",
    );
    lab.kubectl_ok(&["wait", "--for=condition=Ready", "pod/talks", "--timeout=60s"]);
    assert_eq!(lab.kubectl_ok(&["logs", "talks"]), "first\n");
    let followed = std::thread::scope(|scope| {
        // It ends when the container does.
        let follower = scope.spawn(|| lab.kubectl_ok(&["logs", "-f", "talks"]));
        lab.shell("talks", "touch /run/go-on");
        follower.join().unwrap()
    });
    assert_eq!(followed, "first\nlast\n");
    lab.kubectl_ok(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=60s"]);
}

#[test]
fn an_up_that_is_killed_at_any_moment_is_removed_by_down() {
    let before = Traces::now();
    let lab = TestLab::none();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..8 {
        let mut up = lab.command(&["lab", "up"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.u64(..400)));
        up.kill().unwrap();
        up.wait().unwrap();
        let (directory, cgroup) = (lab.directory(), Lab::at(&lab.directory()).unwrap().cgroup());
        lab.down();
        assert_eq!(Traces::of(&directory, &cgroup), Vec::<String>::new());
    }
    assert_eq!(before.changes(), Vec::<String>::new());
}

#[test]
fn an_up_that_waits_starts_the_lab_again_when_its_keeper_is_killed() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 1 }]");
    let signal = |name: &str, role: &str| {
        for process in lab.processes(role) {
            let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
            assert!(sent.success(), "{role}");
        }
    };
    // An API server that does not answer keeps `lab up` waiting.
    signal("-STOP", "control plane");
    let mut up = lab.command(&["lab", "up"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let connected = format!("pid={},", up.id());
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let sockets = Command::new("ss").args(["-Htnp"]).output().unwrap();
        if String::from_utf8_lossy(&sockets.stdout).contains(&connected) {
            break;
        }
        assert!(Instant::now() < deadline, "lab up asks no API server");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal("-KILL", "keep");
    let mut said = String::new();
    up.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(up.wait().unwrap().success(), "{said}");
    assert!(lab.kubectl_ok(&["get", "nodes", "--no-headers"]).contains(" Ready "));
}

#[test]
fn two_labs_of_one_name_do_not_know_each_other() {
    let (one, other) =
        (TestLab::up("clusters: [{ name: a, nodes: 1 }]"), TestLab::up("clusters: [{ name: b, nodes: 1 }]"));
    one.kubectl_ok(&["create", "configmap", "mine"]);
    assert!(!other.kubectl(&["get", "configmap", "mine"]).status.success());
    one.down();
    assert!(other.kubectl_ok(&["get", "nodes", "--no-headers"]).contains(" Ready "));
}

#[test]
fn a_bad_configuration_is_refused_with_its_line_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lab.yaml");
    std::fs::write(&file, "clusters:\n  - name: a\n    nodes: 0\n").unwrap();
    let lab = TestLab::none();
    let up = lab.godwit(&["lab", "up", "--config", file.to_str().unwrap()]);
    assert!(!up.status.success());
    let said = String::from_utf8_lossy(&up.stderr);
    assert!(said.contains("line 3") && said.contains("1 to 100"), "{said}");
    assert!(!lab.directory().exists());
}
