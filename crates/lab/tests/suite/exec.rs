//! `kubectl exec` and `kubectl attach`, as stock kubectl does them.

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use testkit::TestLab;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: { name: busy }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - { name: main, image: host, command: [sh, -c, 'while :; do echo tick; sleep 0.2; done'] }
";

fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    })
}

#[test]
fn commands_are_run_by_kubectl() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 2 }]");
    lab.apply(POD);
    lab.kubectl_ok(&["wait", "--for=condition=Ready", "pod/busy", "--timeout=60s"]);

    let output = lab.kubectl(&["exec", "busy", "--", "sh", "-c", "echo out; echo err >&2; exit 5"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("err\n") && said.contains("exit code 5") && !said.contains("Unhandled"), "{said}");
    assert_eq!(output.status.code(), Some(5));

    // Much of it, and its end.
    let input = b"as much as a person would ever copy\n".repeat(200_000);
    let copied = with_input(lab.kubectl_command(&["exec", "-i", "busy", "--", "cat"]), &input);
    assert!(copied.status.success() && copied.stdout == input, "{}", String::from_utf8_lossy(&copied.stderr));

    // A terminal of kubectl's own is needed for one in the container.
    let ask = "stty rows 33 cols 77; kubectl exec -it busy -- sh -c 'until stty size | grep \"33 77\"; do :; done; tty'";
    let mut terminal = Command::new("script");
    let kubectl = lab.kubectl_command(&[]);
    let programs = std::path::Path::new(kubectl.get_program()).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(programs.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    terminal.args(["-qec", ask, "/dev/null"]).env("PATH", path.unwrap()).env("KUBECONFIG", lab.kubeconfig());
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(child.wait().unwrap().success() && shown.contains("/dev/pts/"), "{shown:?}");

    let refused = lab.kubectl(&["exec", "busy", "-c", "other", "--", "true"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("container other is not valid"));
    let spdy = lab
        .kubectl_command(&["exec", "busy", "--", "true"])
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&spdy.stderr);
    assert!(!spdy.status.success() && said.contains("only WebSocket"), "{said}");
}

#[test]
fn a_kubectl_that_is_killed_leaves_no_command() {
    let lab = TestLab::up("clusters: [{ name: lab, nodes: 1 }]");
    lab.apply(POD);
    lab.kubectl_ok(&["wait", "--for=condition=Ready", "pod/busy", "--timeout=60s"]);
    // Brackets, so that the question is no answer.
    let runs = || !lab.shell("node-1", "pgrep -f '[s]leep 4001' || true").is_empty();
    let mut kubectl = lab
        .kubectl_command(&["exec", "-i", "busy", "--", "sh", "-c", "trap '' TERM HUP; sleep 4001"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    until("the command runs", runs);
    kubectl.kill().unwrap();
    kubectl.wait().unwrap();
    until("the command ends", || !runs());

    // Attached to what the container writes from now on.
    let mut attached = lab.kubectl_command(&["attach", "busy"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ticks = [0; 10];
    attached.stdout.take().unwrap().read_exact(&mut ticks).unwrap();
    assert_eq!(&ticks, b"tick\ntick\n");
    attached.kill().unwrap();
    attached.wait().unwrap();
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "did not come to pass: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
