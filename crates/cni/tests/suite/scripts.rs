//! Plugins that misbehave: shell scripts run by the real executor.

use std::{
    fs,
    time::{Duration, Instant},
};

use cni::{CallFailure, Error, ExecError};
use serde_json::json;

use crate::sandbox::{Namespace, Node, network, request, whole};

const RESULT: &str = r#"{ "cniVersion": "1.0.0", "interfaces": [], "ips": [] }"#;

fn is_running(process: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_killed_with_all_that_it_started() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    node.script(
        "hang",
        "[ $CNI_COMMAND = DEL ] && exit 0; sleep 600 & echo $! > $dir/child; echo $$ > $dir/own; wait",
    );
    let runtime = node.runtime_with_timeout(Duration::from_millis(700));
    let network = network("hang", "1.0.0", &[json!({ "type": "hang" })]);
    let refused = runtime.add(&network, &request(&pod, "eth0")).await.unwrap_err();
    let Error::Add { source, rollback, .. } = &refused else { panic!("{refused:?}") };
    assert!(matches!(&*source.failure, CallFailure::Exec(ExecError::Timeout { .. })), "{refused:?}");
    assert!(rollback.is_empty(), "{rollback:?}");
    wait_for("the plugin and its child end", || {
        !is_running(&node.written("own")) && !is_running(&node.written("child"))
    });
    assert_eq!(node.journal_files(), 0);
}

#[tokio::test]
async fn what_a_plugin_sees_is_exactly_what_the_protocol_says() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    node.script("look", &format!("env > $dir/env.$CNI_COMMAND; cat > $dir/in.$CNI_COMMAND; echo '{RESULT}'"));
    let runtime = node.runtime();
    let config = json!({ "type": "look", "capabilities": { "mac": true, "ips": false }, "own": { "kept": [1] },
        "cni.dev/x": 1, "args": { "other": 1 } });
    let network = network("look", "1.0.0", &[config]);
    let mut request = request(&pod, "eth7").with_arg("K8S_POD_NAME", "a").with_arg("IgnoreUnknown", "1");
    request.capabilities =
        cni::Capabilities::new().mac("02:00:00:00:00:01".parse().unwrap()).device_id("0000:01");
    request.cni_args.insert("who".to_owned(), json!("me"));
    assert_eq!(network.undeclared(&request.capabilities), ["deviceID"]);
    runtime.add(&network, &request).await.unwrap();

    let environment = node.written("env.ADD");
    let mut names: Vec<&str> =
        environment.lines().filter_map(|line| line.split_once('=')).map(|pair| pair.0).collect();
    names.sort_unstable();
    // The shell adds PWD.
    names.retain(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name));
    let expected =
        ["CNI_ARGS", "CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS", "CNI_PATH", "PATH"];
    assert_eq!(names, expected);
    assert!(environment.contains("CNI_ARGS=K8S_POD_NAME=a;IgnoreUnknown=1\n"), "{environment}");
    assert!(environment.contains(&format!("CNI_NETNS={}\n", pod.path().display())), "{environment}");

    let added: serde_json::Value = serde_json::from_str(&node.written("in.ADD")).unwrap();
    let whole = json!({ "cniVersion": "1.0.0", "name": "look", "type": "look", "own": { "kept": [1] },
        "runtimeConfig": { "mac": "02:00:00:00:00:01" }, "args": { "other": 1, "cni": { "who": "me" } } });
    assert_eq!(added, whole);
    runtime.del(&network, &request).await.unwrap();
    let deleted: serde_json::Value = serde_json::from_str(&node.written("in.DEL")).unwrap();
    assert_eq!(deleted["prevResult"], serde_json::from_str::<serde_json::Value>(RESULT).unwrap());
    assert_eq!(deleted["runtimeConfig"], whole["runtimeConfig"]);
}

#[tokio::test]
async fn a_plugin_that_never_stops_writing_is_stopped() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    node.script("flood", "[ $CNI_COMMAND = DEL ] && exit 0; exec yes");
    let network = network("flood", "1.0.0", &[json!({ "type": "flood" })]);
    let refused = node.runtime().add(&network, &request(&pod, "eth0")).await.unwrap_err();
    assert!(whole(&refused).contains("it wrote more than 1048576 bytes"), "{}", whole(&refused));

    node.script("flood", "yes error | head -c 5000000 >&2; exit 3");
    let refused = node.runtime().add(&network, &request(&pod, "eth0")).await.unwrap_err();
    assert!(whole(&refused).contains("it ended with code 3: error"), "{}", whole(&refused));
    assert!(whole(&refused).len() < 8000, "the message is bounded");
}

