//! The CNI proxy: what a launcher gets, what nobody else gets, and what a death in between leaves.

use serde_json::{Value, json};

use crate::node::{eventually, isolated, links, run, show};

fn address(answer: &Value) -> String {
    assert_eq!(answer["response"], "added", "{answer}");
    let address = answer["vnic"]["addresses"][0]["address"].as_str().unwrap();
    address.strip_suffix("/24").unwrap().to_owned()
}

#[test]
fn a_vnic_is_attached_once_and_detached_and_eth0_is_left_alone() {
    isolated("proxy::a_vnic_is_attached_once_and_detached_and_eth0_is_left_alone", |mut node| async move {
        node.start_handler();
        let pod = node.launcher_pod("vm", &["default", "blue"]).await;
        let eth0 = show(&pod.uid, "eth0");
        let mut proxy = pod.proxy().await;
        let first = proxy.ask("add", "default").await;
        assert_eq!(first["vnic"]["interface"], "vnic0");
        assert_eq!(first["vnic"]["addresses"][0]["gateway"], "10.88.0.1");
        assert_eq!(first["vnic"]["routes"], json!([{ "destination": "0.0.0.0/0" }]));
        let second = proxy.ask("add", "blue").await;
        assert_eq!(second["vnic"]["interface"], "vnic1");
        assert_ne!(address(&first), address(&second));
        let mut both = vec![address(&first), address(&second)];
        both.sort();
        assert_eq!(node.leases(), both);

        // As a launcher does: the guest has the address, the interface has none.
        run("ip", &["-n", &pod.uid, "address", "flush", "dev", "vnic0"]);
        assert_eq!(proxy.ask("add", "default").await, first, "the same question has the same answer");
        assert_eq!(proxy.ask("check", "default").await["response"], "checked");
        proxy.send(r#"{"request":"list"}"#);
        assert_eq!(proxy.hear().await["vnics"], json!([first["vnic"], second["vnic"]]));
        assert_eq!(show(&pod.uid, "eth0"), eth0);

        assert_eq!(proxy.ask("del", "default").await["response"], "deleted");
        assert_eq!(proxy.ask("del", "default").await["response"], "deleted", "it is well detached");
        assert_eq!(node.leases(), [address(&second)]);
        assert_eq!(proxy.ask("check", "default").await["response"], "failed");
        proxy.ask("del", "blue").await;
        assert_eq!((node.leases(), node.journal()), (vec![], vec![]));
        assert!(!links(&pod.uid).iter().any(|link| link.starts_with("vnic")));
        assert_eq!(show(&pod.uid, "eth0"), eth0);
    });
}

#[test]
fn strangers_nonsense_and_floods_change_nothing() {
    isolated("proxy::strangers_nonsense_and_floods_change_nothing", |mut node| async move {
        node.start_handler();
        let (pod, other) =
            (node.launcher_pod("vm", &["default"]).await, node.launcher_pod("other", &["default"]).await);
        pod.proxy().await.ask("add", "default").await;
        let before = node.everything();

        let mut stranger = pod.proxy_from(&other.uid).await;
        stranger.send(r#"{"request":"del","vnic":"default"}"#);
        let refused = stranger.hear().await["error"].as_str().unwrap().to_owned();
        assert!(refused.contains("is not in the network namespace of the pod"), "{refused}");
        stranger.expect("closed").await;

        for line in [
            "hello".to_owned(),
            r#"{"request":"add","vnic":"default","netns":"/proc/1/ns/net"}"#.to_owned(),
            r#"{"request":"del","vnic":"../default"}"#.to_owned(),
            r#"{"request":"del"}"#.to_owned(),
            format!(r#"{{"request":"del","vnic":"{}"}}"#, "x".repeat(2 << 20)),
        ] {
            let mut proxy = pod.proxy().await;
            proxy.send(&line);
            assert_eq!(proxy.hear().await["response"], "failed");
            proxy.expect("closed").await;
        }

        let mut proxy = pod.proxy().await;
        let unknown = proxy.ask("add", "red").await;
        assert_eq!(unknown["error"], "VM vm has no vNIC red; it has: default");
        let mut crowd = Vec::new();
        for _ in 0..7 {
            crowd.push(pod.proxy().await);
        }
        let mut one_too_many = pod.proxy().await;
        assert!(one_too_many.hear().await["error"].as_str().unwrap().contains("8 connections"));
        assert_eq!(node.everything(), before);
        assert_eq!(
            proxy.ask("add", "default").await["response"],
            "added",
            "its own launcher is served all the while"
        );
    });
}

#[test]
fn a_vnic_of_a_secondary_network_is_what_the_pod_was_given() {
    isolated("proxy::a_vnic_of_a_secondary_network_is_what_the_pod_was_given", |mut node| async move {
        node.start_handler();
        let networks = json!([{ "name": "blue", "multus": { "networkName": "blue" } }]);
        let pod = node.launcher_pod_with("vm", json!([{ "name": "blue", "bridge": {} }]), networks).await;
        let mut proxy = pod.proxy().await;
        let missing = proxy.ask("add", "blue").await;
        assert!(
            missing["error"].as_str().unwrap().contains("the pod has no interface pod16477688c0e"),
            "{missing}"
        );
        let interface = "pod16477688c0e";
        run(
            "ip",
            &[
                "-n", &pod.uid, "link", "add", interface, "mtu", "1400", "type", "veth", "peer", "name",
                "peer",
            ],
        );
        run("ip", &["-n", &pod.uid, "link", "set", interface, "up"]);
        run("ip", &["-n", &pod.uid, "link", "set", "peer", "up"]);
        run("ip", &["-n", &pod.uid, "address", "add", "198.51.100.7/25", "dev", interface]);
        run("ip", &["-n", &pod.uid, "route", "add", "203.0.113.0/24", "via", "198.51.100.1"]);
        let given = proxy.ask("add", "blue").await;
        assert_eq!(given["vnic"]["addresses"], json!([{ "address": "198.51.100.7/25" }]));
        assert_eq!(
            given["vnic"]["routes"],
            json!([{ "destination": "203.0.113.0/24", "gateway": "198.51.100.1" }])
        );
        assert_eq!(given["vnic"]["mtu"], 1400);
        run("ip", &["-n", &pod.uid, "address", "flush", "dev", interface]);
        node.kill_handler();
        node.start_handler();
        let mut proxy = pod.proxy().await;
        assert_eq!(proxy.ask("add", "blue").await, given, "it is remembered");
        assert_eq!(proxy.ask("del", "blue").await["response"], "deleted");
        assert!(links(&pod.uid).contains(&interface.to_owned()), "it is not ours to take away");
        assert!(node.leases().is_empty() && node.journal().is_empty());
    });
}

#[test]
fn a_handler_that_is_killed_at_any_step_leaves_one_attachment_or_none() {
    isolated(
        "proxy::a_handler_that_is_killed_at_any_step_leaves_one_attachment_or_none",
        |mut node| async move {
            node.add_holding_plugin();
            node.start_handler();
            let pod = node.launcher_pod("vm", &["default"]).await;

            // Once the handler knows the instance, a request is not answered by "try again".
            pod.proxy().await.ask("check", "default").await;
            // The interface is made, the address is given, nobody knows yet.
            node.hold("ADD");
            let mut proxy = pod.proxy().await;
            proxy.send(r#"{"request":"add","vnic":"default"}"#);
            node.held("ADD").await;
            node.kill_handler();
            assert_eq!((node.leases().len(), node.journal().len()), (1, 1));
            node.let_go("ADD");
            node.start_handler();
            let first = pod.proxy().await.ask("add", "default").await;
            assert_eq!(node.leases(), [address(&first)]);
            assert_eq!(links(&pod.uid).iter().filter(|link| link.starts_with("vnic")).count(), 1);

            // It is in the journal, and told or not.
            node.kill_handler();
            node.start_handler();
            assert_eq!(pod.proxy().await.ask("add", "default").await, first);

            // It is being taken away.
            node.hold("DEL");
            let mut proxy = pod.proxy().await;
            proxy.send(r#"{"request":"del","vnic":"default"}"#);
            node.held("DEL").await;
            node.kill_handler();
            node.let_go("DEL");
            node.start_handler();
            assert_eq!(pod.proxy().await.ask("del", "default").await["response"], "deleted");
            assert_eq!((node.leases(), node.journal()), (vec![], vec![]));
            eventually("no interface is left", || !links(&pod.uid).contains(&"vnic0".to_owned())).await;
        },
    );
}
