//! Debian's plugins, judged by what the kernel shows afterwards.

use api::multus::{NetworkAttachmentDefinition, parse_networks};
use cni::{CallFailure, Error, ExecError, Version, network_of_definition};
use serde_json::json;

use crate::sandbox::{Namespace, Node, network, request, whole};

#[tokio::test]
async fn bridge_with_host_local_attaches_checks_and_detaches() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let runtime = node.runtime();
    let network = node.bridged("blue", "10.77.0.0/24", &[]);
    runtime.status(&network).await.unwrap();

    let attachment = runtime.add(&network, &request(&pod, "eth0")).await.unwrap();
    assert_eq!(pod.addresses("eth0"), ["10.77.0.2"]);
    assert_eq!(attachment.ips[0].address.to_string(), "10.77.0.2/24");
    assert_eq!(attachment.ips[0].gateway.unwrap().to_string(), "10.77.0.1");
    let interface = attachment.container_interface("eth0").unwrap();
    assert_eq!(pod.link("eth0").unwrap()["address"], json!(interface.mac));
    assert_eq!(attachment.interfaces[attachment.ips[0].interface.unwrap()], *interface);
    assert_eq!(node.namespace.addresses("br0"), ["10.77.0.1"], "plugins run in the node's namespace");
    assert_eq!(pod.ip(&["route", "show", "default"])[0]["gateway"], "10.77.0.1");

    let status = &attachment.network_status("default/blue", "eth0", true)[0];
    assert_eq!((&status.interface, &status.ips), (&Some("eth0".to_owned()), &vec!["10.77.0.2".to_owned()]));
    assert_eq!(status.gateway, ["10.77.0.1"]);

    let key = runtime.list()[0].key();
    runtime.check(&key).await.unwrap();
    runtime.del(&network, &request(&pod, "eth0")).await.unwrap();
    assert_eq!((pod.links(), node.leases("blue"), node.journal_files()), (vec![], vec![], 0));
    assert!(matches!(runtime.check(&key).await, Err(Error::NotAttached { .. })));
    runtime.del(&network, &request(&pod, "eth0")).await.unwrap();
}

#[tokio::test]
async fn every_version_of_the_protocol_gives_the_same_attachment() {
    let node = Node::new();
    let runtime = node.runtime();
    let mut seen = Vec::new();
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0] {
        let pod = Namespace::new("pod");
        let ptp = json!({ "type": "ptp", "mtu": 1400, "ipam": node.host_local("10.77.1.0/29") });
        let network = network("versions", version.as_str(), &[ptp]);
        let mut attachment = runtime.add(&network, &request(&pod, "eth0")).await.unwrap();
        assert_eq!(pod.link("eth0").unwrap()["mtu"], 1400);
        assert_eq!(pod.addresses("eth0"), [attachment.ips[0].address.address.to_string()]);
        runtime.del(&network, &request(&pod, "eth0")).await.unwrap();
        // What differs from run to run.
        attachment.ips[0].address.address = "10.77.1.2".parse().unwrap();
        for interface in &mut attachment.interfaces {
            (interface.mac, interface.sandbox) = (None, interface.sandbox.as_ref().map(|_| "pod".to_owned()));
            interface.name.truncate(4);
        }
        seen.push(attachment);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:#?}");
}

#[tokio::test]
async fn a_definition_and_an_annotation_become_macvlan_with_the_address_that_was_asked_for() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    crate::sandbox::ip(&[
        "-n",
        &node.namespace.name,
        "link",
        "add",
        "eth1",
        "type",
        "veth",
        "peer",
        "name",
        "wire",
    ]);
    let config = r#"{ "cniVersion": "0.3.1", "type": "macvlan", "master": "eth1", "mode": "bridge",
        "capabilities": { "ips": true, "mac": true }, "ipam": { "type": "static" } }"#;
    let definition = NetworkAttachmentDefinition::with_config("migration", config.to_owned());
    let network = network_of_definition(&definition, node.directory.path()).unwrap();
    assert_eq!(network.name(), "migration");

    let selections = r#"[{ "name": "migration", "interface": "migration0", "ips": ["192.0.2.7/24"],
        "mac": "02:00:00:00:00:07" }]"#;
    let selection = parse_networks(selections).unwrap().remove(0);
    let request = request(&pod, "net1").with_selection(&selection);
    assert!(network.undeclared(&request.capabilities).is_empty());
    let runtime = node.runtime();
    let attachment = runtime.add(&network, &request).await.unwrap();
    assert_eq!(pod.addresses("migration0"), ["192.0.2.7"]);
    let link = pod.link("migration0").unwrap();
    assert_eq!(
        (&link["address"], &link["linkinfo"]["info_kind"]),
        (&json!("02:00:00:00:00:07"), &json!("macvlan"))
    );
    let status = attachment.network_status("default/migration", "migration0", false);
    assert_eq!(status[0].mac.as_deref(), Some("02:00:00:00:00:07"));
    runtime.del(&network, &request).await.unwrap();
    assert_eq!(pod.links(), Vec::<String>::new());
}

