//! A launcher that was taken over asks the CNI proxy for what is not its own, and gets nothing.

use std::collections::BTreeSet;

use e2e::{Installation, Place, Pod, simple_instance};

use crate::TIDY;

const NODE: &str = "node-1";

/// Where the calls of the plugin of the pod network are written down.
const CALLS: &str = "/run/calls";

#[test]
fn a_launcher_gets_nothing_that_is_not_its_own() {
    let lab = Installation::new("");
    lab.record_plugin_calls(NODE, "bridge", CALLS);
    let before = lab.footprint();
    lab.apply(&(simple_instance("a", NODE) + &simple_instance("b", NODE)));
    let [a, b] = ["a", "b"].map(|name| {
        let address = lab.until("it has an address", TIDY, || lab.address(name));
        lab.until_it_is("it answers", TIDY, || lab.echo(Place::Node("node-2"), &address, "hello"));
        lab.launcher(name).unwrap()
    });
    let with_both = everything(&lab);
    assert!(
        with_both.iter().any(|line| line.contains(&format!("call ADD {}-vnic", b.uid))),
        "{with_both:#?}"
    );

    it_sees_no_socket_of_another(&lab, &a, &b);
    it_is_refused_at_the_socket_of_another(&lab, &a, &b);
    it_may_ask_for_nothing_but_its_vnics(&lab, &a);
    it_cannot_keep_the_proxy_from_its_work(&lab, &a);

    assert_eq!(everything(&lab), with_both, "something came of it");
    for name in ["a", "b"] {
        assert!(lab.echo(Place::Node("node-2"), &lab.address(name).unwrap(), "still here"));
    }
    lab.kubectl_ok(&["delete", "vmi", "a", "b", "--timeout=60s"]);
    lab.until_all_is_as(&before, TIDY);
}

/// What there is on the nodes, and how often plugins were called.
fn everything(lab: &Installation) -> BTreeSet<String> {
    let mut all = lab.footprint();
    let calls = lab.shell(Place::Node(NODE), &format!("cat -n {CALLS}"));
    all.extend(calls.lines().map(|line| {
        format!("{NODE} call {}", line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    }));
    all.insert(format!("{} calls", calls.lines().count()));
    all
}

/// What a process in the network namespace of a pod hears at the socket of another, or of its own. The process is outside of the pod's
/// files, so that it can reach every socket: a launcher that got this far.
fn say(lab: &Installation, from: &Pod, to: &Pod, script: &str) -> String {
    let script = format!("cd {} && ({script}) | socat -t20 - UNIX:cni.sock", lab.volume(to, "private"));
    let output = lab.try_shell(Place::PodNetwork(from), &script);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn it_sees_no_socket_of_another(lab: &Installation, a: &Pod, b: &Pod) {
    let sockets = lab.shell(
        Place::Pod(a),
        "find / -xdev -name '*.sock' -path '*kubevirt*'; find /var/run/kubevirt -name cni.sock",
    );
    assert!(sockets.lines().any(|line| line.ends_with("/cni.sock")), "{sockets}");
    let found = lab.shell(Place::Pod(a), &format!("find / -path /proc -prune -o -name '*{}*' -print", b.uid));
    assert_eq!(found, "", "nothing of another pod is to be seen");
}

fn it_is_refused_at_the_socket_of_another(lab: &Installation, a: &Pod, b: &Pod) {
    // It is told no before it asks: who asks at once may find the connection closed.
    for request in ["add", "check", "del"] {
        let ask = format!(r#"sleep 1; echo '{{"request":"{request}","vnic":"default"}}'"#);
        let heard = say(lab, a, b, &ask);
        assert!(heard.contains("is not in the network namespace of the pod"), "{request}: {heard}");
        assert_eq!(heard.lines().count(), 1);
    }
    let heard = say(lab, a, b, r#"sleep 1; echo '{"request":"list"}'"#);
    assert!(heard.contains(r#""response":"failed""#) && !heard.contains("vnics"), "{heard}");
}

fn it_may_ask_for_nothing_but_its_vnics(lab: &Installation, a: &Pod) {
    let with = |field: &str| format!(r#"echo '{{"request":"add","vnic":"default",{field}}}'"#);
    for script in [
        with(r#""netns":"/proc/1/ns/net""#),
        with(r#""namespace":"default","pod":"b""#),
        with(r#""path":"/tmp","plugins":["/tmp"]"#),
        with(r#""network":{"name":"pods","type":"evil"}"#),
        with(r#""interface":"eth0""#),
        r#"echo '{"request":"add","vnic":"eth0"}'"#.to_owned(),
        r#"echo '{"request":"add","vnic":"../default"}'"#.to_owned(),
        r#"echo '{"request":"del","vnic":["default"]}'"#.to_owned(),
        r#"echo '{"request":"exec","vnic":"default"}'"#.to_owned(),
        r#"echo '[{"request":"del","vnic":"default"}]'"#.to_owned(),
        "echo '{\"request\":'".to_owned(),
        "echo hello".to_owned(),
        r"printf '\000\001\377\n'".to_owned(),
        r#"printf '{"request":"del","vnic":"default"}'"#.to_owned(),
    ] {
        let heard = say(lab, a, a, &script);
        assert!(heard.contains(r#""response":"failed""#), "{script}: {heard}");
        assert_eq!(heard.lines().count(), 1, "{script}: {heard}");
    }
    // Who writes on after the connection was closed may not hear why.
    let long = "head -c 2097152 /dev/zero | tr '\\0' x";
    for script in [format!(r#"printf '{{"request":"del","vnic":"'; {long}; echo '"}}'"#), long.to_owned()] {
        let heard = say(lab, a, a, &script);
        assert!(heard.is_empty() || heard.contains(r#""response":"failed""#), "{heard}");
    }
}

fn it_cannot_keep_the_proxy_from_its_work(lab: &Installation, a: &Pod) {
    // Half a request, and then nothing.
    let heard = say(lab, a, a, r#"printf '{"request":'; sleep 11"#);
    assert!(heard.contains("must be whole within"), "{heard}");

    // More connections than a pod may have, all at once and all silent: those beyond are told, the others wait, and when they are
    // gone the launcher is heard again.
    let heard = say(
        lab,
        a,
        a,
        "for n in $(seq 40); do (sleep 3 | socat -t1 - UNIX:cni.sock >>/run/crowd) & done; sleep 2; \
         echo '{\"request\":\"list\"}'; wait",
    );
    let crowd = lab.shell(Place::Node(NODE), "cat /run/crowd; rm /run/crowd");
    assert!(crowd.lines().filter(|line| line.contains("8 connections already")).count() >= 32, "{crowd}");
    assert!(heard.contains(r#""response":"#), "{heard}");
    let heard = say(lab, a, a, r#"echo '{"request":"list"}'"#);
    assert!(heard.contains(r#""interface":"vnic0""#), "{heard}");
}