#[tokio::test]
async fn answers_that_are_none_are_errors_that_say_so() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let network = network("odd", "1.0.0", &[json!({ "type": "odd" })]);
    for (body, expected) in [
        ("echo nonsense", "CNI plugin odd failed on ADD: the answer is not a CNI result"),
        ("exit 9", "it ended with code 9: without a word"),
        ("kill -9 $$", "it was ended by a signal"),
        (r#"echo '{ "cniVersion": "9.0.0" }'"#, "CNI version \"9.0.0\" is not spoken here"),
        (
            r#"echo '{ "ips": [{ "address": "10.0.0.1" }] }'"#,
            "ips[0].address of the result: \"10.0.0.1\" is not",
        ),
        (r#"echo '{ "code": 7, "msg": "bad", "details": "very" }'; exit 1"#, "bad (code 7): very"),
        (r#"echo '{ "code": 7, "msg": "bad" }' >&2; exit 1"#, "bad (code 7)"),
    ] {
        node.script("odd", &format!("[ $CNI_COMMAND = DEL ] && exit 0; {body}"));
        let refused = node.runtime().add(&network, &request(&pod, "eth0")).await.unwrap_err();
        assert!(whole(&refused).contains(expected), "{body}: {}", whole(&refused));
        assert_eq!(node.journal_files(), 0);
    }
}

#[tokio::test]
async fn the_search_is_by_name_in_the_given_directories_only() {
    let node = Node::new();
    for name in ["../bin/x", "/bin/sh", "..", ".", "", ".hidden", "a/b", "a\\b", "a\0b"] {
        assert!(cni::PluginName::new(name).is_err(), "{name:?}");
        for plugin in [json!({ "type": name }), json!({ "type": "ok", "ipam": { "type": name } })] {
            let config = json!({ "cniVersion": "1.0.0", "name": "n", "plugins": [plugin] });
            // An empty ipam.type means none.
            assert_eq!(
                cni::parse(config.to_string().as_bytes()).is_ok(),
                plugin["ipam"]["type"] == "",
                "{plugin}"
            );
        }
    }
    assert!(cni::SearchPath::new(["relative"]).is_err());
    assert!(cni::SearchPath::new(["/a:/b"]).is_err());
    assert!(cni::SearchPath::new(Vec::<&str>::new()).is_err());
    // Neither a directory nor a file without the right to execute is a plugin.
    fs::create_dir(node.directory.path().join("bin/folder")).unwrap();
    fs::write(node.directory.path().join("bin/plain"), "").unwrap();
    for name in ["folder", "plain"] {
        let status = node.runtime().status(&network("n", "1.0.0", &[json!({ "type": name })])).await;
        assert!(
            whole(&status.unwrap_err()).contains("there is no executable file of that name in"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_plugin_that_outlived_its_runtime_is_ended_before_its_work_is_undone() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    node.script(
        "slow",
        "[ $CNI_COMMAND = DEL ] && { grep -q CNI_ /proc/$(cat $dir/own)/environ 2>/dev/null && echo alive > $dir/late; exit 0; }
         echo $$ > $dir/own.new; mv $dir/own.new $dir/own; exec sleep 600",
    );
    let network = network("slow", "1.0.0", &[json!({ "type": "slow" })]);
    // What `kill -9` leaves: a plugin at work, and an entry that says so.
    let mut orphan = std::process::Command::new(node.directory.path().join("bin/slow"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", &pod.name), ("CNI_IFNAME", "eth0")])
        .spawn()
        .unwrap();
    wait_for("the plugin is at work", || !node.written("own").is_empty());
    let process = orphan.id().to_string();
    crate::journal::write_adding(&node, &network, &request(&pod, "eth0")).await;

    let runtime = node.runtime();
    assert_eq!(runtime.list().len(), 1);
    let detached = runtime.del(&network, &request(&pod, "eth0")).await;
    let ended = !is_running(&process);
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    detached.unwrap();
    assert!(ended, "the plugin was still at work");
    assert_eq!((node.written("late").as_str(), node.journal_files()), ("", 0));
}