#[tokio::test]
async fn loopback_comes_up_and_goes_down() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let (runtime, network) = (node.runtime(), network("lo", "0.4.0", &[json!({ "type": "loopback" })]));
    runtime.add(&network, &request(&pod, "lo")).await.unwrap();
    assert!(pod.link("lo").unwrap()["flags"].as_array().unwrap().contains(&json!("UP")));
    runtime.del(&network, &request(&pod, "lo")).await.unwrap();
    assert!(!pod.link("lo").unwrap()["flags"].as_array().unwrap().contains(&json!("UP")));
}

#[tokio::test]
async fn a_chain_of_plugins_shares_one_result() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let tuning = json!({ "type": "tuning", "capabilities": { "mac": true }, "mtu": 1300 });
    let (runtime, network) = (node.runtime(), node.bridged("chain", "10.77.2.0/24", &[tuning]));
    let mut request = request(&pod, "eth0");
    request.capabilities = cni::Capabilities::new().mac("02:00:00:00:00:09".parse().unwrap());
    let attachment = runtime.add(&network, &request).await.unwrap();
    assert_eq!(attachment.container_interface("eth0").unwrap().mac.as_deref(), Some("02:00:00:00:00:09"));
    assert_eq!(attachment.ips.len(), 1);
    let link = pod.link("eth0").unwrap();
    assert_eq!((&link["address"], &link["mtu"]), (&json!("02:00:00:00:00:09"), &json!(1300)));
    runtime.check(&runtime.list()[0].key()).await.unwrap();
    runtime.del(&network, &request).await.unwrap();
}

#[tokio::test]
async fn a_pool_with_no_address_left_refuses_in_the_plugins_words_and_leaves_nothing() {
    let node = Node::new();
    // Four addresses, of which the pool gives one: network, gateway and broadcast are taken.
    let (runtime, network) = (node.runtime(), node.bridged("small", "10.77.3.0/30", &[]));
    let (first, second) = (Namespace::new("first"), Namespace::new("second"));
    runtime.add(&network, &request(&first, "eth0")).await.unwrap();
    let refused = runtime.add(&network, &request(&second, "eth0")).await.unwrap_err();
    let Error::Add { source, rollback, .. } = &refused else { panic!("{refused:?}") };
    assert!(
        source.refusal().is_some_and(|refusal| refusal.msg.contains("no IP addresses available")),
        "{refused:?}"
    );
    assert!(whole(&refused).contains("CNI plugin bridge failed on ADD"), "{}", whole(&refused));
    assert!(rollback.is_empty());
    assert_eq!((second.links(), runtime.list().len(), node.leases("small").len()), (vec![], 1, 1));
    // Mended.
    runtime.del(&network, &request(&first, "eth0")).await.unwrap();
    runtime.add(&network, &request(&second, "eth0")).await.unwrap();
    assert_eq!(second.addresses("eth0").len(), 1);
}

#[tokio::test]
async fn a_plugin_that_is_missing_stops_the_attachment_before_it_begins() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let runtime = node.runtime();
    let network = node.bridged("lacking", "10.77.4.0/24", &[json!({ "type": "no-such-plugin" })]);
    let refused = runtime.add(&network, &request(&pod, "eth0")).await.unwrap_err();
    let Error::Add { source, .. } = &refused else { panic!("{refused:?}") };
    assert!(matches!(&*source.failure, CallFailure::Exec(ExecError::Missing { .. })), "{refused:?}");
    assert_eq!(source.plugin.as_str(), "no-such-plugin");
    assert_eq!((pod.links(), node.namespace.links(), node.journal_files()), (vec![], vec![], 0));
    assert!(matches!(runtime.status(&network).await, Err(Error::Status { .. })));
}

#[tokio::test]
async fn a_chain_that_fails_half_way_is_rolled_back() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    // Debian's tuning refuses a sysctl that is none.
    let tuning = json!({ "type": "tuning", "sysctl": { "net.no.such": "1" } });
    let (runtime, network) = (node.runtime(), node.bridged("half", "10.77.5.0/24", &[tuning]));
    let refused = runtime.add(&network, &request(&pod, "eth0")).await.unwrap_err();
    let Error::Add { source, rollback, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((source.plugin.as_str(), rollback.len()), ("tuning", 0), "{refused:?}");
    assert_eq!((pod.links(), node.leases("half"), node.journal_files()), (vec![], vec![], 0));
}

#[tokio::test]
async fn a_repeated_add_gives_the_same_result_also_after_a_restart() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let network = node.bridged("again", "10.77.6.0/24", &[]);
    let runtime = node.runtime();
    let first = runtime.add(&network, &request(&pod, "eth0")).await.unwrap();
    assert_eq!(runtime.add(&network, &request(&pod, "eth0")).await.unwrap(), first);
    drop(runtime);
    let runtime = node.runtime();
    assert_eq!(runtime.add(&network, &request(&pod, "eth0")).await.unwrap(), first);
    assert_eq!(node.leases("again").len(), 1);

    // No longer whole: said so, and not forgotten.
    crate::sandbox::ip(&["-n", &pod.name, "addr", "flush", "dev", "eth0"]);
    let broken = runtime.add(&network, &request(&pod, "eth0")).await.unwrap_err();
    assert!(matches!(broken, Error::Broken { .. }), "{broken:?}");
    assert_eq!(runtime.find(&pod.name, "eth0").unwrap().attachment(), Some(&first));

    // The interface is this network's alone.
    let other = node.bridged("other", "10.77.7.0/24", &[]);
    assert!(matches!(runtime.add(&other, &request(&pod, "eth0")).await, Err(Error::Taken { .. })));
    assert!(matches!(runtime.del(&other, &request(&pod, "eth0")).await, Err(Error::Taken { .. })));
    assert!(pod.link("eth0").is_some());
    runtime.del(&network, &request(&pod, "eth0")).await.unwrap();
}

#[tokio::test]
async fn a_namespace_that_is_gone_does_not_keep_its_address() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let (runtime, network) = (node.runtime(), node.bridged("gone", "10.77.8.0/24", &[]));
    runtime.add(&network, &request(&pod, "eth0")).await.unwrap();
    pod.delete();
    let missing = runtime.add(&network, &request(&pod, "eth0")).await.unwrap_err();
    assert!(matches!(missing, Error::Namespace { .. }), "{missing:?}");
    assert_eq!((node.leases("gone"), node.journal_files()), (vec![], 0), "what was there is undone first");
}

#[tokio::test]
async fn another_namespace_at_the_same_path_is_not_touched() {
    let (node, pod) = (Node::new(), Namespace::new("pod"));
    let (runtime, network) = (node.runtime(), node.bridged("reused", "10.77.9.0/24", &[]));
    runtime.add(&network, &request(&pod, "eth0")).await.unwrap();
    // Keep the inode of the first taken, so that the second has another.
    let held = std::fs::File::open(pod.path()).unwrap();
    pod.delete();
    crate::sandbox::ip(&["netns", "add", &pod.name]);
    crate::sandbox::ip(&["-n", &pod.name, "link", "add", "eth0", "type", "veth", "peer", "name", "peer0"]);
    runtime.del(&network, &request(&pod, "eth0")).await.unwrap();
    assert!(pod.link("eth0").is_some(), "an interface of somebody else was deleted");
    assert_eq!((node.leases("reused"), node.journal_files()), (vec![], 0));
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pods_at_once_get_distinct_addresses_and_leave_none() {
    let node = Node::new();
    let (runtime, network) = (node.runtime(), node.bridged("many", "10.77.10.0/24", &[]));
    let pods: Vec<Namespace> = (0..8).map(|_| Namespace::new("pod")).collect();
    let run = |add: bool| {
        pods.iter().map(|pod| (runtime.clone(), network.clone(), request(pod, "eth0"))).fold(
            tokio::task::JoinSet::new(),
            move |mut running, (runtime, network, request)| {
                running.spawn(async move {
                    if add {
                        runtime.add(&network, &request).await.map(drop)
                    } else {
                        runtime.del(&network, &request).await
                    }
                });
                running
            },
        )
    };
    run(true).join_all().await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    let addresses: std::collections::BTreeSet<String> =
        pods.iter().flat_map(|pod| pod.addresses("eth0")).collect();
    assert_eq!(addresses.len(), pods.len());
    run(false).join_all().await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    assert_eq!((node.leases("many"), node.journal_files()), (vec![], 0));
}
